package control

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/waitroom"
)

// TestTheDrawIsSealedOnce: when joining for it has closed, over exactly those of the log,
// and the same by the next leader, also with people who slipped in behind it.
func TestTheDrawIsSealedOnce(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessRandom)
	b.join(a, 0, 50)
	first := b.waves.begin(1)
	closes := a.DrawClosesAt()
	for _, at := range []time.Time{b.base, closes, closes.Add(drawMargin - time.Millisecond)} {
		b.now = at
		b.round(first, a)
		if s := b.state(a); s.State != waitroom.StatePrequeue || !s.Seal.Zero() || s.Joined != 50 {
			t.Fatalf("%v before the draw closes: %+v", closes.Sub(at), s)
		}
	}
	b.now = closes.Add(drawMargin)
	b.round(first, a)
	sealed := b.state(a)
	var chain [32]byte
	for _, p := range b.places(a) {
		chain = waitroom.Chain(chain, p)
	}
	if want := hex.EncodeToString(chain[:]); sealed.Seal.Root != want || sealed.Seal.Drawn != 50 || sealed.State != waitroom.StateDrawn || watermark(sealed) != 0 {
		t.Fatalf("sealed %+v, want the root %s over 50 people and nobody released", sealed, want)
	}
	// By the store's clock these joined in time, but the root was published without them.
	b.join(a, 50, 60)
	second := b.waves.begin(2)
	b.now = a.OpensAt
	for range 4 {
		b.round(second, a)
		b.now = b.now.Add(300 * time.Millisecond)
	}
	s := b.state(a)
	if s.Seal != sealed.Seal || s.Term != 2 || s.State != waitroom.StateOpen {
		t.Fatalf("the next leader: %+v; log:\n%s", s, b.log)
	}
	if got := b.released(a, s); len(got) != 40 {
		t.Errorf("%d released in four waves of 10", len(got))
	}
	for range 3 {
		b.round(second, a)
		b.now = b.now.Add(300 * time.Millisecond)
	}
	s = b.state(a)
	if got := b.released(a, s); len(got) != 60 || s.Lanes[waitroom.DefaultLane].Released != 60 {
		t.Errorf("%d released, %d told, want all 60", len(got), s.Lanes[waitroom.DefaultLane].Released)
	}
	if want := waitroom.LateRank(60) + 1; watermark(s) != want {
		t.Errorf("watermark %d, want %d: never past the last rank given", watermark(s), want)
	}
}

// TestAnEmptyDraw: nobody joined in time; those who come later are served in their order.
func TestAnEmptyDraw(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessRandom)
	r := b.waves.begin(1)
	b.now = a.OpensAt
	b.round(r, a)
	b.join(a, 0, 5)
	b.now = b.now.Add(300 * time.Millisecond)
	b.round(r, a)
	if s := b.state(a); s.Seal.Drawn != 0 || s.Seal.Zero() || len(b.released(a, s)) != 5 {
		t.Errorf("%+v", s)
	}
}

// TestANewVersionMovesTheOpening: before the draw, it moves with it; after the draw, what
// was published stays, for a new leader too.
func TestANewVersionMovesTheOpening(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessRandom)
	b.join(a, 0, 30)
	b.room.pages = func(page []admission.Place) []admission.Place { // ten joined after the first closing
		for i := range page {
			if page[i].Sequence > 20 {
				page[i].JoinedAt = a.DrawClosesAt().Add(time.Minute)
			}
		}
		return page
	}
	r := b.waves.begin(1)
	b.round(r, a)
	moved := *a
	moved.Version, moved.OpensAt = 2, a.OpensAt.Add(30*time.Minute)
	b.now = moved.DrawClosesAt().Add(-time.Second)
	b.round(r, &moved)
	if s := b.state(a); !s.Seal.Zero() {
		t.Fatal("the draw did not move with the opening")
	}
	b.now = moved.DrawClosesAt().Add(drawMargin)
	b.round(r, &moved)
	sealed := b.state(a)
	if sealed.Seal.Drawn != 30 {
		t.Fatalf("%d in the draw, want all who joined before it closed", sealed.Seal.Drawn)
	}
	third := moved
	third.Version, third.OpensAt = 3, a.OpensAt
	b.round(b.waves.begin(2), &third)
	if s := b.state(a); s.Term != 2 || s.Seal != sealed.Seal || s.State != waitroom.StateOpen || len(b.released(a, s)) != 10 {
		t.Errorf("after the draw: %+v; log:\n%s", s, b.log)
	}
}

