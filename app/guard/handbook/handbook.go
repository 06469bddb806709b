// Package handbook is the guard of the handbooks: a limiter, a timeout and a breaker round
// one call, with their numbers.
//
// What it promises: a call that the limiter refuses is not made and is "you are too fast"
// (429, [Limited]). A call is cut off after 500 ms. Three timeouts in a row while at least
// 100 calls a second come in open the breaker: for 30 s every call is refused at once (503,
// [Open]); then two at a time go out, two successes close it and one timeout opens it again.
// Errors other than a timeout are the callee's own business and end a row of timeouts. A call
// whose caller left, or that panicked, says nothing; a probe that says nothing has failed.
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
	// Now reads a clock that does not go back, from whatever beginning; nil: the process's.
	Now func() time.Duration
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
	if c.Now == nil {
		start := time.Now()
		c.Now = func() time.Duration { return time.Since(start) }
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
	executor failsafe.Executor[any]

	mu      sync.Mutex
	breaker circuitbreaker.CircuitBreaker[any] // guarded by mu, so that a permit knows its state
	term    int64                              // guarded by mu; grows with each change of state
	rate    meter                              // guarded by mu
}

// New returns a closed guard.
func New(c Config) *Guard {
	c = c.withDefaults()
	g := &Guard{config: c, executor: failsafe.With(timeout.New[any](c.Timeout))}
	g.breaker = circuitbreaker.NewBuilder[any]().
		WithFailureThreshold(c.Timeouts).
		WithSuccessThreshold(c.Successes).
		WithDelay(c.Open).
		OnStateChanged(func(circuitbreaker.StateChangedEvent) { g.term++ }). // under g.mu
		Build()
	return g
}

// Do calls f unless something refuses. f must return when its context ends: a call that
// does not heed it is waited for.
func (g *Guard) Do(ctx context.Context, f func(context.Context) error) error {
	if ok, wait := g.config.Limiter(); !ok {
		return &Limited{wait}
	}
	p, err := g.acquire()
	if err != nil {
		return err
	}
	ended := unknown // a panic
	defer func() { g.settle(p, ended) }()
	err = g.executor.WithContext(ctx).RunWithExecution(func(e failsafe.Execution[any]) error { return f(e.Context()) })
	ended = endOf(ctx, err)
	return err
}

// Closed reports whether calls go out freely.
func (g *Guard) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.breaker.IsClosed()
}

// permit is the right to make one call; settle must follow.
type permit struct {
	term  int64
	busy  bool // there were enough calls when it was given
	probe bool
}

func (g *Guard) acquire() (permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	busy := g.rate.add(g.config.Now()) >= g.config.Busy
	if !g.breaker.TryAcquirePermit() {
		return permit{}, &Open{g.breaker.RemainingDelay()}
	}
	return permit{g.term, busy, g.breaker.IsHalfOpen()}, nil
}

// end is how a call ended.
type end uint8

const (
	unknown  end = iota // the caller left, or f panicked: it says nothing about the callee
	answered            // an error of the callee's own is an answer
	timedOut
)

func endOf(ctx context.Context, err error) end {
	switch {
	case errors.Is(err, ErrTimeout):
		return timedOut
	case err != nil && ctx.Err() != nil:
		return unknown
	}
	return answered
}

// settle records how a call ended. One of an earlier term is not of the breaker's present
// business. A probe must be told as something, or its place is never free again: one that
// says nothing has failed.
func (g *Guard) settle(p permit, e end) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case p.term != g.term:
	case e == answered:
		g.breaker.RecordSuccess()
	case p.probe || e == timedOut && p.busy:
		g.breaker.RecordFailure()
	}
}

// meter counts calls over the last second: the window that runs, and of the one before
// the share that the last second still covers.
type meter struct {
	second    time.Duration // when the window began
	now, last float64
}

// add counts a call at t and returns how many there were. A reading before the window counts
// at its beginning.
func (m *meter) add(t time.Duration) float64 {
	t = max(t, m.second)
	switch second := t.Truncate(time.Second); second {
	case m.second:
	case m.second + time.Second:
		m.second, m.last, m.now = second, m.now, 0
	default:
		m.second, m.last, m.now = second, 0, 0
	}
	m.now++
	return m.now + m.last*(1-(t-m.second).Seconds())
}
