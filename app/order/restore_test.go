package order_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

// consumedQueue is a queue of which everything sent before has been consumed.
type consumedQueue struct{ admission.Queue }

func (consumedQueue) Consumed(context.Context, time.Time) (bool, error) { return true, nil }

func (s *system) restorer() *order.Restorer {
	r := order.NewReconciler(&s.stock, &s.orders, order.ReconcilerConfig{}, s.metrics, discard())
	return order.NewRestorer(&s.stock, consumedQueue{&s.queue}, r, s.metrics, discard())
}

// TestRestoreOfStockKeys: whatever key of a SKU is lost or corrupt by itself in the middle of
// a sale, the leader closes the SKU, and opens it with every unit accounted for. Another SKU
// of the same step stays open.
func TestRestoreOfStockKeys(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(t *testing.T, s *system)
		steps int // of the leader, one a second, until it must be closed
	}{
		"rsv lost":                   {func(t *testing.T, s *system) { s.del(t, "rsv") }, 1},
		"buyers lost":                {func(t *testing.T, s *system) { s.del(t, "buyers") }, 1},
		"stock lost":                 {func(t *testing.T, s *system) { s.del(t, "stock") }, 1},
		"rsv and buyers lost":        {func(t *testing.T, s *system) { s.del(t, "rsv"); s.del(t, "buyers") }, 20},
		"remaining is no number":     {func(t *testing.T, s *system) { s.hset(t, "remaining", "abc") }, 1},
		"epoch is no number":         {func(t *testing.T, s *system) { s.hset(t, "stock_epoch", "1e") }, 1},
		"remaining is a wrong one":   {func(t *testing.T, s *system) { s.hset(t, "remaining", 11) }, 20},
		"total is a wrong one":       {func(t *testing.T, s *system) { s.hset(t, "total", 600) }, 20},
		"a record cannot be read":    {scribbleRecord, 0}, // told by reconcile, and no reason to close
		"nothing is lost or corrupt": {func(*testing.T, *system) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := openEmbedded(t, 50)
			other := s.another(t)
			both := []admission.Activity{s.activity, other.activity}
			p := s.placer(t, nil)
			buy := func(from, to int) {
				t.Helper()
				for i := from; i < to; i++ {
					if d := p.Place(t.Context(), s.request(i, 1, 1)); d.Refused() {
						t.Logf("user %d: %s", i, d.Outcome) // fails closed
					}
				}
			}
			buy(0, 7)
			s.recover(t, settled())
			before, err := s.stock.Snapshot(t.Context(), s.ref())
			if err != nil {
				t.Fatal(err)
			}
			c.harm(t, s)
			buy(7, 13)
			var messages []admission.OrderMessage
			for i := 7; i < 13; i++ {
				if _, err := s.stock.Record(t.Context(), s.ref(), s.request(i, 1, 1).UserID, s.request(i, 1, 1).RequestID); err == nil {
					messages = append(messages, s.message(s.request(i, 1, 1)))
				}
			}
			if len(messages) > 0 { // the consumer's part, its effects still under way
				if _, err := s.orders.Decide(t.Context(), messages, time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			r := s.restorer()
			for range max(c.steps, 20) {
				if _, err := r.Step(t.Context(), both, 1); err != nil && name != "a record cannot be read" {
					t.Fatal(err)
				}
				if after, err := s.stock.Snapshot(t.Context(), s.ref()); c.steps > 0 && err == nil && after.Open && after.Incarnation > before.Incarnation {
					break
				}
				if c.steps == 1 {
					t.Fatal("not restored at the first look")
				}
			}
			after, err := s.stock.Snapshot(t.Context(), s.ref())
			if err != nil || !after.Open || (after.Incarnation > before.Incarnation) != (c.steps > 0) {
				t.Fatalf("%+v, %v after %+v", after, err, before)
			}
			if n, err := other.stock.Snapshot(t.Context(), other.ref()); err != nil || n.Incarnation != 1 {
				t.Errorf("the other SKU: %+v, %v", n, err)
			}
			if name == "a record cannot be read" {
				return
			}
			s.recover(t, settled())
			stock, sql := s.agree(t)
			if want := 7 + int64(len(messages)); sql.Created != want || stock.Remaining != 50-want || stock.Buyers != want {
				t.Errorf("stock %+v, SQL %+v; want %d created", stock, sql, want)
			}
			if d := p.Place(t.Context(), s.request(20, 1, 1)); d.Refused() {
				t.Errorf("the sale does not go on: %+v", d)
			}
		})
	}
}

func scribbleRecord(t *testing.T, s *system) {
	id := s.message(s.request(0, 1, 1)).ReservationID
	if err := s.client.HSet(t.Context(), "inv:"+s.ref().Tag()+":rsv", id, "scribbled over").Err(); err != nil {
		t.Fatal(err)
	}
}
