package bench

import (
	"context"
	"crypto/rand"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-io/sluice/adapters/postgres"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/bench/pairs"
)

// BenchmarkOrders compares the consumer's transaction over 200 messages (outcomes, orders and the guarded stock, on
// the real schema with all its indexes, every commit on disk) with doing the same for each message alone, and with the
// cheapest thing that leaves an order: one INSERT that commits by itself, without outcome and stock. All use one
// connection. The gate is 15 times the orders per second, the goal 22.
func BenchmarkOrders(b *testing.B) {
	address := orderSchema(b)
	batches, decided := orderDecide(b, address, 200, 7300000000000000000), orderDecide(b, address, 1, 8300000000000000000)
	inserts := orderInserts(b, address)
	for name, single := range map[string]pairs.Op{"decided": decided, "inserted": inserts} {
		b.Run("200 at once against singly "+name, func(b *testing.B) {
			var result pairs.Result
			for b.Loop() {
				result = pairs.Plan{Pairs: 15, Run: 250 * time.Millisecond}.Measure(pairs.Row{
					Subject: func() pairs.Op { return batches }, Baseline: func() pairs.Op { return single },
				})
			}
			b.ReportMetric(1/result.Value, "times")
			b.ReportMetric(rate(batches), "batched/s")
			b.ReportMetric(rate(single), "singly/s")
			b.ReportMetric(0, "ns/op") // says nothing: an operation is the whole comparison
		})
	}
}

func rate(op pairs.Op) float64 {
	const n = 2000
	start := time.Now()
	op(n)
	return n / time.Since(start).Seconds()
}

// orderSchema makes a schema of its own with an activity that never sells out.
func orderSchema(b *testing.B) string {
	b.Helper()
	servers.Need(b, servers.Postgres())
	name := "bench_" + strings.ToLower(rand.Text())
	conn, err := pgx.Connect(b.Context(), servers.Postgres())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Exec(b.Context(), "CREATE SCHEMA "+name); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE"); err != nil {
			b.Error(err)
		}
		_ = conn.Close(context.Background())
	})
	u, err := url.Parse(servers.Postgres())
	if err != nil {
		b.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

var ordersAt = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

// orderDecide decides size messages at once, of users from first on.
func orderDecide(b *testing.B, address string, size int, first int64) pairs.Op {
	b.Helper()
	store, err := postgres.Open(address, postgres.Config{MaxConns: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	if err := store.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	activity := strconv.Itoa(10000 + size) // of its own: its SKU's row is locked by nobody else
	_, err = store.PublishActivity(b.Context(), admission.Activity{
		ID: activity, Version: 1, PathID: "path-" + activity, Name: "Sale", OpensAt: ordersAt, ClosesAt: ordersAt.Add(time.Hour),
		SKUs:        []admission.SKU{{ID: "90001", Name: "One", Stock: admission.MaxStock, LimitPerUser: 1, Price: admission.Money{Amount: "9.90", Currency: "CNY"}}},
		Fairness:    admission.Fairness{Mode: admission.FairnessFIFO},
		MaxAttempts: 1, PayWithin: time.Minute, PublishedAt: ordersAt,
	})
	if err != nil {
		b.Fatal(err)
	}
	user := first
	return func(n int) {
		for n > 0 {
			batch := make([]admission.OrderMessage, min(n, size))
			n -= len(batch)
			for i := range batch {
				user++
				batch[i] = admission.OrderMessage{
					SchemaVersion: 1, ReservationID: reservation(user), RequestID: "req_" + strconv.FormatInt(user, 10), ActivityID: activity, SKUID: "90001",
					UserID: strconv.FormatInt(user, 10), Quantity: 1, BodyHash: "sha256:9f86d081884c7d659a2feaa0c55ad015", CreatedAt: ordersAt,
				}
			}
			verdicts, err := store.Decide(b.Context(), batch, ordersAt)
			if err != nil || verdicts[0].Outcome != admission.VerdictCreated {
				b.Fatalf("%v %+v", err, verdicts)
			}
		}
	}
}

// orderInserts writes orders that nobody decided.
func orderInserts(b *testing.B, address string) pairs.Op {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	const insert = `INSERT INTO orders (reservation_id, activity_id, sku_id, user_id, quantity, price_amount, price_currency,
		created_ms, pay_before_ms, status) VALUES ($1, 1, 90001, $2, 1, '9.90', 'CNY', $3, $4, 'CREATED') ON CONFLICT DO NOTHING`
	user := int64(9000000000000000000)
	return func(n int) {
		for range n {
			user++
			tag, err := conn.Exec(b.Context(), insert, reservation(user), user, ordersAt.UnixMilli(), ordersAt.UnixMilli())
			if err != nil || tag.RowsAffected() != 1 {
				b.Fatal(err)
			}
		}
	}
}

// reservation spreads like the real one: neighbours in time are no neighbours in the index.
func reservation(user int64) string {
	return "r_" + strconv.FormatUint(uint64(user)*0x9e3779b97f4a7c15, 36) + "_padding_"
}
