package lease

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	// maxLive bounds the leases that one bucket holds at once. Asks are 0.85 of a lease
	// apart and at most four were saved, so more than six are never alive together.
	maxLive = 8
	// backgroundLeast: a smaller lease is asked for only with a request in hand, or quiet
	// instances would hold tokens that the busy ones need.
	backgroundLeast = 4
	// longestBlock bounds how long a bucket does without asking after a zero grant: the
	// rate may have been raised meanwhile. Callers are told the true wait.
	longestBlock = time.Second
	never        = math.MaxInt64
)

// bucket is this instance's slice of one budget.
type bucket struct {
	ref admission.SKURef

	live  atomic.Pointer[[]*grant] // oldest first, at most maxLive; the slice is never changed
	tries atomic.Int64             // since the last ask

	// Monotonic instants, copies for readers without mu.
	refillAt atomic.Int64 // from when a background ask may be made; never while one is on its way
	askAt    atomic.Int64 // from when an ask for a request in hand may be made
	retryAt  atomic.Int64 // what a refused caller is told
	down     atomic.Bool  // the last ask failed
	pending  atomic.Pointer[asking]

	mu    sync.Mutex
	pace  pace    // guarded by mu
	need  demand  // guarded by mu
	asked Instant // guarded by mu; when the last ask began
}

func (b *bucket) init(ref admission.SKURef, born Instant) {
	b.ref, b.asked = ref, born
	b.live.Store(new([]*grant))
}

// asking is one ask on its way.
type asking struct {
	want    int64
	done    chan struct{} // closed when the answer is in the bucket
	waiters atomic.Int64
	late    atomic.Bool // somebody waited in vain: nobody else does
}

// join reports whether one more request may wait for this answer: no more than it can serve.
func (a *asking) join() bool {
	if a.late.Load() {
		return false
	}
	if a.waiters.Add(1) > a.want {
		a.waiters.Add(-1)
		return false
	}
	return true
}

// nearlyDue reports that an ask which goes anyway may as well carry this bucket's.
func (b *bucket) nearlyDue(now Instant) bool {
	live := *b.live.Load()
	if len(live) == 0 {
		return true
	}
	g := live[len(live)-1]
	return !g.alive(now) || g.left.Load() <= 4*g.low || g.low >= 0 && float64(now.Mono-g.sent.Mono) >= 0.5*float64(g.life)
}

// take spends one token, the oldest first: those die first. due reports that the next
// ask is due.
func (b *bucket) take(now Instant) (g *grant, due bool) {
	live := *b.live.Load()
	for i, g := range live {
		if !g.alive(now) {
			continue
		}
		left := g.take()
		if left < 0 {
			continue
		}
		return g, i == len(live)-1 && g.due(left, now) && now.Mono >= b.refillAt.Load()
	}
	return nil, false
}

// left counts the live tokens.
func (b *bucket) left(now Instant) int64 {
	var n int64
	for _, g := range *b.live.Load() {
		if g.alive(now) {
			n += g.left.Load()
		}
	}
	return n
}

// occasion is why an ask is made: what the pace allows depends on it.
type occasion uint8

const (
	inHand    occasion = iota // a request waits: saved asks may be used
	due                       // little is left
	companion                 // an ask goes anyway
)

// begin makes an ask if the pace allows one and none is on its way.
func (b *bucket) begin(now Instant, p Policy, uptime time.Duration, jitter float64, why occasion) (*asking, admission.LeaseAsk, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var at int64
	switch why {
	case inHand:
		at = b.pace.inHand()
	case due:
		at = b.pace.background()
	case companion:
		at = b.pace.early()
	}
	if b.pending.Load() != nil || now.Mono < at {
		return nil, admission.LeaseAsk{}, false
	}
	need := b.need
	want := need.next(b.tries.Load(), time.Duration(now.Mono-b.asked.Mono), p.LeaseFor)
	if why != inHand && want < backgroundLeast {
		b.refillAt.Store(now.Mono + int64(p.LeaseFor)) // demand fell: do not look again at every request
		return nil, admission.LeaseAsk{}, false
	}
	want = min(max(want, 1), maxWant)
	b.tries.Store(0) // a try lost here is one in thousands
	b.need = need
	b.asked = now
	b.pace.asked(now.Mono, p.LeaseFor, jitter)
	b.retryAt.Store(b.pace.inHand()) // for those who do not wait for this one
	a := &asking{want: want, done: make(chan struct{})}
	b.pending.Store(a) // first: whoever finds that nobody may ask finds why
	b.refillAt.Store(never)
	b.askAt.Store(never)
	return a, admission.LeaseAsk{
		Ref: b.ref, Want: want, Weight: p.Weight, LeaseFor: p.LeaseFor, Ramp: p.ramp(uptime),
	}, true
}

// maxWant is the most that the store's script takes; no instance spends as much in a lease.
const maxWant = 1e9

// settle takes in the answer of an ask that was sent at sent, and lets the waiters go.
// It returns how many tokens died unspent meanwhile.
func (b *bucket) settle(a *asking, ask admission.LeaseAsk, answer admission.LeaseAnswer, sent, now Instant) (wasted int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down.Store(answer.Err != nil)
	retry := int64(0)
	switch {
	case answer.Err != nil:
		// It may have been granted: then it is spent. The next ask has a new sequence, and
		// the pace alone spaces it: one lost reply must not cost a whole lease.
	case answer.Granted <= 0:
		b.pace.block(now.Mono + int64(min(answer.RetryAfter, longestBlock)))
		retry = now.Mono + int64(answer.RetryAfter)
	default:
		g := &grant{sent: sent, life: int64(ask.LeaseFor), low: -1}
		g.left.Store(answer.Granted)
		if ask.Want >= backgroundLeast {
			g.low = int64(lowWater * float64(ask.Want))
		}
		wasted = b.hold(g, now)
	}
	b.refillAt.Store(b.pace.background())
	b.askAt.Store(b.pace.inHand())
	b.retryAt.Store(max(b.pace.inHand(), retry))
	b.pending.Store(nil)
	close(a.done)
	return wasted
}

// sweep drops what is dead and returns how many tokens died unspent.
func (b *bucket) sweep(now Instant) (wasted int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hold(nil, now)
}

// hold adds a grant (nil: none) and drops dead ones. The caller holds mu.
func (b *bucket) hold(more *grant, now Instant) (wasted int64) {
	old := *b.live.Load()
	live := make([]*grant, 0, min(len(old)+1, maxLive))
	for i, g := range old {
		if g.alive(now) && (len(old)-i < maxLive || more == nil) {
			live = append(live, g)
		} else {
			wasted += g.left.Swap(0)
		}
	}
	if more != nil {
		live = append(live, more)
	}
	b.live.Store(&live)
	return wasted
}
