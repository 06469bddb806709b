package soldout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
)

var ref = admission.SKURef{ActivityID: "10001", SKUID: "90001"}

const ttl = time.Second

// store is a stock whose snapshot and log the test writes.
type store struct {
	admission.Stock
	snap   admission.StockSnapshot
	events []admission.LogEvent
	err    error
	reads  int
}

func (s *store) Snapshot(context.Context, admission.SKURef) (admission.StockSnapshot, error) {
	s.reads++
	snap := s.snap
	snap.LogLength = int64(len(s.events))
	return snap, s.err
}

func (s *store) Log(_ context.Context, _ admission.SKURef, from int64, limit int) ([]admission.LogEvent, error) {
	if s.err != nil {
		return nil, s.err
	}
	to := min(int(from)+limit, len(s.events))
	return s.events[from:to], nil
}

// reserve sells a unit to a user.
func (s *store) reserve(user string) {
	s.snap.Remaining--
	s.events = append(s.events, admission.LogEvent{Kind: admission.LogReserved, UserID: user, RequestID: "request-" + user, BodyHash: "hash", ReservationID: "r-" + user, Outcome: admission.PollQueued})
	if s.snap.Remaining == 0 {
		s.snap.Epoch++
	}
}

// giveBack returns a user's unit.
func (s *store) giveBack(user string) {
	if s.snap.Remaining == 0 {
		s.snap.Epoch++
	}
	s.snap.Remaining++
	s.events = append(s.events, admission.LogEvent{Kind: admission.LogReturned, UserID: user, FreesUser: true, Attempt: 1})
}

type fixture struct {
	*Board
	store *store
	clock int64
	t     *testing.T
}

func newFixture(t *testing.T, stock int64) *fixture {
	f := &fixture{t: t, store: &store{snap: admission.StockSnapshot{Mark: admission.Mark{Incarnation: 1, ActivityVersion: 1}, Total: stock, Remaining: stock, Open: true}}}
	f.Board = New(f.store, func() int64 { return f.clock }, NewMetrics(prometheus.NewRegistry()))
	f.Serve([]admission.SKURef{ref}, func(admission.SKURef) time.Duration { return ttl })
	return f
}

func (f *fixture) step() {
	f.t.Helper()
	if err := f.Step(f.t.Context()); err != nil && f.store.err == nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) ask(user string) (admission.Decision, *admission.Request) {
	req := &admission.Request{Mono: f.clock, UserID: user, Activity: &admission.Activity{ID: ref.ActivityID}, SKU: &admission.SKU{ID: ref.SKUID}}
	return f.Check(req), req
}

func (f *fixture) want(user string, o admission.Outcome) {
	f.t.Helper()
	d, req := f.ask(user)
	req.End(d)
	if d.Outcome != o {
		f.t.Errorf("user %s got %v, want %v", user, d.Outcome, o)
	}
}

func TestMarkAnswersStrangersAndPassesHolders(t *testing.T) {
	f := newFixture(t, 2)
	f.step()
	f.want("1", admission.Pass)
	f.store.reserve("1")
	f.store.reserve("2")
	f.step()
	f.want("3", admission.SoldOut)
	d, req := f.ask("1")
	if d.Refused() || req.Holder.ReservationID != "r-1" || req.Holder.RequestID != "request-1" {
		t.Errorf("holder got %v and %+v, want a pass with the reservation", d, req.Holder)
	}
	if got := testutil.ToFloat64(f.metrics.Hits); got != 1 {
		t.Errorf("%v hits, want 1", got)
	}
}

// TestMarkWaitsForTheLog: a mark from a reserve reply answers nobody until the log has
// been followed up to it, or somebody who has just bought elsewhere would be told a lie.
func TestMarkWaitsForTheLog(t *testing.T) {
	f := newFixture(t, 1)
	f.step()
	f.store.reserve("1") // on another instance
	mark := f.store.snap.Mark
	mark.LogLength = int64(len(f.store.events))
	f.Observe(ref, mark)
	f.want("1", admission.Pass)
	f.want("2", admission.Pass)
	f.step()
	f.want("1", admission.Pass)
	f.want("2", admission.SoldOut)
}

