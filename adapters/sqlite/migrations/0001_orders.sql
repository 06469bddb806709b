-- Activities, stock as sold, outcomes, orders. Times are milliseconds since 1970, units and ids integers.

-- The newest version of each activity. Facts that a decision needs stand beside the document.
CREATE TABLE activities (
    activity_id        INTEGER PRIMARY KEY,
    version            INTEGER NOT NULL,
    path_id            TEXT    NOT NULL,
    document           TEXT    NOT NULL,
    published_ms       INTEGER NOT NULL, -- of the first version
    closes_ms          INTEGER NOT NULL,
    pay_within_ms      INTEGER NOT NULL,
    rebuy_after_cancel INTEGER NOT NULL,
    ended              INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX activities_path ON activities (path_id) WHERE NOT ended;

CREATE TABLE skus (
    activity_id    INTEGER NOT NULL,
    sku_id         INTEGER NOT NULL,
    total          INTEGER NOT NULL,
    sold           INTEGER NOT NULL, -- units of orders that are not CANCELLED
    price_amount   TEXT    NOT NULL,
    price_currency TEXT    NOT NULL,
    PRIMARY KEY (activity_id, sku_id),
    CHECK (sold BETWEEN 0 AND total)
) STRICT, WITHOUT ROWID;

-- What was decided on each reservation, once and for ever.
CREATE TABLE outcomes (
    reservation_id          TEXT    PRIMARY KEY,
    activity_id             INTEGER NOT NULL,
    sku_id                  INTEGER NOT NULL,
    user_id                 INTEGER NOT NULL,
    request_id              TEXT    NOT NULL,
    body_hash               TEXT    NOT NULL,
    quantity                INTEGER NOT NULL,
    created_ms              INTEGER NOT NULL, -- of the reservation
    outcome                 TEXT    NOT NULL CHECK (outcome IN ('CREATED', 'DUPLICATE', 'NO_CAPACITY')),
    existing_reservation_id TEXT,             -- of DUPLICATE
    decided_ms              INTEGER NOT NULL,
    CHECK ((outcome = 'DUPLICATE') = (existing_reservation_id IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX outcomes_buyer ON outcomes (activity_id, sku_id, user_id);

CREATE TABLE orders (
    id             INTEGER PRIMARY KEY AUTOINCREMENT, -- an id is never used twice
    reservation_id TEXT    NOT NULL UNIQUE,
    activity_id    INTEGER NOT NULL,
    sku_id         INTEGER NOT NULL,
    user_id        INTEGER NOT NULL,
    quantity       INTEGER NOT NULL CHECK (quantity > 0),
    price_amount   TEXT    NOT NULL, -- of one unit
    price_currency TEXT    NOT NULL,
    status         TEXT    NOT NULL CHECK (status IN ('CREATED', 'PAID', 'CANCELLED')),
    created_ms     INTEGER NOT NULL,
    pay_before_ms  INTEGER NOT NULL,
    payment_id     TEXT,
    effect_due_ms  INTEGER, -- since when the stock store may not know the status
    CHECK ((status = 'PAID') = (payment_id IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX orders_one_a_user ON orders (activity_id, sku_id, user_id) WHERE status <> 'CANCELLED';
CREATE UNIQUE INDEX orders_payment ON orders (payment_id) WHERE payment_id IS NOT NULL;
CREATE INDEX orders_unpaid ON orders (pay_before_ms) WHERE status = 'CREATED';
CREATE INDEX orders_effect_due ON orders (effect_due_ms) WHERE effect_due_ms IS NOT NULL;

-- The leader's fence.
CREATE TABLE terms (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    term     INTEGER NOT NULL
) STRICT;
INSERT INTO terms VALUES (1, 0);

-- The newest messages that can never be decided.
CREATE TABLE dead_letters (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    body   BLOB    NOT NULL,
    reason TEXT    NOT NULL,
    at_ms  INTEGER NOT NULL
) STRICT;