// TestAChangedLogReleasesNobody: and says so once, while other activities go on.
func TestAChangedLogReleasesNobody(t *testing.T) {
	b := newBed(t)
	a, other := b.sale("10001", admission.FairnessRandom), b.sale("10002", admission.FairnessRandom)
	b.join(a, 0, 30)
	b.join(other, 500, 530)
	b.now = a.OpensAt
	b.round(b.waves.begin(1), a, other)
	before := b.state(a)
	b.room.pages = func(page []admission.Place) []admission.Place {
		for i := range page {
			if page[i].UserID == "70000007" {
				page[i].UserID = "79999999"
			}
		}
		return page
	}
	r := b.waves.begin(2)
	for range 3 {
		b.now = b.now.Add(300 * time.Millisecond)
		b.round(r, a, other)
	}
	if s := b.state(a); watermark(s) != watermark(before) || s.Term != 1 {
		t.Errorf("%+v, want what the leader before published", s)
	}
	if s := b.state(other); len(b.released(other, s)) != 30 {
		t.Errorf("the other activity stands at %+v", s)
	}
	if n := strings.Count(b.log.String(), "the log was changed"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, b.log)
	}
	b.room.pages = nil
	b.round(b.waves.begin(3), a)
	if s := b.state(a); len(b.released(a, s)) != 20 {
		t.Errorf("with the true log: %d released", len(b.released(a, s)))
	}
}

// TestALeaderKilledMidWave: at each write of a sale the leader dies, before it or just
// after. The next one goes on from the records: everybody is released once.
func TestALeaderKilledMidWave(t *testing.T) {
	for _, mode := range []admission.FairnessMode{admission.FairnessRandom, admission.FairnessFIFO} {
		for _, written := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, written %v", mode, written), func(t *testing.T) {
				b := newBed(t)
				a := b.sale("10001", mode)
				b.join(a, 0, 70)
				b.now = a.OpensAt.Add(-time.Second)
				turn, last, seen := map[string]int{}, uint64(0), admission.RoomState{}
				for term := int64(1); len(turn) < 70; term++ {
					if term > 40 {
						t.Fatalf("%d released by 40 leaders", len(turn))
					}
					writes := 0
					die := func() error {
						if writes++; writes == 2 {
							return errGone
						}
						return nil
					}
					b.room.before, b.room.after = die, nil
					if written {
						b.room.before, b.room.after = nil, die
					}
					r := b.waves.begin(term)
					for writes < 2 {
						b.round(r, a)
						s := b.state(a)
						if watermark(s) < last {
							t.Fatalf("term %d: the watermark went back from %d to %d", term, last, watermark(s))
						}
						if s.Term < seen.Term || !seen.Seal.Zero() && s.Seal != seen.Seal {
							t.Fatalf("term %d: %+v after %+v", term, s, seen)
						}
						last, seen = watermark(s), s
						for user := range b.released(a, s) {
							turn[user]++
						}
						b.now = b.now.Add(300 * time.Millisecond)
					}
					if told := seen.Lanes[waitroom.DefaultLane].Released; told != int64(len(b.released(a, seen))) {
						t.Fatalf("term %d: %d released are told, %d are", term, told, len(b.released(a, seen)))
					}
				}
				var records waitroom.Records
				if records = recordsOf(t, seen); records.Released != 70 {
					t.Errorf("the records count %d, want 70", records.Released)
				}
				people, from := int64(0), int64(0)
				for _, w := range records.Young {
					people += w.Ranks
					if w.ID <= from {
						t.Errorf("wave %d after wave %d", w.ID, from)
					}
					from = w.ID
				}
				if people != 70 {
					t.Errorf("the waves add up to %d people, want 70: nobody twice, nobody lost", people)
				}
			})
		}
	}
}