// TestReopenedByEventAndBySnapshot is M03: events in every order, doubled and stale.
func TestReopenedByEventAndBySnapshot(t *testing.T) {
	f := newFixture(t, 1)
	f.store.reserve("1")
	f.step()
	f.want("2", admission.SoldOut)
	sold := admission.Event{Type: admission.EventSoldOut, ActivityID: ref.ActivityID, SKUID: ref.SKUID, Version: 1, Incarnation: 1, Epoch: f.store.snap.Epoch}
	f.store.giveBack("1")
	reopened := sold
	reopened.Type, reopened.Epoch = admission.EventReopened, f.store.snap.Epoch
	old := reopened
	old.Epoch -= 2
	before := testutil.ToFloat64(f.metrics.Ignored)
	for _, e := range []admission.Event{old, reopened, sold, sold, reopened} {
		f.Event(e, time.Time{})
	}
	f.want("2", admission.Pass)
	if got := testutil.ToFloat64(f.metrics.Ignored) - before; got != 2 {
		t.Errorf("%v stale events ignored, want the old one and the repeat", got)
	}
	f.step()
	f.want("1", admission.Pass)
	if h, holds := f.Holder(ref, "1"); holds || h.Attempt != 1 {
		t.Errorf("a freed user holds %v with attempt %d, want nothing and 1", holds, h.Attempt)
	}

	// Lost events: the snapshot alone closes and opens.
	f.store.reserve("2")
	f.step()
	f.want("3", admission.SoldOut)
	f.store.giveBack("2")
	f.step()
	f.want("3", admission.Pass)
}

// TestMayReturn: after a sell-out people look on for as long as somebody has not paid, or
// as this instance does not know it.
func TestMayReturn(t *testing.T) {
	f := newFixture(t, 2)
	want := func(may bool, why string) {
		t.Helper()
		if got := f.MayReturn(ref); got != may {
			t.Errorf("%s: %v", why, got)
		}
	}
	pay := func(user string) {
		f.store.events = append(f.store.events, admission.LogEvent{Kind: admission.LogPaid, UserID: user, Outcome: admission.PollOrderPaid})
	}
	want(true, "nothing was read yet")
	f.store.reserve("1")
	f.store.reserve("2")
	f.step()
	want(true, "two have not paid")
	pay("1")
	f.step()
	want(true, "one has not paid")
	pay("2")
	f.step()
	want(false, "all have paid")
	f.store.snap.Epoch++ // somebody else gave back, bought, and this instance has read the snapshot alone
	f.store.events = append(f.store.events, admission.LogEvent{Kind: admission.LogEpoch}, admission.LogEvent{Kind: admission.LogReserved, UserID: "3", Outcome: admission.PollQueued})
	f.Observe(ref, admission.Mark{Incarnation: 1, ActivityVersion: 1, Epoch: f.store.snap.Epoch, LogLength: int64(len(f.store.events))})
	want(true, "the log was not followed so far")
	f.step()
	want(true, "a third has not paid")
	f.store.events = append(f.store.events, admission.LogEvent{Kind: admission.LogReturned, UserID: "3", Outcome: admission.PollOrderCancelled}) // and may not buy again
	f.step()
	want(false, "the third gave back, and somebody was quicker")
	f.store.snap.Incarnation++
	f.store.events = nil
	f.Observe(ref, admission.Mark{Incarnation: 2, ActivityVersion: 1})
	want(true, "the stock was restored, and its log not read")
	f.store.err = admission.ErrNotFound
	f.step()
	want(true, "the stock is lost, and may be restored")
	if !f.MayReturn(admission.SKURef{ActivityID: "1", SKUID: "2"}) {
		t.Error("nothing is known of a SKU that is not served here")
	}
}

