-- Activities, stock as sold, outcomes, orders. Times are milliseconds since 1970: to_timestamp(created_ms / 1000.0).

-- The newest version of each activity. Facts that a decision needs stand beside the document.
CREATE TABLE activities (
    activity_id        bigint  PRIMARY KEY,
    version            bigint  NOT NULL,
    path_id            text    NOT NULL,
    document           text    NOT NULL, -- JSON, its bytes as they were published
    published_ms       bigint  NOT NULL, -- of the first version
    closes_ms          bigint  NOT NULL,
    pay_within_ms      bigint  NOT NULL,
    rebuy_after_cancel boolean NOT NULL,
    ended              boolean NOT NULL
);
CREATE UNIQUE INDEX activities_path ON activities (path_id) WHERE NOT ended;

-- A hot row: every decision of a SKU locks it. The free space keeps its updates on one page.
CREATE TABLE skus (
    activity_id    bigint NOT NULL,
    sku_id         bigint NOT NULL,
    total          bigint NOT NULL,
    sold           bigint NOT NULL, -- units of orders that are not CANCELLED
    price_amount   text   NOT NULL,
    price_currency text   NOT NULL,
    PRIMARY KEY (activity_id, sku_id),
    CHECK (sold BETWEEN 0 AND total)
) WITH (fillfactor = 20);

-- What was decided on each reservation, once and for ever.
CREATE TABLE outcomes (
    reservation_id          text   COLLATE "C" PRIMARY KEY,
    activity_id             bigint NOT NULL,
    sku_id                  bigint NOT NULL,
    user_id                 bigint NOT NULL,
    request_id              text   COLLATE "C" NOT NULL,
    body_hash               text   NOT NULL,
    quantity                bigint NOT NULL,
    created_ms              bigint NOT NULL, -- of the reservation
    outcome                 text   NOT NULL CHECK (outcome IN ('CREATED', 'DUPLICATE', 'NO_CAPACITY')),
    existing_reservation_id text   COLLATE "C", -- of DUPLICATE
    decided_ms              bigint NOT NULL,
    CHECK ((outcome = 'DUPLICATE') = (existing_reservation_id IS NOT NULL))
);
CREATE INDEX outcomes_buyer ON outcomes (activity_id, sku_id, user_id);

-- No foreign keys: an order is written only with its outcome, under the lock of its SKU's row, and they are
-- deleted together; checking them again would cost a fifth of a batch.
CREATE TABLE orders (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reservation_id text   COLLATE "C" NOT NULL UNIQUE,
    activity_id    bigint NOT NULL,
    sku_id         bigint NOT NULL,
    user_id        bigint NOT NULL,
    quantity       bigint NOT NULL CHECK (quantity > 0),
    price_amount   text   NOT NULL, -- of one unit
    price_currency text   NOT NULL,
    status         text   NOT NULL CHECK (status IN ('CREATED', 'PAID', 'CANCELLED')),
    created_ms     bigint NOT NULL,
    pay_before_ms  bigint NOT NULL,
    payment_id     text   COLLATE "C",
    effect_due_ms  bigint, -- since when the stock store may not know the status
    CHECK ((status = 'PAID') = (payment_id IS NOT NULL))
);
CREATE UNIQUE INDEX orders_one_a_user ON orders (activity_id, sku_id, user_id) WHERE status <> 'CANCELLED';
CREATE UNIQUE INDEX orders_payment ON orders (payment_id) WHERE payment_id IS NOT NULL;
CREATE INDEX orders_unpaid ON orders (pay_before_ms) WHERE status = 'CREATED';
CREATE INDEX orders_effect_due ON orders (effect_due_ms) WHERE effect_due_ms IS NOT NULL;

-- The leader's fence.
CREATE TABLE terms (
    only_row boolean PRIMARY KEY CHECK (only_row),
    term     bigint  NOT NULL
);
INSERT INTO terms VALUES (true, 0);

-- The newest messages that can never be decided.
CREATE TABLE dead_letters (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body   bytea  NOT NULL,
    reason text   NOT NULL,
    at_ms  bigint NOT NULL
);