// TestALostAnswerCounts: the write took effect and its answer was lost. The same leader
// goes on from what is stored.
func TestALostAnswerCounts(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessRandom)
	b.join(a, 0, 60)
	r := b.waves.begin(1)
	b.now = a.OpensAt
	for i := range 4 {
		b.room.after = nil
		if i%2 == 0 {
			b.room.after = func() error { return fmt.Errorf("no reply: %w", admission.ErrUnknownResult) }
		}
		b.round(r, a)
		b.now = b.now.Add(300 * time.Millisecond)
		if s := b.state(a); len(b.released(a, s)) != 10*(i+1) || recordsOf(t, s).LastID != int64(i+1) {
			t.Errorf("wave %d: %d released, records %+v", i+1, len(b.released(a, s)), recordsOf(t, s))
		}
	}
}

// TestAPausedLeaderIsFenced: its later writes are refused, of waves and of budgets.
func TestAPausedLeaderIsFenced(t *testing.T) {
	client, err := redis.Open(t.Context(), store(t), redis.Options{Timeout: 20 * time.Second, DialTimeout: 20 * time.Second, PoolTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	b := newBedOn(t, redis.NewRoom(client))
	a := b.sale("10001", admission.FairnessFIFO)
	b.join(a, 0, 100)
	b.now = a.OpensAt
	paused, next := b.waves.begin(1), b.waves.begin(2)
	b.round(paused, a)
	b.round(next, a)
	want := b.state(a)
	b.now = b.now.Add(time.Hour / 2) // it wakes up, reads people who joined meanwhile, and writes
	b.round(paused, a)
	if got := b.state(a); got.Term != 2 || watermark(got) != watermark(want) || !got.EmitAt.Equal(want.EmitAt) {
		t.Errorf("the paused leader wrote %+v over %+v", got, want)
	}
	if err := b.waves.Room.SetState(t.Context(), a.ID, admission.RoomState{Term: 1, Lanes: want.Lanes}); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("SetState with the old term: %v, want ErrConflict", err)
	}
	leases := redis.NewLeases(client)
	budgets := &Budgets{Leases: leases, Wanted: func() []admission.Budget {
		return []admission.Budget{{Ref: admission.SKURef{ActivityID: a.ID, SKUID: "9"}, PolicyVersion: 1, Rate: 50, Burst: 10, Binding: "max_origin_qps", EmittedAt: b.now}}
	}}
	if err := budgets.Step(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if err := budgets.Step(t.Context(), 1); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("SetBudget with the old term: %v, want ErrConflict", err)
	}
	if got, err := leases.Budget(t.Context(), admission.SKURef{ActivityID: a.ID, SKUID: "9"}); err != nil || got.Term != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestStates: the life of a sale as the queue document tells it.
func TestStates(t *testing.T) {
	for _, mode := range []admission.FairnessMode{admission.FairnessRandom, admission.FairnessFIFO} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBed(t)
			a := b.sale("10001", mode)
			b.join(a, 0, 500)
			drawn := waitroom.StateDrawn
			if mode == admission.FairnessFIFO {
				drawn = waitroom.StatePrequeue
			}
			r := b.waves.begin(1)
			var last uint64
			for _, c := range []struct {
				at    time.Time
				left  int64
				want  string
				moves bool
			}{
				{b.base, 100_000, waitroom.StatePrequeue, false},
				{a.DrawClosesAt().Add(drawMargin), 100_000, drawn, false},
				{a.OpensAt.Add(-time.Millisecond), 100_000, drawn, false},
				{a.OpensAt, 100_000, waitroom.StateOpen, true},
				{a.OpensAt.Add(time.Second), 0, waitroom.StateSoldOut, false},
				{a.OpensAt.Add(2 * time.Second), -3, waitroom.StateSoldOut, false},
				{a.OpensAt.Add(20 * time.Second), 60, waitroom.StateOpen, true},
				{a.OpensAt.Add(21 * time.Second), 100_000, waitroom.StateOpen, true},
				{a.ClosesAt.Add(-time.Millisecond), 0, waitroom.StateSoldOut, false},
				{a.ClosesAt, 100_000, waitroom.StateEnded, false},
			} {
				b.now = c.at
				b.stock.set(a, c.left)
				heard := len(b.events.all)
				was, _ := b.room.State(t.Context(), a.ID)
				b.round(r, a)
				s := b.state(a)
				if s.State != c.want {
					t.Errorf("%v after opening, %d left: %s, want %s", c.at.Sub(a.OpensAt), c.left, s.State, c.want)
				}
				if moved := watermark(s) > last; moved != c.moves || watermark(s) < last {
					t.Errorf("%s, %v after opening: watermark %d after %d", c.want, c.at.Sub(a.OpensAt), watermark(s), last)
				}
				told := len(b.events.all) - heard
				if changed := was.State != s.State || watermark(was) != watermark(s); changed != (told == 1) {
					t.Errorf("%s: changed %v, %d events", c.want, changed, told)
				}
				last = watermark(s)
			}
			for _, e := range b.events.all {
				if e.Type != admission.EventWatermark || e.ActivityID != a.ID || e.MessageID == "" || e.EmittedAt.IsZero() {
					t.Errorf("event %+v", e)
				}
			}
			if got := recordsOf(t, b.state(a)); !got.SoldOutOnce {
				t.Error("the sold-out is not recorded: a new leader would overshoot again")
			}
		})
	}
}