// TestOlderSnapshotIsIgnored: a replica that lags must not open or close anything.
func TestOlderSnapshotIsIgnored(t *testing.T) {
	f := newFixture(t, 1)
	lagging := f.store.snap
	f.store.reserve("1")
	f.step()
	newer := f.store.snap
	f.store.snap = lagging
	f.step()
	f.want("2", admission.SoldOut)
	f.store.snap = newer
	if testutil.ToFloat64(f.metrics.Ignored) == 0 {
		t.Error("the roll-back was not counted")
	}
}

// TestLapsedMarkSendsOneProbe: when the stock store is away marks lapse, and one request
// at a time asks in place of all; its turn goes on whatever it met.
func TestLapsedMarkSendsOneProbe(t *testing.T) {
	f := newFixture(t, 1)
	f.store.reserve("1")
	f.step()
	f.store.err = errors.New("away")
	f.clock += int64(ttl)
	d, probe := f.ask("2")
	if d.Refused() {
		t.Fatalf("the first request after the lapse got %v, want to probe", d)
	}
	f.want("3", admission.SoldOut)
	probe.End(admission.Decision{Outcome: admission.RateLimited})
	f.want("3", admission.Pass)
	f.store.err = nil
	f.step()
	f.want("3", admission.SoldOut)
}

// TestNewIncarnationStartsTheLogOver: a restored stock has a new log.
func TestNewIncarnationStartsTheLogOver(t *testing.T) {
	f := newFixture(t, 2)
	f.store.reserve("1")
	f.store.reserve("2")
	f.step()
	f.store.events = nil
	f.store.snap.Incarnation++
	f.store.snap.Remaining = 1
	f.store.reserve("2")
	f.step()
	if _, holds := f.Holder(ref, "1"); holds {
		t.Error("a reservation that the restore did not bring back is still held")
	}
	f.want("2", admission.Pass)
	f.want("1", admission.SoldOut)
}

// TestNewIncarnationIsHeardOfFirst: an event or a reserve reply may tell of a restore
// before the snapshot does; the log is followed anew all the same.
func TestNewIncarnationIsHeardOfFirst(t *testing.T) {
	for name, hear := range map[string]func(*fixture, admission.Mark){
		"event": func(f *fixture, m admission.Mark) {
			f.Event(admission.Event{Type: admission.EventReopened, ActivityID: ref.ActivityID, SKUID: ref.SKUID, Version: m.ActivityVersion, Incarnation: m.Incarnation, Epoch: m.Epoch}, time.Time{})
		},
		"reply": func(f *fixture, m admission.Mark) { f.Observe(ref, m) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2)
			f.store.reserve("1")
			f.store.reserve("2")
			f.step()
			f.store.events = nil
			f.store.snap.Incarnation++
			f.store.snap.Remaining = 1
			f.store.reserve("3")
			hear(f, f.store.snap.Mark)
			f.step()
			if _, holds := f.Holder(ref, "1"); holds {
				t.Error("a reservation that the restore did not bring back is still held")
			}
			f.want("3", admission.Pass)
			f.want("1", admission.SoldOut)
		})
	}
}

// TestMarkOfARestoredStockWaitsForItsLog: the log that was followed is another's, however
// long it is.
func TestMarkOfARestoredStockWaitsForItsLog(t *testing.T) {
	f := newFixture(t, 2)
	f.store.reserve("1")
	f.store.reserve("2")
	f.step()
	f.store.events = nil
	f.store.snap.Incarnation++
	f.store.snap.Remaining = 1
	f.store.reserve("3")
	mark := f.store.snap.Mark
	mark.LogLength = int64(len(f.store.events))
	f.Observe(ref, mark)
	f.want("3", admission.Pass)
	f.want("4", admission.Pass)
	f.step()
	f.want("3", admission.Pass)
	f.want("4", admission.SoldOut)
}

