package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	micro     = 1_000_000 // micro-tokens of a token
	maxRate   = 1e9       // tokens per second
	maxBurst  = 4e9       // tokens; in micro-tokens still below 2^53
	maxAskers = 1000      // remembered in one bucket
)

var errArguments = errors.New("an argument is out of range")

// Memory implements admission.Leases in this process: the arithmetic of lease_ask.lua and
// lease_budget.lua, for simulations in virtual time. The suite that the Redis store passes
// ties the two together.
type Memory struct {
	clock func() time.Time // the server's wall clock; it may step

	mu      sync.Mutex
	buckets map[admission.SKURef]*level // guarded by mu; as many as SetBudget has made
}

// level is one bucket in the store.
type level struct {
	budget admission.Budget
	rate   int64 // thousandths of a token per second, so that rate x ms is micro-tokens
	micro  int64
	last   int64 // ms
	askers map[string]asker
}

// asker is what is remembered of an instance for two leases.
type asker struct {
	weight  int64 // thousandths
	seq     uint64
	at      int64 // ms
	granted int64
	retry   int64 // ms
}

// NewMemory returns a store without budgets.
func NewMemory(clock func() time.Time) *Memory {
	return &Memory{clock: clock, buckets: make(map[admission.SKURef]*level)}
}

// Restart is what a restart or a failover does to every bucket: it begins empty.
func (m *Memory) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.buckets {
		l.micro, l.last = 0, m.clock().UnixMilli()
	}
}

// SetBudget implements admission.Leases.
func (m *Memory) SetBudget(_ context.Context, b admission.Budget) error {
	if math.IsNaN(b.Rate) || b.Rate < 0 || b.Rate > maxRate || b.Burst < 0 || b.Burst > maxBurst {
		return fmt.Errorf("budget: %w: %w", errArguments, admission.ErrUnavailable)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock().UnixMilli()
	l := m.buckets[b.Ref]
	if l == nil {
		l = &level{last: now, askers: make(map[string]asker)}
		m.buckets[b.Ref] = l
	}
	if b.Term < l.budget.Term {
		return fmt.Errorf("budget: term %d is behind %d: %w", b.Term, l.budget.Term, admission.ErrConflict)
	}
	l.settle(now)
	l.budget, l.rate = b, thousandths(b.Rate)
	l.micro = min(l.micro, b.Burst*micro)
	return nil
}

// Budget implements admission.Leases.
func (m *Memory) Budget(_ context.Context, ref admission.SKURef) (admission.Budget, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.buckets[ref]; l != nil {
		return l.budget, nil
	}
	return admission.Budget{}, fmt.Errorf("budget: %w", admission.ErrNotFound)
}

// Ask implements admission.Leases.
func (m *Memory) Ask(ctx context.Context, asks []admission.LeaseAsk) ([]admission.LeaseAnswer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ask: %w: %w", err, admission.ErrUnavailable)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	answers := make([]admission.LeaseAnswer, len(asks))
	failed := 0
	for i, a := range asks {
		answers[i] = m.ask(a)
		if answers[i].Err != nil {
			failed++
		}
	}
	if failed > 0 && failed == len(asks) {
		return answers, answers[0].Err
	}
	return answers, nil
}

// ask answers one ask. The caller holds mu.
func (m *Memory) ask(a admission.LeaseAsk) admission.LeaseAnswer {
	weight, ramp, lease := thousandths(a.Weight), thousandths(a.Ramp), a.LeaseFor.Milliseconds()
	if a.InstanceID == "" || a.Seq == 0 || a.Want < 1 || a.Want > maxWant || weight < 1 || weight > 1e6 || lease < 1 || lease > 60_000 || ramp < 1 || ramp > 1000 {
		return admission.LeaseAnswer{Err: fmt.Errorf("ask: %w: %w", errArguments, admission.ErrUnavailable)}
	}
	now := m.clock().UnixMilli()
	l := m.buckets[a.Ref]
	if l == nil {
		return admission.LeaseAnswer{RetryAfter: a.LeaseFor}
	}
	owed, weights := l.owed(a.InstanceID, now, lease)
	mine, known := l.askers[a.InstanceID]
	switch {
	case known && a.Seq == mine.seq:
		return l.answer(mine.granted, mine.retry)
	case known && a.Seq < mine.seq, !known && len(l.askers) >= maxAskers:
		return l.answer(0, lease)
	}
	l.settle(now)

	since := lease
	if known {
		since = min(lease, max(now-mine.at, 0))
	}
	weights += weight
	share := float64(l.rate) / float64(weights)
	own := share * float64(weight*since)
	nobodys := max(0, float64(l.micro)-own-share*owed)
	most := max(1, int64(math.Ceil((own+nobodys)/micro-1e-9)))
	most = max(1, most*ramp/1000)
	granted := min(a.Want, most, l.micro/micro)
	l.micro -= granted * micro
	retry := int64(0)
	if granted == 0 {
		retry = 1000
		if l.rate > 0 {
			retry = max(1, ceilDiv(micro-l.micro, l.rate))
		}
	}
	l.askers[a.InstanceID] = asker{weight: weight, seq: a.Seq, at: now, granted: granted, retry: retry}
	return l.answer(granted, retry)
}

// owed forgets who has not asked for two leases and sums weight x ms of the others.
func (l *level) owed(me string, now, lease int64) (owed float64, weights int64) {
	for id, o := range l.askers {
		if o.at > now { // the clock went back: nobody is owed a time that has not been
			o.at = now
			l.askers[id] = o
		}
		if now-o.at > 2*lease {
			delete(l.askers, id)
		} else if id != me {
			owed += float64(o.weight * min(lease, now-o.at))
			weights += o.weight
		}
	}
	return owed, weights
}

// settle credits the time since the last settling at the rate in force; a clock that
// went back credits nothing.
func (l *level) settle(now int64) {
	full := l.budget.Burst * micro
	if now > l.last && l.rate > 0 && l.micro < full {
		ms := min(now-l.last, ceilDiv(full-l.micro, l.rate)) // bounds the product
		l.micro = min(full, l.micro+ms*l.rate)
	}
	l.last = now
}

func (l *level) answer(granted, retry int64) admission.LeaseAnswer {
	return admission.LeaseAnswer{
		Granted: granted, RetryAfter: time.Duration(retry) * time.Millisecond, Rate: float64(l.rate) / 1000,
	}
}

func thousandths(x float64) int64 { return int64(math.Floor(x*1000 + 1e-6)) }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
