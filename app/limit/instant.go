package limit

import "time"

// Instant is a reading of a monotonic process clock: nanoseconds since the clock was
// made. One integer, because every limiter compares and stores it on the hot path;
// [time.Time] would cost three words and a second clock read.
//
// Useful instants lie in [0, 2^61), 73 years; limiters clamp what lies outside.
type Instant int64

// maxInstant leaves room for a full window (at most maxWindow) on top of any instant
// without overflow.
const maxInstant Instant = 1<<61 - 1

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// clamp brings t into the range in which no limiter can overflow.
func (t Instant) clamp() Instant {
	if uint64(t) <= uint64(maxInstant) {
		return t
	}
	if t < 0 {
		return 0
	}
	return maxInstant
}

// Clock reads the process's monotonic clock. It never goes backwards, whatever NTP or
// an operator does to the wall clock. Make one at start-up and hand it to everything
// that must agree on time: instants of two clocks do not compare.
type Clock struct{ origin time.Time }

// NewClock returns a clock that reads zero now.
func NewClock() Clock { return Clock{origin: time.Now()} }

// Now returns the time since the clock was made. It reads the monotonic clock alone,
// about half the cost of [time.Now].
func (c Clock) Now() Instant { return Instant(time.Since(c.origin)) }
