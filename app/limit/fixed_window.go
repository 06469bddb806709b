package limit

import (
	"sync/atomic"
	"time"
)

// FixedWindow admits limit units in each window of the clock. It is one atomic word.
//
// Across a boundary it admits up to 2 x limit within an instant: limit at the end of one
// window and limit at the start of the next. Where that matters use [SlottedWindow].
type FixedWindow struct {
	limit  int64
	window time.Duration
	word   atomic.Uint64 // stamp: window number, units used
}

// NewFixedWindow admits limit units (0..268,435,455; 0 is closed) per window (10 ms to
// 366 days).
func NewFixedWindow(limit int64, window time.Duration) (*FixedWindow, error) {
	if err := checkWindow(limit, maxCount, window, minWindow); err != nil {
		return nil, err
	}
	return &FixedWindow{limit: limit, window: window}, nil
}

// Allow admits n units at now, or refuses them whole until the next window.
func (w *FixedWindow) Allow(now Instant, n int64) Decision {
	now = now.clamp()
	for {
		old := w.word.Load()
		epoch, used := unstamp(old)
		if e := epochAt(now, w.window); e > epoch { // an older reading stays in the newer window
			epoch, used = e, 0
		}
		if n <= 0 || n > w.limit {
			return refuseForever(w.limit - used)
		}
		if used+n > w.limit {
			next := Instant(epoch+1) * Instant(w.window)
			return Decision{RetryAfter: next.Sub(now), Remaining: w.limit - used}
		}
		if w.word.CompareAndSwap(old, stamp(epoch, used+n)) {
			return Decision{OK: true, Remaining: w.limit - used - n}
		}
	}
}
