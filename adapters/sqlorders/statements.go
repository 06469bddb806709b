package sqlorders

// Ids are bigint, reservation and request ids text, times milliseconds since 1970 (…_ms), units bigint. Placeholders
// are $1, $2 … in both databases.

const (
	verdictColumns = `o.reservation_id, o.activity_id, o.sku_id, o.user_id, o.request_id, o.body_hash, o.quantity, o.created_ms,
		o.outcome, COALESCE(o.existing_reservation_id, ''), COALESCE(r.id, 0), COALESCE(r.status, ''), a.rebuy_after_cancel, a.closes_ms`

	// of CREATED the own order, of DUPLICATE the existing one
	verdictTables = `FROM outcomes o
		JOIN activities a ON a.activity_id = o.activity_id
		LEFT JOIN orders r ON r.reservation_id = COALESCE(o.existing_reservation_id, o.reservation_id)`

	orderColumns = verdictColumns + `, r.price_amount, r.price_currency, r.created_ms, r.pay_before_ms, COALESCE(r.payment_id, '')`

	// each order with its own outcome
	orderTables = `FROM orders r
		JOIN outcomes o ON o.reservation_id = r.reservation_id
		JOIN activities a ON a.activity_id = r.activity_id`
)

// Statements about one thing; they read alike in both databases.
const (
	nextTerm = `UPDATE terms SET term = term + 1 RETURNING term`

	selectActivity   = `SELECT document, ended FROM activities WHERE activity_id = $1`
	selectActivities = `SELECT document, ended FROM activities ORDER BY ended, published_ms DESC, activity_id LIMIT $1`
	countActivities  = `SELECT count(*) FROM activities WHERE NOT ended AND activity_id <> $1`
	countPaths       = `SELECT count(*) FROM activities WHERE NOT ended AND activity_id <> $1 AND path_id = $2`
	putActivity      = `INSERT INTO activities (activity_id, version, path_id, document, published_ms, closes_ms, pay_within_ms, rebuy_after_cancel, ended)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (activity_id) DO UPDATE SET version = excluded.version, path_id = excluded.path_id, document = excluded.document,
			closes_ms = excluded.closes_ms, pay_within_ms = excluded.pay_within_ms, rebuy_after_cancel = excluded.rebuy_after_cancel`
	putSKU = `INSERT INTO skus (activity_id, sku_id, total, sold, price_amount, price_currency) VALUES ($1, $2, $3, 0, $4, $5)
		ON CONFLICT (activity_id, sku_id) DO UPDATE SET price_amount = excluded.price_amount, price_currency = excluded.price_currency`
	endActivity = `UPDATE activities SET ended = true WHERE activity_id = $1`

	insertDeadLetter = `INSERT INTO dead_letters (body, reason, at_ms) VALUES ($1, $2, $3) RETURNING id`
	dropDeadLetters  = `DELETE FROM dead_letters WHERE id <= $1`

	selectOrder = `SELECT ` + orderColumns + ` ` + orderTables + ` WHERE r.id = $1`
	payOrder    = `UPDATE orders SET status = 'PAID', payment_id = $2, effect_due_ms = $3 WHERE id = $1 AND status = 'CREATED'`
	paidElse    = `SELECT count(*) FROM orders WHERE payment_id = $2 AND id <> $1`
	cancelOrder = `UPDATE orders SET status = 'CANCELLED', effect_due_ms = $2 WHERE id = $1 AND status = 'CREATED'`
	unpaid      = `SELECT id, activity_id, sku_id FROM orders WHERE status = 'CREATED' AND pay_before_ms <= $1 ORDER BY pay_before_ms, id LIMIT $2`
	effectsDue  = `SELECT ` + verdictColumns + ` ` + orderTables + ` WHERE r.effect_due_ms IS NOT NULL ORDER BY r.effect_due_ms, r.id LIMIT $1`

	verdictOf = `SELECT ` + verdictColumns + ` ` + verdictTables + `
		WHERE o.activity_id = $1 AND o.sku_id = $2 AND o.user_id = $3 AND o.request_id = $4`
	isLive = `SELECT CASE WHEN r.status IN ('CREATED', 'PAID') THEN 1 ELSE 0 END
		FROM outcomes o LEFT JOIN orders r ON r.reservation_id = o.reservation_id
		WHERE o.reservation_id = $1 AND o.activity_id = $2 AND o.sku_id = $3`
	settledVerdicts = `SELECT ` + verdictColumns + ` ` + verdictTables + `
		WHERE o.activity_id = $1 AND o.sku_id = $2 AND o.reservation_id > $3 AND (o.outcome <> 'CREATED' OR r.status = 'CANCELLED')
		ORDER BY o.reservation_id LIMIT $4`
	liveVerdicts = `SELECT ` + verdictColumns + ` ` + orderTables + `
		WHERE o.activity_id = $1 AND o.sku_id = $2 AND o.reservation_id > $3 AND r.status <> 'CANCELLED'
		ORDER BY o.reservation_id LIMIT $4`

	tallySKU      = `SELECT total, sold FROM skus WHERE activity_id = $1 AND sku_id = $2`
	tallyOutcomes = `SELECT outcome, count(*) FROM outcomes WHERE activity_id = $1 AND sku_id = $2 GROUP BY outcome`
	tallyOrders   = `SELECT reservation_id, user_id, status, CASE WHEN effect_due_ms IS NULL THEN 0 ELSE 1 END
		FROM orders WHERE activity_id = $1 AND sku_id = $2`
	tallyDeadLetters = `SELECT count(*) FROM dead_letters`

	createMigrations = `CREATE TABLE IF NOT EXISTS schema_migrations (version bigint PRIMARY KEY, name text NOT NULL, digest text NOT NULL)`
	selectMigrations = `SELECT version, digest FROM schema_migrations ORDER BY version`
	insertMigration  = `INSERT INTO schema_migrations (version, name, digest) VALUES ($1, $2, $3)`
)

