package handbook_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-io/sluice/app/guard/handbook"
)

func fine(context.Context) error { return nil }

// stuck is a call that nobody answers.
func stuck(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

var errOwn = errors.New("the callee's own error")

func broken(context.Context) error { return errOwn }

// together makes calls at once and waits for them.
func together(t *testing.T, g *handbook.Guard, n int, f func(context.Context) error) (errs []error) {
	t.Helper()
	out := make(chan error, n)
	for range n {
		go func() { out <- g.Do(t.Context(), f) }()
	}
	for range n {
		errs = append(errs, <-out)
	}
	return errs
}

func open(err error) bool {
	var o *handbook.Open
	return errors.As(err, &o) && o.RetryAfter > 0
}

func TestThreeTimeoutsInARowUnderLoadOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := handbook.New(handbook.Config{})
		together(t, g, 150, fine)
		start := time.Now()
		for i, err := range together(t, g, 3, stuck) {
			if !errors.Is(err, handbook.ErrTimeout) {
				t.Fatalf("call %d: %v, want a timeout", i, err)
			}
		}
		if took := time.Since(start); took != 500*time.Millisecond {
			t.Errorf("cut off after %v", took)
		}
		calls := 0
		err := g.Do(t.Context(), func(context.Context) error { calls++; return nil })
		if !open(err) || calls != 0 {
			t.Fatalf("%v and %d calls; want an open breaker and none", err, calls)
		}
		time.Sleep(30*time.Second - time.Millisecond)
		if !open(g.Do(t.Context(), fine)) {
			t.Error("half open before its time")
		}
		time.Sleep(time.Millisecond)
		if err := g.Do(t.Context(), stuck); !errors.Is(err, handbook.ErrTimeout) { // a probe fails
			t.Fatal(err)
		}
		if !open(g.Do(t.Context(), fine)) {
			t.Error("a failed probe left it half open")
		}
		time.Sleep(30 * time.Second)
		for i := range 2 {
			if g.Closed() {
				t.Errorf("closed after %d successes", i)
			}
			if err := g.Do(t.Context(), fine); err != nil {
				t.Error(err)
			}
		}
		if !g.Closed() {
			t.Error("two successes did not close it")
		}
	})
}

func TestWhatDoesNotOpen(t *testing.T) {
	timeouts := func(t *testing.T, g *handbook.Guard, n int) { together(t, g, n, stuck) }
	for name, f := range map[string]func(*testing.T, *handbook.Guard){
		"few calls": func(t *testing.T, g *handbook.Guard) {
			for range 5 {
				timeouts(t, g, 1)
			}
		},
		"a success between": func(t *testing.T, g *handbook.Guard) {
			together(t, g, 150, fine)
			timeouts(t, g, 2)
			together(t, g, 150, fine)
			timeouts(t, g, 2)
		},
		"errors of the callee": func(t *testing.T, g *handbook.Guard) {
			together(t, g, 300, broken)
		},
		"callers who leave": func(t *testing.T, g *handbook.Guard) {
			together(t, g, 150, fine)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for range 5 {
				_ = g.Do(ctx, stuck)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := handbook.New(handbook.Config{})
				f(t, g)
				if !g.Closed() {
					t.Error("it opened")
				}
			})
		})
	}
}

// halfOpen is a guard whose next call is a probe.
func halfOpen(t *testing.T) *handbook.Guard {
	t.Helper()
	g := handbook.New(handbook.Config{})
	together(t, g, 150, fine)
	together(t, g, 3, stuck)
	if g.Closed() {
		t.Fatal("three timeouts did not open it")
	}
	time.Sleep(30 * time.Second)
	return g
}

// TestWhatAProbeSays: one that panicked or whose caller left is no success, and frees its
// place: the guard opens anew and closes when somebody answers.
func TestWhatAProbeSays(t *testing.T) {
	panicking := func(ctx context.Context, g *handbook.Guard) {
		defer func() { _ = recover() }()
		_ = g.Do(ctx, func(context.Context) error { panic("boom") })
	}
	cancelled := func(ctx context.Context, g *handbook.Guard) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_ = g.Do(ctx, stuck)
	}
	late := func(ctx context.Context, g *handbook.Guard) {
		ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_ = g.Do(ctx, stuck)
	}
	for name, probe := range map[string]func(context.Context, *handbook.Guard){"panic": panicking, "cancelled": cancelled, "the caller's own deadline": late} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := halfOpen(t)
				for range 3 {
					probe(t.Context(), g)
					if g.Closed() {
						t.Fatal("it closed")
					}
					if !open(g.Do(t.Context(), fine)) {
						t.Fatal("it is not open after a probe that failed")
					}
					time.Sleep(30 * time.Second)
				}
				for range 2 {
					if err := g.Do(t.Context(), fine); err != nil {
						t.Fatal(err)
					}
				}
				if !g.Closed() {
					t.Error("two answers did not close it")
				}
			})
		})
	}
}

// TestCallersWhoLeaveBetween: they are no answer either, and do not hide a run of timeouts.
func TestCallersWhoLeaveBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := handbook.New(handbook.Config{})
		together(t, g, 200, fine)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		together(t, g, 2, stuck)
		_ = g.Do(gone, stuck)
		together(t, g, 1, stuck)
		if g.Closed() {
			t.Error("a caller who left broke the run of timeouts")
		}
	})
}

// TestLateAnswersDoNotCount: a call begun before the guard opened says nothing after it.
func TestLateAnswersDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := handbook.New(handbook.Config{Timeout: time.Hour, Open: time.Second})
		hold := make(chan struct{})
		out := make(chan error)
		for range 2 {
			go func() {
				out <- g.Do(t.Context(), func(context.Context) error { <-hold; return nil })
			}()
		}
		synctest.Wait()
		together(t, g, 150, fine)
		together(t, g, 3, func(context.Context) error { return handbook.ErrTimeout })
		if g.Closed() {
			t.Fatal("three timeouts did not open it")
		}
		time.Sleep(time.Second)
		if err := g.Do(t.Context(), fine); err != nil { // the first of two probes
			t.Fatal(err)
		}
		close(hold)
		for range 2 {
			if err := <-out; err != nil {
				t.Error(err)
			}
		}
		if g.Closed() {
			t.Error("answers to calls of long ago closed it")
		}
	})
}

// TestClockThatGoesBack: calls count on, whatever the given clock does.
func TestClockThatGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Hour
		g := handbook.New(handbook.Config{Now: func() time.Duration { return now }})
		together(t, g, 120, fine)
		now -= time.Minute
		together(t, g, 3, stuck)
		if g.Closed() {
			t.Error("a step back made 120 calls none")
		}
	})
}

func TestLimiterRefusesBeforeTheCall(t *testing.T) {
	calls, ok := 0, false
	g := handbook.New(handbook.Config{Limiter: func() (bool, time.Duration) { return ok, 2 * time.Second }})
	f := func(context.Context) error { calls++; return errOwn }
	var limited *handbook.Limited
	if err := g.Do(t.Context(), f); !errors.As(err, &limited) || limited.RetryAfter != 2*time.Second || calls != 0 {
		t.Errorf("%v and %d calls; want Limited and none", err, calls)
	}
	ok = true
	if err := g.Do(t.Context(), f); !errors.Is(err, errOwn) || calls != 1 {
		t.Errorf("%v and %d calls", err, calls)
	}
}

func BenchmarkGuard(b *testing.B) {
	g := handbook.New(handbook.Config{})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Do(ctx, fine); err != nil {
			b.Fatal(err)
		}
	}
}