// TestFIFO: in the order of joining, from the opening on.
func TestFIFO(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessFIFO)
	b.join(a, 0, 15)
	r := b.waves.begin(1)
	b.now = a.OpensAt.Add(-time.Second)
	b.round(r, a)
	if s := b.state(a); s.State != waitroom.StatePrequeue || !s.Seal.Zero() || watermark(s) != 0 {
		t.Fatalf("%+v", s)
	}
	b.now = a.OpensAt
	b.round(r, a)
	for n := range 15 {
		if user := fmt.Sprint(70_000_000 + n); b.released(a, b.state(a))[user] != (n < 10) {
			t.Errorf("user %s: released %v", user, n >= 10)
		}
	}
	b.now = b.now.Add(300 * time.Millisecond)
	b.round(r, a)
	if s := b.state(a); watermark(s) != 16 {
		t.Errorf("watermark %d, want 16: not past the last place given", watermark(s))
	}
}

// TestAMissingStockStopsItsOwnWavesAlone, and the draw not at all: stock is read when
// there is something to sell.
func TestAMissingStockStopsItsOwnWavesAlone(t *testing.T) {
	b := newBed(t)
	a, other := b.sale("10001", admission.FairnessRandom), b.sale("10002", admission.FairnessFIFO)
	delete(b.stock.left, admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[0].ID})
	b.join(a, 0, 30)
	b.join(other, 0, 30)
	r := b.waves.begin(1)
	b.now = a.DrawClosesAt().Add(drawMargin)
	b.round(r, a, other)
	if s := b.state(a); s.State != waitroom.StateDrawn {
		t.Errorf("the draw waits for the stock: %+v", s)
	}
	b.now = a.OpensAt
	var reads atomic.Int64 // both activities' steps read at once
	b.room.pages = func(page []admission.Place) []admission.Place { reads.Add(int64(len(page))); return page }
	for range 3 {
		b.now = b.now.Add(300 * time.Millisecond)
		b.round(r, a, other)
	}
	if s := b.state(a); watermark(s) != 0 || s.State != waitroom.StateDrawn {
		t.Errorf("without a stock: %+v", s)
	}
	if s := b.state(other); len(b.released(other, s)) != 30 {
		t.Errorf("the other activity: %+v", s)
	}
	if n := reads.Load(); n != 0 {
		t.Errorf("%d lines of the log were read again", n)
	}
	b.stock.set(a, 100_000)
	b.now = b.now.Add(300 * time.Millisecond)
	b.round(r, a, other)
	if s := b.state(a); len(b.released(a, s)) != 10 {
		t.Errorf("with its stock again: %+v", s)
	}
	if log := b.log.String(); strings.Count(log, "waves_failed") != 1 || strings.Count(log, "waves_work") != 1 {
		t.Errorf("want one line for the beginning and one for the end:\n%s", log)
	}
}

