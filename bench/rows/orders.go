package rows

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-io/sluice/adapters/postgres"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/bench/pairs"
)

// Orders returns the row of the consumer's transaction in PostgreSQL: what one order costs in
// a batch of 200, on the real schema with all its indexes, with its outcome, under the lock of
// the SKU's row and with its guarded stock, against the cheapest thing that leaves an order:
// one INSERT that commits by itself. Both use one connection, and every commit is on disk. The
// aim is 15 times as many orders a second, better 22 times: a fifteenth of the time for each.
func Orders() []pairs.Row {
	return []pairs.Row{{
		Name: "order into PostgreSQL, batch of 200", Against: "single INSERT, wall time (gate 1/15, goal 1/22)", Gate: 1.0 / 15, Goal: 1.0 / 22,
		Open: openOrders,
	}}
}

const (
	orderBatch    = 200 // what the consumer gathers at most
	orderActivity = "10001"
	orderSKU      = "90001"
)

func openOrders() (pairs.Bed, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, servers.Postgres())
	if err != nil {
		return pairs.Bed{}, fmt.Errorf("no PostgreSQL at %s: run `make servers-up`", must(url.Parse(servers.Postgres())).Host)
	}
	schema := "bench_" + strings.ToLower(rand.Text())
	must(conn.Exec(ctx, "CREATE SCHEMA "+schema))
	must(conn.Exec(ctx, "SET search_path TO "+schema))
	store := must(postgres.Open(within(servers.Postgres(), schema), postgres.Config{MaxConns: 1}))
	if err := store.Migrate(ctx); err != nil {
		panic(err)
	}
	must(store.PublishActivity(ctx, admission.Activity{
		ID: orderActivity, Version: 1, PathID: "p_0123456789", Name: "Sale", OpensAt: sale, ClosesAt: sale.Add(time.Hour),
		SKUs:        []admission.SKU{{ID: orderSKU, Name: "One", Stock: admission.MaxStock, LimitPerUser: 1, Price: admission.Money{Amount: "9.90", Currency: "CNY"}}},
		Fairness:    admission.Fairness{Mode: admission.FairnessFIFO},
		MaxAttempts: 1, PayWithin: time.Minute, PublishedAt: sale,
	}))
	users := int64(7_300_000_000_000_000_000) // of both, so that neither meets the other's
	next := func() int64 { users++; return users }
	start := time.Now()
	return pairs.Bed{
		Subject: decide(store, next), Baseline: insert(conn, next),
		Clock: func() time.Duration { return time.Since(start) },
		Run:   15 * time.Millisecond, Pairs: 101,
		Close: func() {
			_ = store.Close()
			_, _ = conn.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE")
			_ = conn.Close(context.Background())
		},
	}, nil
}

// within is the URL of a database with another schema in front.
func within(database, schema string) string {
	u := must(url.Parse(database))
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func decide(store admission.Orders, next func() int64) pairs.Op {
	return func(n int) {
		for n > 0 {
			batch := make([]admission.OrderMessage, min(n, orderBatch))
			n -= len(batch)
			for i := range batch {
				user := next()
				batch[i] = admission.OrderMessage{
					SchemaVersion: 1, ReservationID: reservation(user), RequestID: "req_" + strconv.FormatInt(user, 10),
					ActivityID: orderActivity, SKUID: orderSKU, UserID: strconv.FormatInt(user, 10), Quantity: 1,
					BodyHash: "sha256:9f86d081884c7d659a2feaa0c55ad015", CreatedAt: sale,
				}
			}
			if verdicts := must(store.Decide(context.Background(), batch, sale)); verdicts[0].Outcome != admission.VerdictCreated {
				panic(fmt.Sprintf("decided %+v", verdicts[0])) // the row would measure something else
			}
		}
	}
}

// insert writes orders that nobody decided.
func insert(conn *pgx.Conn, next func() int64) pairs.Op {
	const statement = `INSERT INTO orders (reservation_id, activity_id, sku_id, user_id, quantity, price_amount, price_currency,
		created_ms, pay_before_ms, status) VALUES ($1, 10002, 90001, $2, 1, '9.90', 'CNY', $3, $4, 'CREATED')`
	return func(n int) {
		for range n {
			user := next()
			must(conn.Exec(context.Background(), statement, reservation(user), user, sale.UnixMilli(), sale.UnixMilli()))
		}
	}
}

// reservation spreads like the real one: neighbours in time are no neighbours in the index.
func reservation(user int64) string {
	return "r_" + strconv.FormatUint(uint64(user)*0x9e3779b97f4a7c15, 36) + "_padding_"
}
