package limit

import (
	"sync"
	"time"
)

// LeakyBucket is a leaky bucket used as a meter: water drips out at the rate, a call
// pours n units in, and what would spill over is refused at once. It never queues and
// never waits, unlike the leaky bucket of traffic shaping.
//
// On a clock that does not go back its verdicts are those of [Bucket], to the
// nanosecond; it holds the level and the time of the last look, and therefore a mutex.
type LeakyBucket struct {
	rate Rate

	mu    sync.Mutex
	level int64   // guarded by mu; ns of dripping until empty
	last  Instant // guarded by mu; when level was true
}

// NewLeakyBucket returns an empty bucket that holds r.Burst() units and leaks at the rate.
func NewLeakyBucket(r Rate) *LeakyBucket { return &LeakyBucket{rate: r} }

// Allow pours n units in at now, or refuses them whole.
func (b *LeakyBucket) Allow(now Instant, n int64) Decision {
	now = now.clamp()
	b.mu.Lock()
	defer b.mu.Unlock()
	behind := b.drip(now)
	if !b.rate.serves(n) {
		return refuseForever(b.rate.left(b.level))
	}
	level := b.level + n*b.rate.interval
	if spill := level - b.rate.window(); spill > 0 {
		return Decision{RetryAfter: time.Duration(spill) + behind, Remaining: b.rate.left(b.level)}
	}
	b.level = level
	return Decision{OK: true, Remaining: b.rate.left(level)}
}

// drip brings the level up to now, and returns how far now lies behind the last look:
// a caller with an older reading must wait that much longer.
func (b *LeakyBucket) drip(now Instant) time.Duration {
	if now <= b.last {
		return b.last.Sub(now)
	}
	b.level = max(b.level-int64(now-b.last), 0)
	b.last = now
	return 0
}
