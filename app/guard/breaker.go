package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/sluice-io/sluice/app/admission"
)

// Policy says when a breaker opens and closes.
type Policy struct {
	FailureRatio float64       // of the calls in Window, in (0, 1]
	MinCalls     int64         // fewer in Window open nothing; at least 1
	Window       time.Duration // looked back over, in steps of a tenth
	Open         time.Duration // the first time it opens; doubled by each failed probe
	MaxOpen      time.Duration // doubled up to this
	Successes    int64         // in a row that close it, and probes let out at once; at least 1
}

// DefaultPolicy is that of the submit path (80-overload).
func DefaultPolicy() Policy {
	return Policy{FailureRatio: 0.5, MinCalls: 20, Window: time.Second, Open: time.Second, MaxOpen: 30 * time.Second, Successes: 2}
}

// delay is how long a breaker stays open that has opened before times in a row.
func (p Policy) delay(before int) time.Duration {
	d := p.Open
	for range before {
		if d > p.MaxOpen/2 { // the next step would be beyond it, or beyond all numbers
			return p.MaxOpen
		}
		d *= 2
	}
	return min(d, p.MaxOpen)
}

// State of a breaker, as the metric seckill_dependency_breaker_state shows it.
type State int

// The states.
const (
	Closed State = iota
	HalfOpen
	Open
)

// Breaker guards one dependency.
type Breaker struct {
	name string

	mu      sync.Mutex
	policy  Policy                             // guarded by mu
	circuit circuitbreaker.CircuitBreaker[any] // guarded by mu
	term    int64                              // guarded by mu; grows with each change of state
	until   time.Time                          // guarded by mu; open at least so long
	opened  int                                // guarded by mu; times in a row without closing
	refused int64                              // guarded by mu
}

// NewBreaker returns a closed breaker. The policy is one that rules have validated.
func NewBreaker(name string, p Policy) *Breaker {
	b := &Breaker{name: name, policy: p}
	b.circuit = b.build(p)
	return b
}

// build leaves the doubling to Breaker: failsafe computes a delay only for calls that it
// makes itself.
func (b *Breaker) build(p Policy) circuitbreaker.CircuitBreaker[any] {
	return circuitbreaker.NewBuilder[any]().
		WithFailureRateThreshold(p.FailureRatio, uint(p.MinCalls), p.Window).
		WithSuccessThreshold(uint(p.Successes)).
		WithDelay(p.Open).
		OnStateChanged(b.changed). // under b.mu: whoever moves the circuit holds it
		Build()
}

func (b *Breaker) changed(e circuitbreaker.StateChangedEvent) {
	b.term++
	switch e.NewState {
	case circuitbreaker.OpenState:
		b.until = time.Now().Add(b.policy.delay(b.opened))
		b.opened++
	case circuitbreaker.ClosedState:
		b.opened = 0
	case circuitbreaker.HalfOpenState:
	}
}

// Apply changes the policy. An open breaker stays open for as long as it was going to.
func (b *Breaker) Apply(p Policy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p == b.policy {
		return
	}
	closed, until, opened := b.circuit.IsClosed(), b.until, b.opened
	b.policy, b.circuit = p, b.build(p)
	if !closed {
		b.circuit.Open()
		b.until, b.opened = until, opened
	}
}

// State returns where the breaker stands now.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.circuit.IsClosed():
		return Closed
	case b.circuit.IsHalfOpen():
		return HalfOpen
	}
	return Open
}

// Refused returns how many calls were not made.
func (b *Breaker) Refused() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// permit is the right to make one call; done must follow.
type permit struct {
	breaker *Breaker
	term    int64
	probe   bool
}

func (b *Breaker) acquire() (permit, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.circuit.IsClosed() && time.Now().Before(b.until) || !b.circuit.TryAcquirePermit() {
		b.refused++
		return permit{}, false
	}
	return permit{b, b.term, b.circuit.IsHalfOpen()}, true
}

// done records how the call ended. A call of an earlier term is not of the breaker's
// present business: a slow success begun before it opened must not close it.
func (p permit) done(ctx context.Context, err error) {
	b := p.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	switch gaveUp := errors.Is(ctx.Err(), context.Canceled); {
	case p.term != b.term:
	case err == nil:
		b.circuit.RecordSuccess()
	case !gaveUp || p.probe: // a probe must be told as something, or its place is never free again
		b.circuit.RecordFailure()
	}
}

// call makes a guarded call.
func call[T any](ctx context.Context, b *Breaker, f func() (T, error)) (T, error) {
	p, ok := b.acquire()
	if !ok {
		var none T
		return none, fmt.Errorf("the breaker of %s is open: %w", b.name, admission.ErrUnavailable)
	}
	settled := false
	defer func() {
		if !settled { // a panic
			p.done(ctx, admission.ErrUnknownResult)
		}
	}()
	v, err := f()
	settled = true
	p.done(ctx, err)
	return v, err
}
