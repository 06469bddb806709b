package order_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/order"
)

func TestPlace(t *testing.T) {
	type told struct {
		soldOut []admission.Mark
		missing int
	}
	cases := []struct {
		name    string
		total   int64
		prepare func(t *testing.T, s *system, p *order.Placer)
		request func(s *system) *admission.Request
		want    admission.Decision // Outcome, Reason and RetryAfter are compared
		check   func(t *testing.T, s *system, r *admission.Request, got told)
	}{
		{
			name: "reserved", total: 5,
			request: func(s *system) *admission.Request { return s.request(1, 1, 2) },
			check: func(t *testing.T, s *system, r *admission.Request, _ told) {
				if r.Record.Outcome != admission.PollQueued || r.Record.ReservationID == "" || r.Record.RequestID != r.RequestID {
					t.Errorf("record %+v", r.Record)
				}
				if stock, _ := s.tallies(t); stock.Remaining != 3 || stock.Live != 2 {
					t.Errorf("stock %+v", stock)
				}
			},
		},
		{
			name: "the same again", total: 5,
			prepare: place(1, 1, 1), request: func(s *system) *admission.Request { return s.request(1, 1, 1) },
			want: admission.Decision{Outcome: admission.Replayed, Reason: admission.ReasonReplayed},
			check: func(t *testing.T, _ *system, r *admission.Request, _ told) {
				if r.Record.Outcome != admission.PollQueued || r.Record.ReservationID == "" {
					t.Errorf("record %+v: want its current status", r.Record)
				}
			},
		},
		{
			name: "S11 the same id with another body", total: 5,
			prepare: place(1, 1, 1), request: func(s *system) *admission.Request { return s.request(1, 1, 2) },
			want: admission.Decision{Outcome: admission.RequestIDConflict, Reason: admission.ReasonBodyConflict},
		},
		{
			name: "another request of a holder", total: 5,
			prepare: place(1, 1, 1), request: func(s *system) *admission.Request { return s.request(1, 2, 1) },
			want: admission.Decision{Outcome: admission.AlreadyPurchased, Reason: admission.ReasonAlreadyPurchased},
			check: func(t *testing.T, s *system, r *admission.Request, _ told) {
				if first := s.request(1, 1, 1).RequestID; r.Record.RequestID != first || r.Record.ReservationID == "" {
					t.Errorf("record %+v: want the reservation of %s", r.Record, first)
				}
			},
		},
		{
			name: "sold out", total: 1,
			prepare: place(1, 1, 1), request: func(s *system) *admission.Request { return s.request(2, 1, 1) },
			want: admission.Decision{Outcome: admission.SoldOut, Reason: admission.ReasonStockSoldOut},
			check: func(t *testing.T, _ *system, r *admission.Request, got told) {
				if len(got.soldOut) != 1 || got.soldOut[0].Epoch == 0 || r.Record.ReservationID != "" {
					t.Errorf("marks %+v, record %+v", got.soldOut, r.Record)
				}
			},
		},
		{
			name: "fewer are left than wanted", total: 3,
			prepare: place(1, 1, 1), request: func(s *system) *admission.Request { return s.request(2, 1, 3) },
			want: admission.Decision{Outcome: admission.SoldOut, Reason: admission.ReasonStockTooFew},
			check: func(t *testing.T, _ *system, _ *admission.Request, got told) {
				if len(got.soldOut) != 0 {
					t.Errorf("marks %+v: units are left for others", got.soldOut)
				}
			},
		},
		{
			name: "S06 a lost stock is not sold out", total: 5,
			prepare: func(t *testing.T, s *system, _ *order.Placer) { s.del(t, "stock") },
			request: func(s *system) *admission.Request { return s.request(1, 1, 1) },
			want:    admission.Decision{Outcome: admission.DependencyUnavailable, Reason: admission.ReasonStockMissing},
			check: func(t *testing.T, _ *system, _ *admission.Request, got told) {
				if got.missing != 1 || len(got.soldOut) != 0 {
					t.Errorf("told %+v: want one alert and no mark", got)
				}
			},
		},
		{
			name: "another version", total: 5,
			request: func(s *system) *admission.Request {
				r := s.request(1, 1, 1)
				a := *r.Activity
				a.Version = 7
				r.Activity = &a
				return r
			},
			want: admission.Decision{Outcome: admission.TokenExpired, Reason: admission.ReasonVersion},
		},
		{
			name: "S06 too early", total: 5,
			prepare: func(t *testing.T, s *system, _ *order.Placer) {
				s.hset(t, "opens_at_ms", time.Now().Add(time.Minute).UnixMilli())
			},
			request: func(s *system) *admission.Request {
				r := s.request(1, 1, 1)
				a := *r.Activity
				a.OpensAt = r.Now.Add(time.Minute)
				r.Activity = &a
				return r
			},
			want: admission.Decision{Outcome: admission.ActivityNotOpen, Reason: admission.ReasonNotOpen, RetryAfter: time.Minute},
		},
		{
			name: "too late", total: 5,
			prepare: func(t *testing.T, s *system, _ *order.Placer) {
				s.hset(t, "closes_at_ms", time.Now().Add(-time.Second).UnixMilli())
			},
			request: func(s *system) *admission.Request { return s.request(1, 1, 1) },
			want:    admission.Decision{Outcome: admission.ActivityEnded, Reason: admission.ReasonEnded},
		},
		{
			name: "a closed SKU", total: 5,
			prepare: func(t *testing.T, s *system, _ *order.Placer) { s.hset(t, "state", "CLOSED") },
			request: func(s *system) *admission.Request { return s.request(1, 1, 1) },
			want:    admission.Decision{Outcome: admission.DependencyUnavailable, Reason: admission.ReasonStockClosed},
		},
		{
			name: "the store away", total: 5,
			prepare: func(_ *testing.T, s *system, _ *order.Placer) { _ = s.client.Close() },
			request: func(s *system) *admission.Request { return s.request(1, 1, 1) },
			want:    admission.Decision{Outcome: admission.DependencyUnavailable, Reason: admission.ReasonStockStore},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := openEmbedded(t, c.total)
			var got told
			p := s.placer(t, func(pc *order.PlacerConfig) {
				pc.SoldOut = func(_ admission.SKURef, m admission.Mark) { got.soldOut = append(got.soldOut, m) }
				pc.Missing = func(admission.SKURef) { got.missing++ }
			})
			if c.prepare != nil {
				c.prepare(t, s, p)
			}
			r := c.request(s)
			d := p.Place(t.Context(), r)
			if d.Outcome != c.want.Outcome || d.Reason != c.want.Reason || d.RetryAfter != c.want.RetryAfter {
				t.Fatalf("%+v, want %+v", d, c.want)
			}
			if d.Refused() && d.Stage != admission.StageStock {
				t.Errorf("stage %s", d.Stage)
			}
			if c.check != nil {
				c.check(t, s, r, got)
			}
		})
	}
}

