package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
)

// lockDrift is what the lock store takes off the trust, as the real one does.
const lockDrift = 150 * time.Millisecond

// locks is one role's lock on the test's clock.
type locks struct {
	mu      sync.Mutex
	holder  *lock
	expires time.Time
}

func (l *locks) Acquire(_ context.Context, _ string, ttl time.Duration) (admission.Held, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != nil && time.Now().Before(l.expires) {
		return nil, fmt.Errorf("held: %w", admission.ErrConflict)
	}
	l.holder, l.expires = &lock{of: l, ttl: ttl, until: time.Now().Add(ttl - lockDrift)}, time.Now().Add(ttl)
	return l.holder, nil
}

type lock struct {
	of    *locks
	ttl   time.Duration
	until time.Time
}

func (h *lock) Until() time.Time { return h.until }

func (h *lock) Extend(context.Context) error {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if h.of.holder != h || !time.Now().Before(h.of.expires) {
		return fmt.Errorf("expired: %w", admission.ErrConflict)
	}
	h.until, h.of.expires = time.Now().Add(h.ttl-lockDrift), time.Now().Add(h.ttl)
	return nil
}

func (h *lock) Release(context.Context) error {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if h.of.holder == h {
		h.of.holder = nil
	}
	return nil
}

// cut is a lock store behind a line that can be cut: what is held then expires.
type cut struct {
	admission.Leadership
	extend  func(ctx context.Context, h admission.Held) error // nil: the store's
	release func() error                                      // nil: the store's
	began   func(h admission.Held)                            // nil: nobody looks
}

type cutLock struct {
	admission.Held
	c *cut
}

func (c *cut) Acquire(ctx context.Context, role string, ttl time.Duration) (admission.Held, error) {
	h, err := c.Leadership.Acquire(ctx, role, ttl)
	if err != nil {
		return nil, err
	}
	if c.began != nil {
		c.began(h)
	}
	return &cutLock{h, c}, nil
}

func (h *cutLock) Extend(ctx context.Context) error {
	if h.c.extend != nil {
		return h.c.extend(ctx, h.Held)
	}
	return h.Held.Extend(ctx)
}

func (h *cutLock) Release(ctx context.Context) error {
	if h.c.release != nil {
		return h.c.release()
	}
	return h.Held.Release(ctx)
}

// terms is the SQL sequence.
type terms struct {
	admission.Orders
	last atomic.Int64
	hang bool
}

func (t *terms) NextTerm(ctx context.Context) (int64, error) {
	if t.hang {
		<-ctx.Done()
		return 0, fmt.Errorf("term: %w: %w", admission.ErrUnavailable, ctx.Err())
	}
	return t.last.Add(1), nil
}

var errGone = fmt.Errorf("no answer: %w", admission.ErrUnavailable)

// lead is one stretch of leading, as work saw it.
type lead struct {
	who        string
	term       int64
	began, end time.Time
}

// watch records who leads when, and that nobody else does at the time.
type watch struct {
	t       *testing.T
	mu      sync.Mutex
	leading string
	past    []lead
	started chan lead // of every stretch
}

func newWatch(t *testing.T) *watch { return &watch{t: t, started: make(chan lead, 1000)} }

func (w *watch) work(who string) func(context.Context, int64) {
	return func(ctx context.Context, term int64) {
		now := lead{who: who, term: term, began: time.Now()}
		w.mu.Lock()
		if w.leading != "" {
			w.t.Errorf("%s leads beside %s", who, w.leading)
		}
		if n := len(w.past); n > 0 && w.past[n-1].term >= term {
			w.t.Errorf("term %d of %s after term %d", term, who, w.past[n-1].term)
		}
		w.leading = who
		w.mu.Unlock()
		w.started <- now
		<-ctx.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		now.end = time.Now()
		w.leading, w.past = "", append(w.past, now)
	}
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestTheOtherTakesOver(t *testing.T) {
	for _, c := range []struct {
		name    string
		crashes bool
		within  time.Duration
	}{
		{"after a release", false, leaderTTL / 6},
		{"after a crash, when the lock has expired", true, leaderTTL + leaderTTL/6},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, terms, w := &locks{}, &terms{}, newWatch(t)
				first := &cut{Leadership: store}
				if c.crashes {
					first.release = func() error { return errGone }
				}
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				a := &Leader{Locks: first, Orders: terms, Log: silent()}
				running.Go(func() { a.Run(ctx, w.work("a")) })
				if got := <-w.started; got.who != "a" || !a.Leading() {
					t.Fatalf("%+v leads, want a", got)
				}
				others, stopOthers := context.WithCancel(t.Context())
				b := &Leader{Locks: store, Orders: terms, Log: silent()}
				running.Go(func() { b.Run(others, w.work("b")) })
				time.Sleep(time.Minute) // of the bubble: renewals go on and b never leads
				if b.Leading() || len(w.past) != 0 {
					t.Fatal("the lock changed hands while its holder was well")
				}
				died := time.Now()
				stop()
				got := <-w.started
				if got.who != "b" || got.term != 2 {
					t.Errorf("%+v leads, want b in term 2", got)
				}
				if took := got.began.Sub(died); took > c.within || c.crashes && took < leaderTTL/2 {
					t.Errorf("taken over after %v, want within %v", took, c.within)
				}
				if a.Leading() || !b.Leading() {
					t.Error("Leading says otherwise")
				}
				stopOthers()
				running.Wait()
				if b.Leading() {
					t.Error("still leading after Run returned")
				}
			})
		})
	}
}