// TestAHangingStockHoldsBackNobodyElse: while one activity's step is under way, the others
// take theirs, and it is not begun twice.
func TestAHangingStockHoldsBackNobodyElse(t *testing.T) {
	b := newBed(t)
	slow, other := b.sale("10001", admission.FairnessFIFO), b.sale("10002", admission.FairnessFIFO)
	b.join(other, 0, 30)
	waits := make(chan struct{})
	b.stock.hangs = map[admission.SKURef]chan struct{}{{ActivityID: slow.ID, SKUID: slow.SKUs[0].ID}: waits} // closing it twice panics
	b.now = slow.OpensAt
	ctx, stop := context.WithCancel(t.Context())
	r := b.waves.begin(1)
	if err := r.round(ctx, []*admission.Activity{slow}); err != nil {
		t.Fatal(err)
	}
	<-waits
	for range 3 {
		b.now = b.now.Add(300 * time.Millisecond)
		if err := r.round(ctx, []*admission.Activity{slow, other}); err != nil {
			t.Fatal(err)
		}
		for r.halls[other.ID].busy.Load() {
			runtime.Gosched()
		}
	}
	if s := b.state(other); len(b.released(other, s)) != 30 {
		t.Errorf("%d released, want 30", len(b.released(other, s)))
	}
	stop()
	r.end()
}

// TestAStepEnds: a store that hangs is asked again, and a leader that ends leaves no step
// behind.
func TestAStepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBedOn(t, &longRoom{joined: 10, base: time.Now()})
		a := b.sale("10001", admission.FairnessFIFO)
		ref := admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[0].ID}
		b.now = a.OpensAt
		r := b.waves.begin(1)
		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		for range 2 {
			b.stock.hangs = map[admission.SKURef]chan struct{}{ref: make(chan struct{})}
			if err := r.round(ctx, []*admission.Activity{a}); err != nil {
				t.Fatal(err)
			}
			r.steps.Wait()
		}
		if took := time.Since(began); took != 2*stepWithin || !strings.Contains(b.log.String(), "waves_failed") {
			t.Errorf("two steps took %v; log:\n%s", took, b.log)
		}
		b.stock.hangs[ref] = make(chan struct{})
		if err := r.round(ctx, []*admission.Activity{a}); err != nil {
			t.Fatal(err)
		}
		<-b.stock.hangs[ref]
		stop()
		r.end()
		if len(r.halls) != 0 {
			t.Error("a step outlives its leader")
		}
	})
}

// TestNoCountsNoWave: a release without counts would be blind.
func TestNoCountsNoWave(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessFIFO)
	b.join(a, 0, 30)
	b.now = a.OpensAt
	b.lost = errGone
	r := b.waves.begin(1)
	b.round(r, a)
	if _, err := b.room.State(t.Context(), a.ID); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("something was published: %v", err)
	}
	if err := r.round(t.Context(), []*admission.Activity{a}); !errors.Is(err, errGone) {
		t.Errorf("round: %v", err)
	}
}

// TestCountsShapeTheWave: those who were released are waited for, those with a ticket too;
// who has not come within the claim time is replaced.
func TestCountsShapeTheWave(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessFIFO)
	b.join(a, 0, 100)
	r := b.waves.begin(1)
	wave := func(left int64, after time.Duration, want int64) {
		t.Helper()
		b.now = b.now.Add(after)
		b.stock.set(a, left)
		was := int64(0)
		if s, err := b.room.State(t.Context(), a.ID); err == nil {
			was = s.Lanes[waitroom.DefaultLane].Released
		}
		b.round(r, a)
		if got := b.state(a).Lanes[waitroom.DefaultLane].Released - was; got != want {
			t.Errorf("%d left, %v later: %d released, want %d", left, after, got, want)
		}
	}
	b.now = a.OpensAt
	wave(0, 0, 0)                      // sold out once: no overshoot from now on
	wave(16, 300*time.Millisecond, 10) // 16 - sqrt(16), in waves of 10
	wave(16, 300*time.Millisecond, 2)  // ten are awaited
	wave(16, 300*time.Millisecond, 0)  // twelve are awaited
	b.lines = []Line{{InstanceID: "i", Counts: map[string]waitroom.ActivityCounts{a.ID: {
		ByWave: map[int64]int64{1: 10, 2: 2}, Issued: map[int64]int64{b.now.Unix(): 12}, IssuedAll: 12,
	}}}}
	wave(16, 300*time.Millisecond, 0) // twelve have a ticket, and time to use it
	b.lines = nil
	wave(16, 10*time.Second, 10) // nobody came: s = 20/32, so that 12/s are wanted
}