// A script of a later version may answer what this one does not know: the script has run,
// so that is an unknown result, and no place in an array.
func TestPlaceTakesACodeItDoesNotKnowForUnknown(t *testing.T) {
	for _, code := range []admission.ReserveCode{admission.ReserveNone, admission.ReserveClosed + 1, 255} {
		s := openEmbedded(t, 5)
		p := placerOn(t, s, answeringStock{Stock: &s.stock, code: code}, nil)
		d := p.Place(t.Context(), s.request(1, 1, 1))
		if d.Outcome != admission.DependencyUnavailable || d.Reason != admission.ReasonStockResultUnknown || d.Cause == nil {
			t.Errorf("code %d: %+v", code, d)
		}
	}
}

// answeringStock answers every reservation with one code.
type answeringStock struct {
	admission.Stock
	code admission.ReserveCode
}

func (a answeringStock) Reserve(context.Context, admission.ReserveArgs) (admission.ReserveResult, error) {
	return admission.ReserveResult{Code: a.code}, nil
}

func place(user, try int, quantity int64) func(*testing.T, *system, *order.Placer) {
	return func(t *testing.T, s *system, p *order.Placer) {
		t.Helper()
		if d := p.Place(t.Context(), s.request(user, try, quantity)); d.Refused() {
			t.Fatalf("%+v", d)
		}
	}
}

func (s *system) del(t *testing.T, key string) {
	t.Helper()
	if err := s.client.Del(t.Context(), "inv:"+s.ref().Tag()+":"+key).Err(); err != nil {
		t.Fatal(err)
	}
}

func (s *system) hset(t *testing.T, field string, value any) {
	t.Helper()
	if err := s.client.HSet(t.Context(), "inv:"+s.ref().Tag()+":stock", field, value).Err(); err != nil {
		t.Fatal(err)
	}
}

// What follows the reservation does not depend on the client or the time that is left.

