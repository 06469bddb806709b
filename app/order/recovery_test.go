package order_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

func TestRecovery(t *testing.T) {
	t.Run("unpaid orders are cancelled and their units return", func(t *testing.T) {
		s := openEmbedded(t, 10)
		r := s.request(1, 1, 3)
		if d := s.placer(t, nil).Place(t.Context(), r); d.Refused() {
			t.Fatalf("%+v", d)
		}
		s.recover(t, settled())
		if report := s.recover(t, time.Now().Add(s.activity.PayWithin+time.Minute)); report.Unpaid != 1 {
			t.Errorf("%+v: want one unpaid", report)
		}
		if got := s.status(t, r); got != admission.PollOrderCancelled {
			t.Errorf("status %s", got)
		}
		if stock, sql := s.agree(t); stock.Remaining != 10 || sql.EffectsDue != 0 {
			t.Errorf("stock %+v, SQL %+v", stock, sql)
		}
	})

	t.Run("one SKU without a stock does not hold up the effects of another", func(t *testing.T) {
		s := openEmbedded(t, 10)
		lost := s.another(t)
		cancels := []func(){cancelWithoutEffect(t, lost, 1), cancelWithoutEffect(t, s, 2)}
		for _, cancel := range cancels {
			cancel()
		}
		lost.del(t, "stock")
		report, err := s.recovery().Step(t.Context(), time.Now(), []admission.Activity{lost.activity, s.activity})
		if err == nil || report.Effects != 1 || report.Failed != 1 {
			t.Errorf("%+v, %v: want one carried and one failure that is told", report, err)
		}
		if stock, _ := s.tallies(t); stock.Remaining != 10 {
			t.Errorf("stock %+v", stock)
		}
		// once its activity has ended and its keys are removed, there is nothing to carry it to
		lost.activity.Ended = true
		if report, err = s.recovery().Step(t.Context(), time.Now(), []admission.Activity{lost.activity, s.activity}); err != nil || report.Effects != 1 {
			t.Errorf("%+v, %v: want the ended activity's effect cleared", report, err)
		}
	})

	t.Run("a message that SQL refuses waits and is counted, and holds up nobody", func(t *testing.T) {
		s := openEmbedded(t, 10)
		s.stock.marks = func() error { return admission.ErrUnavailable } // a late mark would make it due again
		p := s.placer(t, nil)
		for i := range 5 {
			if d := p.Place(t.Context(), s.request(i, 1, 1)); d.Refused() {
				t.Fatalf("%+v", d)
			}
		}
		bad := s.message(s.request(2, 1, 1)).ReservationID
		s.orders.decide = func(ms []admission.OrderMessage) error {
			for _, m := range ms {
				if m.ReservationID == bad {
					return errors.New("a broken row")
				}
			}
			return nil
		}
		now := settled()
		report, err := s.recovery().Step(t.Context(), now, []admission.Activity{s.activity})
		if err != nil || report.Decided != 4 || report.Failed != 1 {
			t.Errorf("%+v, %v", report, err)
		}
		report, err = s.recovery().Step(t.Context(), now, []admission.Activity{s.activity})
		if err != nil || report.Decided+report.Failed != 0 {
			t.Errorf("%+v, %v: its due must have moved back", report, err)
		}
		s.orders.decide = nil
		s.recover(t, settled().Add(time.Minute))
		if _, sql := s.agree(t); sql.Created != 5 {
			t.Errorf("SQL %+v", sql)
		}
	})

	t.Run("an unreadable record is told and put aside, and holds up nobody", func(t *testing.T) {
		s := openEmbedded(t, 10)
		s.stock.marks = func() error { return admission.ErrUnavailable } // a late mark would make it due again
		p := s.placer(t, nil)
		for i := range 5 {
			if d := p.Place(t.Context(), s.request(i, 1, 1)); d.Refused() {
				t.Fatalf("%+v", d)
			}
		}
		bad := s.message(s.request(2, 1, 1)).ReservationID
		rsv := "inv:" + s.ref().Tag() + ":rsv"
		record := s.client.HGet(t.Context(), rsv, bad).Val()
		s.client.HSet(t.Context(), rsv, bad, "LIVE|scribbled over")
		now := settled()
		report, err := s.recovery().Step(t.Context(), now, []admission.Activity{s.activity})
		if err != nil || report.Decided != 4 || report.Failed != 1 {
			t.Errorf("%+v, %v: want four decided and the one counted", report, err)
		}
		if report, err = s.recovery().Step(t.Context(), settled(), []admission.Activity{s.activity}); err != nil || report.Decided+report.Failed != 0 {
			t.Errorf("%+v, %v: its due must have moved back", report, err)
		}
		s.client.HSet(t.Context(), rsv, bad, record)
		s.recover(t, settled().Add(time.Minute))
		if _, sql := s.agree(t); sql.Created != 5 {
			t.Errorf("SQL %+v", sql)
		}
	})

	t.Run("an acknowledged message is not due before the ttl", func(t *testing.T) {
		s := openEmbedded(t, 10)
		r := s.request(1, 1, 1)
		if d := s.placer(t, nil).Place(t.Context(), r); d.Refused() {
			t.Fatalf("%+v", d)
		}
		eventually(t, time.Minute, "mark", func() bool {
			due, err := s.stock.Due(t.Context(), s.ref(), r.Now.Add(10*time.Second), 10)
			return err == nil && len(due) == 0
		})
		if due, err := s.stock.Due(t.Context(), s.ref(), time.Now().Add(16*time.Second), 10); err != nil || len(due) != 1 {
			t.Errorf("after the ttl: %v, %v", due, err)
		}
	})
}

