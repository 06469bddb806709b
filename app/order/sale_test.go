package order_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

// TestSale is a sale of 600 units to 1,000 users while everything goes wrong between
// the steps: sends that are dropped, sent twice or acknowledged as unknown (M01), marks
// that are lost, transactions whose answer is lost, consumers that die between the
// commit and the effect (S05). In the end nothing is lost, invented or sold twice.
func TestSale(t *testing.T) {
	everywhere(t, 600, func(t *testing.T, s *system) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		bad := newChance(seed)
		s.queue.send = func(send func() error) error {
			switch {
			case bad.percent(10): // killed between the reservation and the send
				return admission.ErrUnavailable
			case bad.percent(10): // stored, answered by something other than SEND_OK
				_ = send()
				return admission.ErrUnknownResult
			case bad.percent(10): // the client's retry
				_ = send()
			}
			return send()
		}
		s.stock.marks = func() error { return unlucky(bad, 20) }
		s.stock.apply = func([]admission.Verdict) error { return unlucky(bad, 20) }
		s.orders.decide = func([]admission.OrderMessage) error { return unlucky(bad, 10) }
		s.orders.after = func() error { return unlucky(bad, 10) }

		p := s.placer(t, nil)
		stop := s.consume(t, order.ConsumerConfig{})
		requests := make([]*admission.Request, 1000)
		decisions := make([]admission.Decision, len(requests))
		var all sync.WaitGroup
		turn := make(chan struct{}, 64)
		start := time.Now()
		for i := range requests {
			requests[i] = s.request(i, 1, 1)
			all.Go(func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				decisions[i] = p.Place(t.Context(), requests[i])
			})
		}
		all.Wait()
		t.Logf("1,000 placed in %s", time.Since(start))

		queued, soldOut := 0, 0
		for i, d := range decisions {
			switch d.Outcome {
			case admission.Pass:
				queued++
				if requests[i].Record.Outcome != admission.PollQueued || requests[i].Record.ReservationID == "" {
					t.Errorf("user %d: record %+v", i, requests[i].Record)
				}
			case admission.SoldOut:
				soldOut++
			default:
				t.Errorf("user %d: %+v", i, d)
			}
		}
		if queued != 600 || soldOut != 400 {
			t.Fatalf("%d queued, %d sold out: want 600 and 400", queued, soldOut)
		}
		s.tallies(t) // conserved while everything is under way

		eventually(t, 2*time.Minute, "order for those whose message arrived", func() bool {
			_, sql := s.tallies(t)
			return sql.Created >= 400
		})
		// the faults end; recovery finishes what nobody finished
		bad.stop()
		report := s.recover(t, settled())
		t.Logf("recovery: %+v", report)
		stock, sql := s.agree(t)
		if sql.Created != 600 || sql.Users != 600 || sql.Sold != 600 || stock.Created != 600 || stock.Remaining != 0 || stock.Pending != 0 {
			t.Fatalf("stock %+v\nSQL %+v", stock, sql)
		}
		for i, r := range requests {
			want := admission.PollOrderCreated
			if decisions[i].Outcome == admission.SoldOut {
				want = admission.NotFound
			}
			if got := s.status(t, r); got != want {
				t.Errorf("user %d: %s, want %s", i, got, want)
			}
		}
		stop()
		s.payAndCancel(t, requests, decisions, newChance(seed+1))
	})
}

func unlucky(c *chance, percent int) error {
	if c.percent(percent) {
		return fmt.Errorf("%w: injected", admission.ErrUnknownResult)
	}
	return nil
}