func TestPlaceSendsThoughTheClientHasGone(t *testing.T) {
	s := openEmbedded(t, 5)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan struct{}, 1)
	s.queue.send = func(send func() error) error { sent <- struct{}{}; return send() }
	leaving := &leavingStock{faultyStock: &s.stock, leave: cancel}
	p := placerOn(t, s, leaving, nil)
	if d := p.Place(ctx, s.request(1, 1, 1)); d.Refused() {
		t.Fatalf("%+v", d)
	}
	select {
	case <-sent:
	default:
		t.Error("not sent: the client's leaving stopped what follows the reservation")
	}
}

func TestPlaceWaitsForReplicasThoughTheClientHasGone(t *testing.T) {
	s := openEmbedded(t, 5)
	s.queue.send = func(func() error) error { return admission.ErrUnknownResult }
	ctx, cancel := context.WithCancel(t.Context())
	stock := &leavingStock{faultyStock: &s.stock, leave: cancel}
	p := placerOn(t, s, stock, func(pc *order.PlacerConfig) { pc.WaitReplicas = 2 })
	if d := p.Place(ctx, s.request(1, 1, 1)); d.Refused() || stock.asked != 1 {
		t.Errorf("%+v after %d waits: the client's leaving stopped the wait for replicas", d, stock.asked)
	}
}

func TestPlaceLeavesTheSendToRecoveryWhenTimeIsShort(t *testing.T) {
	s := openEmbedded(t, 5)
	s.queue.send = func(func() error) error { t.Error("sent"); return nil }
	p := s.placer(t, nil) // a send may take longer than there is time
	ctx, cancel := context.WithTimeout(t.Context(), busy/2)
	defer cancel()
	r := s.request(1, 1, 1)
	if d := p.Place(ctx, r); d.Refused() || r.Record.ReservationID == "" {
		t.Errorf("%+v, %+v: want queued", d, r.Record)
	}
}

func TestPlaceWaitsForReplicasOnlyWithoutAnAcknowledgement(t *testing.T) {
	for _, c := range []struct {
		name           string
		send, replicas error
		refused        bool
		asked          int
	}{
		{"acknowledged", nil, nil, false, 0},
		{"unknown, replicated", admission.ErrUnknownResult, nil, false, 1},
		{"unknown, not replicated", admission.ErrUnknownResult, admission.ErrUnavailable, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openEmbedded(t, 5)
			s.queue.send = func(func() error) error { return c.send }
			stock := &leavingStock{faultyStock: &s.stock, replicas: c.replicas}
			p := placerOn(t, s, stock, func(pc *order.PlacerConfig) { pc.WaitReplicas = 2 })
			d := p.Place(t.Context(), s.request(1, 1, 1))
			if d.Refused() != c.refused || stock.asked != c.asked {
				t.Errorf("%+v after %d waits", d, stock.asked)
			}
			if c.refused && (d.Outcome != admission.DependencyUnavailable || d.Reason != admission.ReasonReplicas ||
				!errors.Is(d.Cause, admission.ErrUnavailable)) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// leavingStock lets the client leave right after the reservation, and answers for replicas.
type leavingStock struct {
	*faultyStock
	leave    func()
	replicas error
	asked    int
}

func (l *leavingStock) Reserve(ctx context.Context, a admission.ReserveArgs) (admission.ReserveResult, error) {
	r, err := l.faultyStock.Reserve(ctx, a)
	if l.leave != nil {
		l.leave()
	}
	return r, err
}

func (l *leavingStock) Replicas(ctx context.Context, _ admission.SKURef, _ int, within time.Duration) error {
	l.asked++
	if until, bounded := ctx.Deadline(); !bounded || time.Until(until) > within {
		return errors.New("a wait without an end")
	}
	return errors.Join(ctx.Err(), l.replicas)
}

func placerOn(t *testing.T, s *system, stock admission.Stock, change func(*order.PlacerConfig)) *order.Placer {
	t.Helper()
	sender, err := order.NewSender(&s.queue, order.SenderConfig{}, nil, s.metrics)
	if err != nil {
		t.Fatal(err)
	}
	c := order.PlacerConfig{ReservationID: reservationID, Budgets: slow}
	if change != nil {
		change(&c)
	}
	p, err := order.NewPlacer(stock, sender, c, s.metrics, discard())
	if err != nil {
		t.Fatal(err)
	}
	background(t, sender.Run)
	return p
}