// another is a second activity on the same stores.
func (s *system) another(t *testing.T) *system {
	t.Helper()
	return open(t, s.client, s.queue.Queue, notClosed{s.orders.Orders}, 10)
}

// notClosed leaves the closing to whom the orders belong.
type notClosed struct{ admission.Orders }

func (notClosed) Close() error { return nil }

// cancelWithoutEffect makes an order; what it returns cancels it as a process does that
// dies before the effect.
func cancelWithoutEffect(t *testing.T, s *system, user int) func() {
	t.Helper()
	r := s.request(user, 1, 1)
	if d := s.placer(t, nil).Place(t.Context(), r); d.Refused() {
		t.Fatalf("%+v", d)
	}
	s.recover(t, settled())
	record, d := s.results().Request(t.Context(), r.UserID, r.RequestID, s.ref())
	if d.Refused() {
		t.Fatalf("%+v", d)
	}
	return func() {
		s.stock.apply = func([]admission.Verdict) error { return admission.ErrUnavailable }
		if _, d := s.service().Cancel(t.Context(), r.UserID, record.OrderID); d.Refused() {
			t.Fatalf("%+v: SQL has cancelled, whatever the stock says", d)
		}
		s.stock.apply = nil
	}
}

func TestService(t *testing.T) {
	s := openEmbedded(t, 10)
	r := s.request(1, 1, 2)
	if d := s.placer(t, nil).Place(t.Context(), r); d.Refused() {
		t.Fatalf("%+v", d)
	}
	s.recover(t, settled())
	record, _ := s.results().Request(t.Context(), r.UserID, r.RequestID, s.ref())
	service, ctx := s.service(), t.Context()
	pay := func(id, amount string) admission.Outcome {
		_, d := service.Pay(ctx, record.OrderID, admission.Payment{ID: id, Amount: admission.Money{Amount: amount, Currency: "CNY"}})
		return d.Outcome
	}
	if o, d := service.Order(ctx, r.UserID, record.OrderID); d.Refused() || o.ID != record.OrderID || o.Quantity != 2 {
		t.Errorf("%+v, %+v", o, d)
	}
	for _, c := range []struct {
		what      string
		got, want admission.Outcome
	}{
		{"somebody else's order", second(service.Order(ctx, "70009999", record.OrderID)), admission.NotFound},
		{"no order", second(service.Order(ctx, r.UserID, "123")), admission.NotFound},
		{"somebody else's cancel", second(service.Cancel(ctx, "70009999", record.OrderID)), admission.NotFound},
		{"a wrong amount", pay("pay_one_", "9.90"), admission.InvalidArgument},
		{"the amount", pay("pay_one_", "19.80"), admission.Pass},
		{"the same payment", pay("pay_one_", "19.80"), admission.Pass},
		{"another payment", pay("pay_two_", "19.80"), admission.OrderStateConflict},
		{"cancel of a paid order", second(service.Cancel(ctx, r.UserID, record.OrderID)), admission.OrderStateConflict},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	if stock, sql := s.agree(t); stock.Paid != 2 || sql.EffectsDue != 0 {
		t.Errorf("stock %+v, SQL %+v: the effect follows the commit", stock, sql)
	}
}

func second(_ admission.Order, d admission.Decision) admission.Outcome { return d.Outcome }

func TestResults(t *testing.T) {
	ask := func(t *testing.T, s *system, r *admission.Request, look order.Look) admission.Outcome {
		t.Helper()
		results := order.NewResults(&s.stock, &s.orders, func(admission.SKURef) order.Look { return look })
		record, d := results.Request(t.Context(), r.UserID, r.RequestID, s.ref())
		if d.Refused() {
			return d.Outcome
		}
		return record.Outcome
	}
	open := order.Look{Selling: true, Open: true}
	prepare := func(t *testing.T) (*system, *admission.Request, *admission.Request) {
		t.Helper()
		s := openEmbedded(t, 10)
		known, stranger := s.request(1, 1, 1), s.request(2, 1, 1)
		if d := s.placer(t, nil).Place(t.Context(), known); d.Refused() {
			t.Fatalf("%+v", d)
		}
		s.recover(t, settled())
		return s, known, stranger
	}

	t.Run("the store knows", func(t *testing.T) {
		s, known, stranger := prepare(t)
		if got := ask(t, s, known, open); got != admission.PollOrderCreated {
			t.Errorf("known: %s", got)
		}
		if got := ask(t, s, stranger, open); got != admission.NotFound {
			t.Errorf("stranger: %s", got)
		}
		foreign := s.request(2, 1, 1)
		foreign.RequestID = known.RequestID
		if got := ask(t, s, foreign, open); got != admission.NotFound {
			t.Errorf("S11d somebody else's request: %s", got)
		}
	})

	t.Run("a store that forgot asks SQL", func(t *testing.T) {
		s, known, _ := prepare(t)
		s.del(t, "buyers")
		s.del(t, "req:"+known.UserID+":"+known.RequestID)
		if got := ask(t, s, known, open); got != admission.PollOrderCreated {
			t.Errorf("known: %s", got)
		}
	})

	t.Run("while the SKU is not open a miss in both is no 404", func(t *testing.T) {
		s, known, stranger := prepare(t)
		s.hset(t, "state", "CLOSED")
		for _, look := range []order.Look{open, {Selling: true}} { // the instance may not know yet
			if got := ask(t, s, known, look); got != admission.PollOrderCreated {
				t.Errorf("known: %s", got)
			}
			if got := ask(t, s, stranger, look); got != admission.DependencyUnavailable {
				t.Errorf("stranger: %s", got)
			}
		}
	})

	t.Run("while the SKU is not open SQL is believed before the store", func(t *testing.T) {
		s := openEmbedded(t, 10)
		r := s.request(1, 1, 1)
		if d := s.placer(t, nil).Place(t.Context(), r); d.Refused() {
			t.Fatalf("%+v", d)
		}
		if _, err := s.orders.Decide(t.Context(), []admission.OrderMessage{s.message(r)}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, s, r, open); got != admission.PollQueued {
			t.Errorf("open: %s, want what the store says", got)
		}
		if got := ask(t, s, r, order.Look{Selling: true}); got != admission.PollOrderCreated {
			t.Errorf("not open: %s, want SQL's verdict", got)
		}
	})

	t.Run("a lost stock is no 404", func(t *testing.T) {
		s, _, stranger := prepare(t)
		s.del(t, "stock")
		if got := ask(t, s, stranger, open); got != admission.DependencyUnavailable {
			t.Errorf("stranger: %s", got)
		}
		if got := ask(t, s, stranger, order.Look{}); got != admission.NotFound {
			t.Errorf("stranger of an ended activity: %s", got)
		}
	})

	t.Run("the store away: SQL answers what it knows", func(t *testing.T) {
		s, known, stranger := prepare(t)
		_ = s.client.Close()
		if got := ask(t, s, known, open); got != admission.PollOrderCreated {
			t.Errorf("known: %s", got)
		}
		if got := ask(t, s, stranger, open); got != admission.DependencyUnavailable {
			t.Errorf("stranger: %s", got)
		}
	})
}

func TestReconcile(t *testing.T) {
	s := openEmbedded(t, 10)
	p := s.placer(t, nil)
	for i := range 6 {
		if d := p.Place(t.Context(), s.request(i, 1, 1)); d.Refused() {
			t.Fatalf("%+v", d)
		}
	}
	r := order.NewReconciler(&s.stock, &s.orders, order.ReconcilerConfig{Page: 2}, s.metrics, discard())
	now := time.Now()
	pass := func(now time.Time) (lasting, fresh []order.Difference) {
		t.Helper()
		lasting, fresh, err := r.Pass(t.Context(), s.ref(), now)
		if err != nil {
			t.Fatal(err)
		}
		return lasting, fresh
	}
	if lasting, fresh := pass(now); len(lasting) != 0 || len(fresh) != 6 {
		t.Errorf("under way: %d lasting, %d fresh; want 0 and 6", len(lasting), len(fresh))
	}
	s.recover(t, settled())
	now = now.Add(r.Settle())
	if lasting, fresh := pass(now); len(lasting)+len(fresh) != 0 {
		t.Errorf("settled: %v, %v", lasting, fresh)
	}

	// a failover: two reservations are lost, a third has gone back to LIVE
	lost := []string{s.message(s.request(0, 1, 1)).ReservationID, s.message(s.request(1, 1, 1)).ReservationID}
	key := "inv:" + s.ref().Tag() + ":rsv"
	if err := s.client.HDel(t.Context(), key, lost...).Err(); err != nil {
		t.Fatal(err)
	}
	s.hset(t, "remaining", 6)
	if lasting, fresh := pass(now); len(lasting) != 0 || len(fresh) != 2 {
		t.Errorf("first pass: %v, %v", lasting, fresh)
	}
	if lasting, _ := pass(now.Add(r.Settle() / 2)); len(lasting) != 0 {
		t.Errorf("too soon: %v", lasting)
	}
	lasting, _ := pass(now.Add(r.Settle()))
	if len(lasting) != 2 || lasting[0].Kind != order.KindNoRecord {
		t.Errorf("second pass: %v", lasting)
	}
	applied, err := r.Repair(t.Context(), s.ref())
	if err != nil || applied != 6 {
		t.Errorf("%d applied, %v", applied, err)
	}
	if stock, _ := s.agree(t); stock.Remaining != 4 || stock.Created != 6 {
		t.Errorf("stock %+v", stock)
	}
	if lasting, fresh := pass(now.Add(2 * r.Settle())); len(lasting)+len(fresh) != 0 {
		t.Errorf("repaired: %v, %v", lasting, fresh)
	}

	// a unit that nobody holds
	s.hset(t, "remaining", 3)
	pass(now)
	lasting, _ = pass(now.Add(r.Settle()))
	if len(lasting) != 1 || lasting[0].Kind != order.KindUnits || lasting[0].Units != 1 {
		t.Errorf("a lost unit: %v", lasting)
	}
	s.hset(t, "remaining", 4)
}
