// Package handbook is the guard of the handbooks: a limiter, a timeout and a breaker round
// one call, with their numbers.
//
// What it promises: a call that the limiter refuses is not made and is "you are too fast"
// (429, [Limited]). A call is cut off after 500 ms. Three timeouts in a row while at least
// 100 calls a second come in open the breaker: for 30 s every call is refused at once (503,
// [Open]); then two at a time go out, two successes close it and one timeout opens it again.
// Errors other than a timeout are the callee's own business and end a row of timeouts.
//
// The service itself does not use it: package guard opens by a share of failures, which a
// single success among many timeouts does not hide, and probes within a second.
package handbook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/timeout"
)

// Config of a Guard; the zero value of a field is the handbook's number.
type Config struct {
	Timeout   time.Duration // of a call; 500 ms
	Timeouts  uint          // in a row that open; 3
	Busy      float64       // calls a second, fewer open nothing; 100
	Open      time.Duration // 30 s
	Successes uint          // that close; 2

	// Limiter decides before the call; nil admits all.
	Limiter func() (ok bool, retryAfter time.Duration)
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 500 * time.Millisecond
	}
	if c.Timeouts == 0 {
		c.Timeouts = 3
	}
	if c.Busy == 0 {
		c.Busy = 100
	}
	if c.Open == 0 {
		c.Open = 30 * time.Second
	}
	if c.Successes == 0 {
		c.Successes = 2
	}
	if c.Limiter == nil {
		c.Limiter = func() (bool, time.Duration) { return true, 0 }
	}
	return c
}

// Limited is a refusal by the limiter: 429.
type Limited struct{ RetryAfter time.Duration }

func (e *Limited) Error() string {
	return fmt.Sprintf("too fast; come back in %v", e.RetryAfter)
}

// Open is a refusal by the breaker: 503.
type Open struct{ RetryAfter time.Duration }

func (e *Open) Error() string { return fmt.Sprintf("circuit open for %v", e.RetryAfter) }

// ErrTimeout is a call that was cut off. It may have happened.
var ErrTimeout = timeout.ErrExceeded

// Guard guards one callee.
type Guard struct {
	config   Config
	breaker  circuitbreaker.CircuitBreaker[any]
	executor failsafe.Executor[any]

	mu   sync.Mutex
	rate meter // guarded by mu
}

// New returns a closed guard.
func New(c Config) *Guard {
	c = c.withDefaults()
	return &Guard{
		config: c,
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureThreshold(c.Timeouts).
			WithSuccessThreshold(c.Successes).
			WithDelay(c.Open).
			Build(),
		executor: failsafe.With(timeout.New[any](c.Timeout)),
	}
}

// Do calls f unless something refuses. f must return when its context ends: a call that
// does not heed it is waited for.
func (g *Guard) Do(ctx context.Context, f func(context.Context) error) error {
	if ok, wait := g.config.Limiter(); !ok {
		return &Limited{wait}
	}
	busy := g.arrived(time.Now())
	if !g.breaker.TryAcquirePermit() {
		return &Open{g.breaker.RemainingDelay()}
	}
	probing := g.breaker.IsHalfOpen()
	err := g.executor.WithContext(ctx).RunWithExecution(func(e failsafe.Execution[any]) error { return f(e.Context()) })
	switch {
	case !errors.Is(err, ErrTimeout):
		g.breaker.RecordSuccess()
	case busy || probing:
		g.breaker.RecordFailure()
	}
	return err
}

// Closed reports whether calls go out freely.
func (g *Guard) Closed() bool { return g.breaker.IsClosed() }

// arrived counts a call and reports whether there are enough of them.
func (g *Guard) arrived(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rate.add(now) >= g.config.Busy
}

// meter counts calls over the last second: the window that runs, and of the one before
// the share that the last second still covers.
type meter struct {
	second    int64 // Unix time of the window
	now, last float64
}

func (m *meter) add(t time.Time) float64 {
	switch second := t.Unix(); second {
	case m.second:
	case m.second + 1:
		m.second, m.last, m.now = second, m.now, 0
	default:
		m.second, m.last, m.now = second, 0, 0
	}
	m.now++
	return m.now + m.last*(1-float64(t.Nanosecond())/1e9)
}