// payAndCancel pays a third of the orders and cancels another, both at once for some
// (S08), with effects that are lost; then the returned units are sold again.
func (s *system) payAndCancel(t *testing.T, requests []*admission.Request, decisions []admission.Decision, bad *chance) {
	t.Helper()
	s.stock.apply = func([]admission.Verdict) error { return unlucky(bad, 30) }
	service, results := s.service(), s.results()
	var all sync.WaitGroup
	var mu sync.Mutex
	paid, cancelled := 0, 0
	count := func(n *int, d admission.Decision) {
		mu.Lock()
		defer mu.Unlock()
		if !d.Refused() {
			*n++
		} else if d.Outcome != admission.OrderStateConflict {
			t.Errorf("unexpected: %+v", d)
		}
	}
	turn := make(chan struct{}, 16)
	for i, r := range requests {
		if decisions[i].Refused() || i%3 == 0 {
			continue
		}
		record, d := results.Request(t.Context(), r.UserID, r.RequestID, s.ref())
		if d.Refused() {
			t.Fatalf("user %d: %+v", i, d)
		}
		if i%3 == 1 || i%5 == 0 {
			all.Go(func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				_, d := service.Pay(t.Context(), record.OrderID, admission.Payment{
					ID: "pay_" + record.OrderID, Amount: admission.Money{Amount: "9.90", Currency: "CNY"},
				})
				count(&paid, d)
			})
		}
		if i%3 == 2 || i%5 == 0 {
			all.Go(func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				_, d := service.Cancel(t.Context(), r.UserID, record.OrderID)
				count(&cancelled, d)
			})
		}
	}
	all.Wait()
	s.tallies(t)
	bad.stop()
	s.recover(t, time.Now())
	stock, sql := s.agree(t)
	if int(sql.Paid) != paid || int(sql.Cancelled) != cancelled || paid == 0 || cancelled == 0 {
		t.Errorf("%d paid and %d cancelled: SQL says %d and %d", paid, cancelled, sql.Paid, sql.Cancelled)
	}
	if stock.Remaining != int64(cancelled) || sql.EffectsDue != 0 {
		t.Errorf("remaining %d, want %d; %d effects due", stock.Remaining, cancelled, sql.EffectsDue)
	}

	p := s.placer(t, nil)
	s.consume(t, order.ConsumerConfig{})
	for i := range cancelled + 5 { // five too many
		d := p.Place(t.Context(), s.request(5000+i, 1, 1))
		if want := i >= cancelled; d.Refused() != want {
			t.Fatalf("user %d of %d returned units: %+v", i, cancelled, d)
		}
	}
	eventually(t, 2*time.Minute, "order for every returned unit", func() bool {
		_, sql := s.tallies(t)
		return sql.Sold == sql.Total
	})
	s.recover(t, settled())
	s.agree(t)
}

// TestS05CrashBetweenReserveAndSend: a reservation whose sender died is sent again by
// recovery, and one that the queue never delivers is decided by recovery itself.
func TestS05CrashBetweenReserveAndSend(t *testing.T) {
	everywhere(t, 10, func(t *testing.T, s *system) {
		s.queue.send = func(func() error) error { return admission.ErrUnavailable }
		r := s.request(1, 1, 2)
		if d := s.placer(t, nil).Place(t.Context(), r); d.Refused() {
			t.Fatalf("%+v: a reservation stands whatever becomes of its message", d)
		}
		if got := s.status(t, r); got != admission.PollQueued {
			t.Errorf("status %s, want queued", got)
		}

		// sent again after the grace, same key; the queue is still away, then takes it
		if report, err := s.recovery().Step(t.Context(), r.Now, []admission.Activity{s.activity}); err != nil || report.Resent+report.Failed != 0 {
			t.Errorf("within the grace: %+v, %v; want nothing done", report, err)
		}
		now := time.Now().Add(2 * time.Second)
		if report, err := s.recovery().Step(t.Context(), now, []admission.Activity{s.activity}); err != nil || report.Failed != 1 {
			t.Errorf("queue away: %+v, %v; want one failure", report, err)
		}
		s.queue.send = nil
		now = now.Add(2 * time.Second)
		if report, err := s.recovery().Step(t.Context(), now, []admission.Activity{s.activity}); err != nil || report.Resent != 1 {
			t.Errorf("queue back: %+v, %v; want one sent", report, err)
		}
		if report, err := s.recovery().Step(t.Context(), now.Add(2*time.Second), []admission.Activity{s.activity}); err != nil || report.Resent != 0 {
			t.Errorf("acknowledged: %+v, %v; want nothing sent before the ttl", report, err)
		}

		// nobody consumes: older than the ttl, recovery runs the transaction itself
		if report, err := s.recovery().Step(t.Context(), time.Now().Add(17*time.Second), []admission.Activity{s.activity}); err != nil || report.Decided != 1 {
			t.Errorf("after the ttl: %+v, %v; want one decided", report, err)
		}
		if got := s.status(t, r); got != admission.PollOrderCreated {
			t.Errorf("status %s, want created", got)
		}
		stop := s.consume(t, order.ConsumerConfig{}) // the late message finds its verdict
		eventually(t, time.Minute, "consumed", func() bool {
			done, err := s.queue.Consumed(t.Context(), now)
			return err == nil && done
		})
		stop()
		if stock, sql := s.agree(t); stock.Created != 2 || sql.Created != 1 || stock.Remaining != 8 {
			t.Errorf("stock %+v, SQL %+v", stock, sql)
		}
	})
}

