// Package ticker is the token bucket of the handbooks: a goroutine puts a token into a
// buffered channel at every tick, a request takes one out.
//
// Use it to explain a token bucket in ten lines. It promises no more than burst tokens at
// once and one a tick; when its goroutine is not running or late it only over-refuses.
// Against [limit.Bucket] it costs a goroutine and a timer a bucket, cannot count tokens
// faster than the runtime's timers tick, and its RetryAfter is an estimate: a late tick
// makes it short. The service does not use it.
package ticker

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

const (
	// minInterval is what a ticker keeps up with; below it ticks are dropped.
	minInterval = time.Millisecond
	// maxBurst bounds the channel. Its elements take no memory.
	maxBurst = 1 << 20
)

// Bucket is a token bucket filled by Run. It starts full.
type Bucket struct {
	tokens   chan struct{}
	interval time.Duration
}

// New returns a bucket of burst tokens (1..1,048,576) that gets one back every interval
// (1 ms or more).
func New(interval time.Duration, burst int) (*Bucket, error) {
	switch {
	case interval < minInterval:
		return nil, &limit.FieldError{Field: "interval", Problem: fmt.Sprintf("%v is below %v", interval, minInterval)}
	case burst < 1 || burst > maxBurst:
		return nil, &limit.FieldError{Field: "burst", Problem: fmt.Sprintf("%d is not in 1..%d", burst, maxBurst)}
	}
	b := &Bucket{tokens: make(chan struct{}, burst), interval: interval}
	b.put(burst)
	return b, nil
}

// Run fills the bucket until ctx ends.
func (b *Bucket) Run(ctx context.Context) {
	ticker := time.NewTicker(b.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			b.put(1)
		}
	}
}

// Allow takes n tokens, or none. The instant is ignored: this bucket's time is its ticker.
func (b *Bucket) Allow(_ limit.Instant, n int64) limit.Decision {
	if n <= 0 || n > int64(cap(b.tokens)) {
		return limit.Decision{RetryAfter: limit.Never, Remaining: int64(len(b.tokens))}
	}
	for taken := range int(n) {
		select {
		case <-b.tokens:
		default:
			b.put(taken)
			return limit.Decision{
				RetryAfter: time.Duration(n-int64(taken)) * b.interval,
				Remaining:  int64(len(b.tokens)),
			}
		}
	}
	return limit.Decision{OK: true, Remaining: int64(len(b.tokens))}
}

// put adds n tokens; what does not fit is lost.
func (b *Bucket) put(n int) {
	for range n {
		select {
		case b.tokens <- struct{}{}:
		default:
			return
		}
	}
}