// TestHallsAreBounded: an activity that ended or is gone leaves neither memory nor series.
func TestHallsAreBounded(t *testing.T) {
	b := newBed(t)
	a, gone, ended := b.sale("10001", admission.FairnessFIFO), b.sale("10002", admission.FairnessFIFO), b.sale("10003", admission.FairnessFIFO)
	for _, x := range []*admission.Activity{a, gone, ended} {
		b.join(x, 0, 3)
	}
	b.now = a.OpensAt
	r := b.waves.begin(1)
	b.round(r, a, gone, ended)
	if got := b.series(); !slices.Equal(got, []string{"10001", "10002", "10003"}) || len(r.halls) != 3 {
		t.Fatalf("series of %v, %d halls", got, len(r.halls))
	}
	off := *ended
	off.Ended = true
	b.round(r, a, &off)
	if s := b.state(ended); s.State != waitroom.StateEnded {
		t.Errorf("ended by the operator: %s", s.State)
	}
	written := b.state(ended).EmitAt
	b.now = b.now.Add(time.Second)
	b.round(r, a, &off)
	if got := b.series(); !slices.Equal(got, []string{"10001"}) || len(r.halls) != 1 {
		t.Errorf("series of %v, %d halls, want 10001 alone", got, len(r.halls))
	}
	b.round(r, a, &off)
	if !b.state(ended).EmitAt.Equal(written) {
		t.Error("an end that was published is published again")
	}
	// Its end cannot be published: for a minute it is tried.
	b.room.before = func() error { return errGone }
	b.now = a.ClosesAt
	b.round(r, a)
	b.now = a.ClosesAt.Add(wavesAfterClosing)
	b.round(r, a)
	if len(r.halls) != 1 {
		t.Error("given up too early")
	}
	b.now = b.now.Add(time.Millisecond)
	b.round(r, a)
	if len(r.halls) != 0 || len(b.series()) != 0 {
		t.Errorf("%d halls, series of %v", len(r.halls), b.series())
	}
	r = b.waves.begin(2)
	b.room.before = nil
	b.now = a.OpensAt
	b.round(r, a)
	r.end()
	if len(b.series()) != 0 {
		t.Error("a leader that is one no more still shows its waves")
	}
}

// TestALeadersWordsNeverLookOld: instances tell what is newer by its time.
func TestALeadersWordsNeverLookOld(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessFIFO)
	b.join(a, 0, 50)
	r := b.waves.begin(1)
	b.now = a.OpensAt.Add(30 * time.Second)
	b.round(r, a)
	before := b.state(a)
	b.now = b.now.Add(-29 * time.Second) // the wall clock steps back
	b.round(r, a)
	if after := b.state(a); !after.EmitAt.After(before.EmitAt) || watermark(after) <= watermark(before) {
		t.Errorf("%+v after %+v", after, before)
	}
}

// TestAnEventThatIsLostStopsNothing.
func TestAnEventThatIsLostStopsNothing(t *testing.T) {
	b := newBed(t)
	a := b.sale("10001", admission.FairnessFIFO)
	b.join(a, 0, 20)
	b.events.fail = errGone
	b.now = a.OpensAt
	r := b.waves.begin(1)
	b.round(r, a)
	b.now = b.now.Add(300 * time.Millisecond)
	b.round(r, a)
	if s := b.state(a); len(b.released(a, s)) != 20 || b.log.Len() > 0 {
		t.Errorf("%d released; log:\n%s", len(b.released(a, s)), b.log)
	}
}