// TestS09OneFailureIsNotTheSKUs: A fails at SQL's guard; B, queued on the same SKU, is
// unaffected, and each reads only their own result.
func TestS09OneFailureIsNotTheSKUs(t *testing.T) {
	everywhere(t, 3, func(t *testing.T, s *system) {
		p := s.placer(t, nil)
		a, b, c := s.request(1, 1, 1), s.request(2, 1, 1), s.request(3, 1, 1)
		// SQL knows two orders that the stock does not: one of A's, one of a stranger
		strangers := []admission.OrderMessage{s.message(s.request(1, 9, 1)), s.message(s.request(9, 1, 1))}
		if _, err := s.orders.Decide(t.Context(), strangers, time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*admission.Request{a, b, c} {
			if d := p.Place(t.Context(), r); d.Refused() {
				t.Fatalf("%+v", d)
			}
		}
		s.consume(t, order.ConsumerConfig{Batch: 1}) // in order of sending where there is one
		eventually(t, time.Minute, "verdict for everybody", func() bool {
			return s.status(t, a) != admission.PollQueued && s.status(t, b) != admission.PollQueued && s.status(t, c) != admission.PollQueued
		})
		if got := s.status(t, a); got != admission.PollDuplicate {
			t.Errorf("A: %s, want DUPLICATE", got)
		}
		got := map[admission.Outcome]int{s.status(t, b): 1}
		got[s.status(t, c)]++
		if got[admission.PollOrderCreated] != 1 || got[admission.PollNoCapacity] != 1 {
			t.Errorf("B and C: %v, want one order and one NO_CAPACITY", got)
		}
		snapshot, err := s.stock.Snapshot(t.Context(), s.ref())
		if err != nil || snapshot.Open {
			t.Errorf("snapshot %+v, %v: NO_CAPACITY closes the SKU until it is restored", snapshot, err)
		}
		s.tallies(t)
	})
}

// message is what r's reservation would send.
func (s *system) message(r *admission.Request) admission.OrderMessage {
	id := reservationID(s.ref(), r.UserID, r.RequestID)
	return admission.OrderMessage{
		SchemaVersion: 1, MessageID: "msg_" + id[2:], ReservationID: id, RequestID: r.RequestID,
		ActivityID: s.activity.ID, SKUID: r.SKU.ID, UserID: r.UserID, Quantity: r.Quantity,
		ActivityVersion: 1, BodyHash: r.BodyHash, CreatedAt: r.Now.UTC(),
	}
}

// TestM02SQLAway: while SQL is away nothing is released; when the queue has lost the
// message too, recovery makes the order.
func TestM02SQLAway(t *testing.T) {
	s := openEmbedded(t, 5)
	s.queue.send = func(func() error) error { return nil } // acknowledged, then lost
	s.orders.decide = func([]admission.OrderMessage) error { return admission.ErrUnavailable }
	r := s.request(1, 1, 1)
	if d := s.placer(t, nil).Place(t.Context(), r); d.Refused() {
		t.Fatalf("%+v", d)
	}
	now := settled()
	for range 30 { // a minute and more
		if _, err := s.recovery().Step(t.Context(), now, []admission.Activity{s.activity}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(3 * time.Second)
	}
	if stock, _ := s.tallies(t); stock.Live != 1 || stock.Remaining != 4 || stock.Pending != 1 {
		t.Errorf("%+v: a reservation is never released because something is slow", stock)
	}
	s.orders.decide = nil
	if report := s.recover(t, now); report.Decided != 1 {
		t.Errorf("%+v: want one decided", report)
	}
	if got := s.status(t, r); got != admission.PollOrderCreated {
		t.Errorf("status %s", got)
	}
	s.agree(t)
}