// deleteActivity empties the tables of one activity.
var deleteActivity = [...]string{
	`DELETE FROM orders WHERE activity_id = $1`,
	`DELETE FROM outcomes WHERE activity_id = $1`,
	`DELETE FROM skus WHERE activity_id = $1`,
	`DELETE FROM activities WHERE activity_id = $1`,
}

// statements are those about many things at once, in a dialect.
type statements struct {
	lockSKUs, lockActivitySKUs         string
	verdictsOfBuyers, ordersOf         string
	insertOutcomes, insertOrders       string
	addSold, cancelOrders, clearEffect string
}

func newStatements(d Dialect) statements {
	const skuColumns = `SELECT s.activity_id, s.sku_id, s.total, s.sold, s.price_amount, s.price_currency,
		a.pay_within_ms, a.rebuy_after_cancel, a.closes_ms FROM skus s JOIN activities a ON a.activity_id = s.activity_id `
	const sorted = ` ORDER BY s.activity_id, s.sku_id`
	return statements{
		lockSKUs: skuColumns + `JOIN ` + d.Rows("activity_id bigint", "sku_id bigint") +
			` ON s.activity_id = m.activity_id AND s.sku_id = m.sku_id` + sorted + d.LockSKUs,
		lockActivitySKUs: skuColumns + `WHERE s.activity_id = $1` + sorted + d.LockSKUs,

		verdictsOfBuyers: `SELECT ` + verdictColumns + ` FROM ` + d.Rows("activity_id bigint", "sku_id bigint", "user_id bigint") +
			d.Lookup("CROSS JOIN", "outcomes o", "o.activity_id = m.activity_id AND o.sku_id = m.sku_id AND o.user_id = m.user_id") +
			d.Lookup("CROSS JOIN", "activities a", "a.activity_id = o.activity_id") +
			d.Lookup("LEFT JOIN", "orders r", "r.reservation_id = COALESCE(o.existing_reservation_id, o.reservation_id)") +
			` ORDER BY o.created_ms, o.reservation_id`,
		ordersOf: `SELECT ` + orderColumns + ` FROM ` + d.Rows("id bigint") +
			d.Lookup("CROSS JOIN", "orders r", "r.id = m.id") +
			d.Lookup("CROSS JOIN", "outcomes o", "o.reservation_id = r.reservation_id") +
			d.Lookup("CROSS JOIN", "activities a", "a.activity_id = r.activity_id") + ` ORDER BY r.id`,

		insertOutcomes: `INSERT INTO outcomes
			(reservation_id, activity_id, sku_id, user_id, request_id, body_hash, quantity, created_ms, outcome, existing_reservation_id, decided_ms)
			SELECT m.reservation_id, m.activity_id, m.sku_id, m.user_id, m.request_id, m.body_hash, m.quantity, m.created_ms, m.outcome,
				NULLIF(m.existing_reservation_id, ''), m.decided_ms FROM ` +
			d.Rows("reservation_id text", "activity_id bigint", "sku_id bigint", "user_id bigint", "request_id text", "body_hash text",
				"quantity bigint", "created_ms bigint", "outcome text", "existing_reservation_id text", "decided_ms bigint") +
			` WHERE true ON CONFLICT (reservation_id) DO NOTHING RETURNING reservation_id`,
		insertOrders: `INSERT INTO orders
			(reservation_id, activity_id, sku_id, user_id, quantity, price_amount, price_currency, created_ms, pay_before_ms, status)
			SELECT m.reservation_id, m.activity_id, m.sku_id, m.user_id, m.quantity, m.price_amount, m.price_currency,
				m.created_ms, m.pay_before_ms, 'CREATED' FROM ` +
			d.Rows("reservation_id text", "activity_id bigint", "sku_id bigint", "user_id bigint", "quantity bigint",
				"price_amount text", "price_currency text", "created_ms bigint", "pay_before_ms bigint") +
			` RETURNING id, reservation_id`,
		addSold: `UPDATE skus SET sold = skus.sold + m.units FROM ` + d.Rows("activity_id bigint", "sku_id bigint", "units bigint") +
			` WHERE skus.activity_id = m.activity_id AND skus.sku_id = m.sku_id`,

		cancelOrders: `UPDATE orders SET status = 'CANCELLED', effect_due_ms = m.now_ms FROM ` + d.Rows("id bigint", "now_ms bigint") +
			` WHERE orders.id = m.id AND orders.status = 'CREATED' RETURNING orders.id, orders.activity_id, orders.sku_id, orders.quantity`,
		clearEffect: `UPDATE orders SET effect_due_ms = NULL FROM ` + d.Rows("reservation_id text", "status text") +
			` WHERE orders.reservation_id = m.reservation_id AND orders.status = m.status`,
	}
}
