package limit

import (
	"fmt"
	"sync"
	"time"
)

// SlidingCounter admits about limit units in any window with two counters: the current
// window's, and the previous one's weighted by how much of it still overlaps.
//
// It assumes that the previous window's units came evenly. When they came late it admits
// up to 2 x limit within one window length; it never admits more than limit + rate x t
// in any time t, where rate is limit per window.
type SlidingCounter struct {
	limit  int64
	window time.Duration

	mu            sync.Mutex
	epoch         int64 // guarded by mu; number of the current window, never goes back
	current, last int64 // guarded by mu; units in this window and the one before
}

// NewSlidingCounter admits limit units (0 is closed) per sliding window (10 ms to 366
// days). limit x window in nanoseconds may not exceed 2^62, which bounds the arithmetic.
func NewSlidingCounter(limit int64, window time.Duration) (*SlidingCounter, error) {
	if err := checkWindow(limit, maxCount, window, minWindow); err != nil {
		return nil, err
	}
	if limit > maxWindow/int64(window) {
		return nil, &FieldError{"limit", fmt.Sprintf("%d x %v is above 2^62 unit-nanoseconds", limit, window)}
	}
	return &SlidingCounter{limit: limit, window: window}, nil
}

// Allow admits n units at now, or refuses them whole until enough of the previous window
// has passed.
func (c *SlidingCounter) Allow(now Instant, n int64) Decision {
	now = now.clamp()
	c.mu.Lock()
	defer c.mu.Unlock()
	start := c.turn(now)
	free := c.free(max(now.Sub(start), 0))
	switch {
	case n <= 0 || n > c.limit:
		return refuseForever(free)
	case n <= free:
		c.current += n
		return Decision{OK: true, Remaining: free - n}
	}
	return Decision{RetryAfter: c.opens(start, n).Sub(now), Remaining: free}
}

// turn moves to the window that contains now and returns its start. An older reading
// stays at the start of the current one.
func (c *SlidingCounter) turn(now Instant) (start Instant) {
	epoch := int64(now) / int64(c.window)
	switch {
	case epoch == c.epoch+1:
		c.epoch, c.last, c.current = epoch, c.current, 0
	case epoch > c.epoch:
		c.epoch, c.last, c.current = epoch, 0, 0
	}
	return Instant(c.epoch) * Instant(c.window)
}

// free returns how many units fit when elapsed has passed of the current window:
// limit - current - last x (window - elapsed) / window, the last term rounded up.
func (c *SlidingCounter) free(elapsed time.Duration) int64 {
	w := int64(c.window)
	weighted := (c.last*(w-int64(elapsed)) + w - 1) / w
	return max(c.limit-c.current-weighted, 0)
}

// opens returns the instant from which n units fit, if nobody else comes.
func (c *SlidingCounter) opens(start Instant, n int64) Instant {
	if room := c.limit - c.current - n; room >= 0 {
		return start.Add(c.fades(c.last, room))
	}
	return start.Add(c.window + c.fades(c.current, c.limit-n))
}

// fades returns how much of a window must pass until the units of the one before weigh
// no more than room: the least e with units x (window - e) / window <= room.
func (c *SlidingCounter) fades(units, room int64) time.Duration {
	if units <= room {
		return 0
	}
	return c.window - time.Duration(room*int64(c.window)/units)
}
