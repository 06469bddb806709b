package limit

import (
	"math"
	"sync/atomic"
	"time"
)

// Bucket is a token bucket: it admits at most burst + rate x t units in any time t.
// Its whole state is one atomic word, so a decision is one load and one
// compare-and-swap. It starts full.
type Bucket struct {
	rate Rate
	tat  atomic.Int64 // theoretical arrival time, ns; zero is full since the clock began
}

// NewBucket returns a full bucket. A closed rate makes a closed bucket.
func NewBucket(r Rate) *Bucket { return &Bucket{rate: r} }

// Allow admits n units at now, or refuses them whole.
func (b *Bucket) Allow(now Instant, n int64) Decision {
	d, _ := allow(&b.tat, b.rate, now.clamp(), n) // nobody seals it
	return d
}

// sealed is the arrival time of a bucket whose policy is being replaced. It lies beyond
// every real one (maxInstant + maxWindow), so arithmetic refuses it without a test of
// its own on the path that admits.
const sealed = math.MaxInt64

// sealedRetry is the wait told to the few who meet a sealed bucket, which stays so for
// the time of two stores.
const sealedRetry = time.Millisecond

// allow charges an atomic bucket. It reports false, with a refusal, when the bucket is
// sealed.
func allow(tat *atomic.Int64, r Rate, now Instant, n int64) (Decision, bool) {
	for {
		old := tat.Load()
		if !r.serves(n) {
			return refuseForever(r.left(max(old-int64(now), 0))), true
		}
		next, d := r.spend(old, now, n)
		if !d.OK {
			if old == sealed {
				return Decision{RetryAfter: sealedRetry}, false
			}
			return d, true
		}
		if tat.CompareAndSwap(old, next) {
			return d, true
		}
	}
}

// refund gives back to an atomic bucket. A sealed one keeps the charge: over-refuses.
func refund(tat *atomic.Int64, r Rate, now, charged Instant, n int64) {
	for {
		old := tat.Load()
		next := r.refund(old, now, charged, n)
		if next == old || old == sealed || tat.CompareAndSwap(old, next) {
			return
		}
	}
}

// seal ends a bucket and returns its last arrival time; no charge is lost between the
// reading and the new policy. A closed bucket ends empty.
func seal(tat *atomic.Int64, r Rate, now Instant) int64 {
	last := tat.Swap(sealed)
	if r.Closed() {
		return int64(now) + 1 // any debt at all is a whole window of nothing
	}
	return last
}