// TestWorkEndsBeforeTrust: whatever a renewal comes to, the work's context ends while
// nobody else can have the lock.
func TestWorkEndsBeforeTrust(t *testing.T) {
	for name, extend := range map[string]func(ctx context.Context, h admission.Held) error{
		"no answer":     func(context.Context, admission.Held) error { return errGone },
		"it hangs":      func(ctx context.Context, _ admission.Held) error { <-ctx.Done(); return errGone },
		"somebody else": func(context.Context, admission.Held) error { return fmt.Errorf("lost: %w", admission.ErrConflict) },
		"a slow answer does not stretch it": func(context.Context, admission.Held) error {
			time.Sleep(leaderTTL)
			return errGone
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var until time.Time
				store := &cut{Leadership: &locks{}, extend: extend, release: func() error { return errGone }, began: func(h admission.Held) {
					if until.IsZero() {
						until = h.Until()
					}
				}}
				w := newWatch(t)
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				l := &Leader{Locks: store, Orders: &terms{}, Log: silent()}
				running.Go(func() { l.Run(ctx, w.work("a")) })
				<-w.started
				<-w.started // it leads again once the lock has expired
				if first := w.past[0]; !first.end.Before(until) {
					t.Errorf("work ended %v after trust", first.end.Sub(until))
				}
				stop()
				running.Wait()
			})
		})
	}
}

// TestALateRenewalKeepsTheLead: one lost answer is no reason to change leaders.
func TestALateRenewalKeepsTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		store := &cut{Leadership: &locks{}, extend: func(ctx context.Context, h admission.Held) error {
			if tries++; tries%3 != 0 {
				return errGone
			}
			return h.Extend(ctx)
		}}
		w := newWatch(t)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		l := &Leader{Locks: store, Orders: &terms{}, Log: silent()}
		running.Go(func() { l.Run(ctx, w.work("a")) })
		<-w.started
		time.Sleep(time.Minute)
		if !l.Leading() || len(w.past) != 0 {
			t.Error("two lost answers of three cost the lead")
		}
		stop()
		running.Wait()
	})
}

// TestNoTermNoLead: without a fence nobody leads, and the lock is given back.
func TestNoTermNoLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &locks{}
		l := &Leader{Locks: store, Orders: &terms{hang: true}, Log: silent()}
		began := time.Now()
		err := l.once(t.Context(), func(context.Context, int64) { t.Error("led without a term") })
		if !errors.Is(err, admission.ErrUnavailable) || time.Since(began) >= leaderTTL-lockDrift {
			t.Errorf("%v after %v, want the fault before trust ends", err, time.Since(began))
		}
		if store.holder != nil || l.Leading() {
			t.Error("the lock is still held")
		}
	})
}

// TestWorkThatEndsLeadsAgain: with a greater term.
func TestWorkThatEndsLeadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int64
		ctx, stop := context.WithCancel(t.Context())
		l := &Leader{Locks: &locks{}, Orders: &terms{}, Log: silent()}
		l.Run(ctx, func(_ context.Context, term int64) {
			if got = append(got, term); len(got) == 3 {
				stop()
			}
		})
		if fmt.Sprint(got) != "[1 2 3]" {
			t.Errorf("terms %v", got)
		}
	})
}

// TestStartsAndStops: many candidates that come and go at any moment, some without giving
// the lock back: never two at a time, and terms only rise (watch says so).
func TestStartsAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, terms, w := &locks{}, &terms{}, newWatch(t)
		rnd := rand.New(rand.NewPCG(1, 2))
		var running sync.WaitGroup
		for i := range 200 {
			from, lives := time.Duration(rnd.IntN(60_000))*time.Millisecond, time.Duration(rnd.IntN(9_000))*time.Millisecond
			mine := &cut{Leadership: store}
			if i%4 == 0 {
				mine.release = func() error { return errGone }
			}
			running.Go(func() {
				time.Sleep(from)
				ctx, stop := context.WithTimeout(t.Context(), lives)
				defer stop()
				l := &Leader{Locks: mine, Orders: terms, Log: silent()}
				l.Run(ctx, w.work(fmt.Sprint(i)))
				if l.Leading() {
					t.Errorf("%d leads after Run returned", i)
				}
			})
		}
		running.Wait()
		if len(w.past) < 10 {
			t.Errorf("%d led, want many", len(w.past))
		}
	})
}

// store opens an embedded store of the test's own.
func store(t *testing.T) (url string) {
	t.Helper()
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.URL()
}

// TestLeadersOnRedis: the same on the store's own locks.
func TestLeadersOnRedis(t *testing.T) {
	client, err := redis.Open(t.Context(), store(t), redis.Options{Timeout: 20 * time.Second, DialTimeout: 20 * time.Second, PoolTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	terms, w := &terms{}, newWatch(t)
	stops := map[string]context.CancelFunc{}
	var running sync.WaitGroup
	for _, who := range []string{"a", "b"} {
		ctx, stop := context.WithCancel(t.Context())
		stops[who] = stop
		l := &Leader{Locks: redis.NewLeadership(client), Orders: terms, Log: silent()}
		running.Go(func() { l.Run(ctx, w.work(who)) })
	}
	first := <-w.started
	stops[first.who]()
	second := <-w.started
	for second.who == first.who { // so slow that it had lost the lead and won it again before the stop
		first, second = second, <-w.started
	}
	if second.term != first.term+1 {
		t.Errorf("%+v after %+v", second, first)
	}
	for _, stop := range stops {
		stop()
	}
	running.Wait()
}