// TestLostStockIsAnAnswer: an instance does not wait for a stock key that is gone.
func TestLostStockIsAnAnswer(t *testing.T) {
	f := newFixture(t, 1)
	f.store.err = fmt.Errorf("no stock: %w", admission.ErrNotFound)
	f.step()
	if !f.CaughtUp(ref) || f.Open(ref) {
		t.Error("a lost stock keeps the instance waiting, or reads as open")
	}
	f.store.err = nil
	f.step()
	if !f.CaughtUp(ref) || !f.Open(ref) {
		t.Error("a restored stock is not seen")
	}
}

// TestConvergesFromAnyOrder: whatever was lost, doubled or reordered, one snapshot and the
// log bring every instance to the truth.
func TestConvergesFromAnyOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		f := newFixture(t, 3)
		held := map[string]bool{}
		for range 30 {
			user := fmt.Sprint(1 + rnd.IntN(6))
			switch {
			case held[user]:
				f.store.giveBack(user)
				delete(held, user)
			case f.store.snap.Remaining > 0:
				f.store.reserve(user)
				held[user] = true
			}
			if rnd.IntN(3) == 0 {
				f.step()
			}
			if rnd.IntN(3) == 0 {
				f.Event(admission.Event{Type: admission.EventReopened, ActivityID: ref.ActivityID, SKUID: ref.SKUID, Version: 1, Incarnation: 1, Epoch: int64(rnd.IntN(int(f.store.snap.Epoch) + 1))}, time.Time{})
			}
			f.clock += int64(rnd.IntN(int(ttl)))
		}
		f.step()
		for u := 1; u <= 6; u++ {
			user := fmt.Sprint(u)
			if _, holds := f.Holder(ref, user); holds != held[user] {
				t.Fatalf("round %d: user %s holds %v, the store says %v", round, user, holds, held[user])
			}
			want := admission.Pass
			if f.store.snap.Remaining == 0 && !held[user] {
				want = admission.SoldOut
			}
			f.want(user, want)
		}
	}
}

// TestMetricsOfAMark: an operator sees from which moment this instance answers, how long its
// view has gone unconfirmed, and how fast a reopening arrived.
func TestMetricsOfAMark(t *testing.T) {
	f := newFixture(t, 1)
	gauge := func(v *prometheus.GaugeVec) float64 {
		return testutil.ToFloat64(v.WithLabelValues(ref.ActivityID, ref.SKUID))
	}
	f.store.reserve("1")
	f.step()
	if got, want := gauge(f.metrics.marked), float64(f.store.snap.Epoch); got != want || want == 0 {
		t.Errorf("answers from epoch %v, want %v", got, want)
	}

	f.store.err = errors.New("away")
	for range 3 {
		f.clock += int64(time.Second)
		f.step()
	}
	if got := gauge(f.metrics.behind); got != 3 {
		t.Errorf("unconfirmed for %v s, want 3", got)
	}
	f.store.err = nil
	f.step()
	f.step()
	if got := gauge(f.metrics.behind); got != 0 {
		t.Errorf("unconfirmed for %v s after the store came back", got)
	}

	f.store.giveBack("1")
	emitted := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	f.Event(admission.Event{Type: admission.EventReopened, ActivityID: ref.ActivityID, SKUID: ref.SKUID, Version: 1, Incarnation: 1, Epoch: f.store.snap.Epoch, EmittedAt: emitted}, emitted.Add(40*time.Millisecond))
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.metrics.reopen)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if h := families[0].Metric[0].Histogram; h.GetSampleCount() != 1 || h.GetSampleSum() != .04 {
		t.Errorf("reopening: %v, want one of 40 ms", h)
	}
	if got := gauge(f.metrics.marked); got != 0 {
		t.Errorf("answers from epoch %v after the reopening", got)
	}

	f.Serve(nil, nil)
	if n := testutil.CollectAndCount(f.metrics.marked) + testutil.CollectAndCount(f.metrics.behind); n != 0 {
		t.Errorf("%d series of a SKU that is no longer served", n)
	}
}