// TestALeaderThatIsStillReading: a log that takes more than one step to read. The waves go
// on by proportion: never over those in the draw to those behind it, and exactly again
// once all is read.
func TestALeaderThatIsStillReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drawn, joined = 2*membersPage*pagesPerStep + 10, 2*membersPage*pagesPerStep + 5_000
		room := &longRoom{joined: joined}
		b := newBedOn(t, room)
		room.base, room.late = b.base, drawn
		a := b.sale("10001", admission.FairnessRandom)
		a.OpensAt, a.ClosesAt = b.base.Add(time.Hour), b.base.Add(2*time.Hour)
		room.closes = a.DrawClosesAt()
		b.now = a.DrawClosesAt().Add(drawMargin)
		first := b.waves.begin(1)
		for range 3 { // it takes three steps to read the log
			if !room.state.Seal.Zero() {
				t.Fatal("sealed before the log was read to its end")
			}
			b.round(first, a)
		}
		if room.state.Seal.Drawn != drawn {
			t.Fatalf("%+v; log:\n%s", room.state, b.log)
		}
		b.now = a.OpensAt
		b.round(first, a)
		second := b.waves.begin(2)
		last := watermark(room.state)
		for i := range 4 {
			b.now = b.now.Add(300 * time.Millisecond)
			b.round(second, a)
			w := watermark(room.state)
			if w <= last || w >= waitroom.Drawn/100 {
				t.Fatalf("step %d: watermark %d after %d: some hundredths of a thousandth are due", i, w, last)
			}
			last = w
		}
		if h := second.halls[a.ID]; !h.line.Sealed() || h.records.Released != h.line.Released(last) {
			t.Errorf("sealed %v, %d released by the records", h.line.Sealed(), h.records.Released)
		}
		if b.log.Len() > 0 {
			t.Errorf("log:\n%s", b.log)
		}
	})
}

// TestLead: rounds come in their rhythm and end with the context.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &longRoom{joined: 1000, base: time.Now()}
		b := newBedOn(t, room)
		b.waves.Now = time.Now
		a := b.sale("10001", admission.FairnessFIFO)
		a.OpensAt = time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 3100*time.Millisecond)
		defer stop()
		policy := b.waves.Policy(a)
		policy.Interval = 300 * time.Millisecond
		b.waves.Policy = func(*admission.Activity) waitroom.WavePolicy { return policy }
		b.waves.Lead(ctx, 7, func() []*admission.Activity { return []*admission.Activity{a} })
		if got := room.state.Lanes[waitroom.DefaultLane].Released; got != 11*10 || room.state.Term != 7 {
			t.Errorf("%d released in 3.1 s at 10 every 300 ms, term %d", got, room.state.Term)
		}
	})
}

// longRoom is a room in memory with a log that is made up as it is read.
type longRoom struct {
	admission.Room
	joined, late int64 // late: those after it joined after the draw closed
	base, closes time.Time
	state        admission.RoomState
}

func (r *longRoom) Members(_ context.Context, _ string, from admission.RoomCursor, limit int) ([]admission.Place, admission.RoomCursor, bool, error) {
	var page []admission.Place
	n := int64(0)
	if from != nil {
		n = from[0]
	}
	for ; n < r.joined && len(page) < limit; n++ {
		p := admission.Place{UserID: fmt.Sprint(70_000_001 + n), Lane: waitroom.DefaultLane, JoinedAt: r.base, Sequence: n + 1}
		if n >= r.late {
			p.JoinedAt = r.closes
		}
		page = append(page, p)
	}
	return page, admission.RoomCursor{n}, len(page) == limit, nil
}

func (r *longRoom) Joined(context.Context, string) (admission.RoomCount, error) {
	return admission.RoomCount{People: r.joined, Last: r.joined}, nil
}

func (*longRoom) Open(context.Context, string) error { return nil }

func (*longRoom) CloseDraw(context.Context, string, time.Time) error { return nil }

func (r *longRoom) State(context.Context, string) (admission.RoomState, error) { return r.state, nil }

func (r *longRoom) SetState(_ context.Context, _ string, s admission.RoomState) error {
	r.state = s
	return nil
}

func recordsOf(t *testing.T, s admission.RoomState) (r waitroom.Records) {
	t.Helper()
	if err := json.Unmarshal(s.Waves, &r); err != nil {
		t.Fatal(err)
	}
	return r
}
