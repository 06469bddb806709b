package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/guard"
)

// store is a stock store that can be told to fail. One goroutine uses it.
type store struct {
	admission.Stock
	err   error
	calls int
	hold  chan struct{} // nil: answer at once
}

func (s *store) Reserve(context.Context, admission.ReserveArgs) (admission.ReserveResult, error) {
	s.calls++
	if s.hold != nil {
		<-s.hold
	}
	return admission.ReserveResult{Code: admission.Reserved}, s.err
}

type bed struct {
	t       *testing.T
	store   *store
	breaker *guard.Breaker
	stock   *guard.Stock
}

// inTime runs a test under a virtual clock.
func inTime(t *testing.T, f func(b *bed)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, store: &store{}, breaker: guard.NewBreaker("stock", guard.DefaultPolicy())}
		b.stock = guard.NewStock(b.store, b.breaker)
		f(b)
	})
}

func (b *bed) call(err error, times int) {
	for range times {
		b.store.err = err
		_, _ = b.stock.Reserve(b.t.Context(), admission.ReserveArgs{})
	}
}

func (b *bed) want(s guard.State) {
	b.t.Helper()
	if got := b.breaker.State(); got != s {
		b.t.Errorf("state %d, want %d", got, s)
	}
}

// refuses checks that nothing goes out, and what the caller hears.
func (b *bed) refuses() {
	b.t.Helper()
	calls := b.store.calls
	b.store.err = nil
	if _, err := b.stock.Reserve(b.t.Context(), admission.ReserveArgs{}); !errors.Is(err, admission.ErrUnavailable) || b.store.calls != calls {
		b.t.Errorf("%v after %d calls; want ErrUnavailable and none", err, b.store.calls-calls)
	}
}

var errCut = admission.ErrUnknownResult

func TestOpensAtHalfOfTwenty(t *testing.T) {
	inTime(t, func(b *bed) {
		b.call(errCut, 19)
		b.want(guard.Closed) // too few
		b.call(nil, 1)
		b.call(errCut, 1)
		b.want(guard.Open)
		b.refuses()
	})
	inTime(t, func(b *bed) {
		b.call(nil, 60)
		b.call(errCut, 58)
		b.want(guard.Closed)
		b.call(errCut, 2)
		b.want(guard.Open)
	})
	inTime(t, func(b *bed) {
		b.call(errCut, 15)
		time.Sleep(1200 * time.Millisecond) // out of the window
		b.call(errCut, 15)
		b.want(guard.Closed)
	})
}

// TestOpenDoubles: 1 s, 2 s, 4 s, at most 30 s; from the start again once it has closed.
func TestOpenDoubles(t *testing.T) {
	inTime(t, func(b *bed) {
		b.call(errCut, 20)
		for _, delay := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			time.Sleep(delay*time.Second - time.Millisecond)
			b.refuses()
			time.Sleep(time.Millisecond)
			b.call(errCut, 1) // the probe
			b.want(guard.Open)
		}
		time.Sleep(30 * time.Second)
		b.call(nil, 1)
		b.want(guard.HalfOpen)
		b.call(nil, 1)
		b.want(guard.Closed)
		b.call(errCut, 20)
		time.Sleep(time.Second)
		b.call(nil, 2)
		b.want(guard.Closed)
	})
}

// TestProbesAreFew: half open lets out as many calls as must succeed, and no more.
func TestProbesAreFew(t *testing.T) {
	inTime(t, func(b *bed) {
		b.call(errCut, 20)
		time.Sleep(time.Second)
		b.store.err, b.store.hold, b.store.calls = nil, make(chan struct{}), 0
		for range 2 {
			go func() { _, _ = b.stock.Reserve(b.t.Context(), admission.ReserveArgs{}) }()
			synctest.Wait()
		}
		b.refuses()
		close(b.store.hold)
		synctest.Wait()
		b.want(guard.Closed)
	})
}

// TestLateAnswersDoNotCount: a call begun before the breaker opened says nothing after it.
func TestLateAnswersDoNotCount(t *testing.T) {
	inTime(t, func(b *bed) {
		b.store.hold = make(chan struct{})
		for range 4 {
			go func() { _, _ = b.stock.Reserve(b.t.Context(), admission.ReserveArgs{}) }()
			synctest.Wait()
		}
		slow := b.store.hold
		b.store.hold = nil
		b.call(errCut, 20)
		time.Sleep(time.Second)
		b.call(nil, 1)
		b.want(guard.HalfOpen)
		close(slow)
		synctest.Wait()
		b.want(guard.HalfOpen)
	})
}

// TestCallersWhoLeave say nothing about the store; a probe of theirs keeps it open.
func TestCallersWhoLeave(t *testing.T) {
	inTime(t, func(b *bed) {
		gone, cancel := context.WithCancel(b.t.Context())
		cancel()
		b.store.err = context.Canceled
		for range 100 {
			_, _ = b.stock.Reserve(gone, admission.ReserveArgs{})
		}
		b.want(guard.Closed)
		b.call(errCut, 20)
		time.Sleep(time.Second)
		_, _ = b.stock.Reserve(gone, admission.ReserveArgs{})
		b.want(guard.Open)
	})
}

// TestPolicyChangeKeepsTheState.
func TestPolicyChangeKeepsTheState(t *testing.T) {
	inTime(t, func(b *bed) {
		b.call(errCut, 20)
		p := guard.DefaultPolicy()
		p.MinCalls = 5
		b.breaker.Apply(p)
		b.want(guard.Open)
		b.refuses()
		time.Sleep(time.Second)
		b.call(nil, 2)
		b.want(guard.Closed)
		b.call(errCut, 5)
		b.want(guard.Open)
	})
}

// TestMetrics also guards claims, and a panic on the way counts as a failure.
func TestMetrics(t *testing.T) {
	inTime(t, func(b *bed) {
		limiter := guard.NewBreaker("limiter", guard.DefaultPolicy())
		nonces := guard.NewNonces(panics{}, limiter)
		for range 20 {
			func() {
				defer func() { _ = recover() }()
				_, _ = nonces.Claim(b.t.Context(), admission.ClaimArgs{})
			}()
		}
		if _, err := nonces.Claim(b.t.Context(), admission.ClaimArgs{}); !errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		reg := prometheus.NewRegistry()
		guard.Register(reg, b.breaker, limiter)
		want := `
			# HELP seckill_dependency_breaker_refused_total Calls that an open breaker did not make.
			# TYPE seckill_dependency_breaker_refused_total counter
			seckill_dependency_breaker_refused_total{dependency="limiter"} 1
			seckill_dependency_breaker_refused_total{dependency="stock"} 0
			# HELP seckill_dependency_breaker_state Where the breaker stands: 0 closed, 1 half open, 2 open.
			# TYPE seckill_dependency_breaker_state gauge
			seckill_dependency_breaker_state{dependency="limiter"} 2
			seckill_dependency_breaker_state{dependency="stock"} 0
		`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

type panics struct{}

func (panics) Claim(context.Context, admission.ClaimArgs) (admission.ClaimResult, error) {
	panic("boom")
}
