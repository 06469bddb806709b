package lease

import "time"

// Instant is one reading of both clocks, in nanoseconds. The monotonic one never steps
// but stands still while the machine is suspended; the wall clock runs on and steps.
type Instant struct {
	Mono int64 // since the clock was made
	Wall int64 // since 1970
}

// Clock reads both clocks at once.
type Clock func() Instant

// NewClock returns the process's clock.
func NewClock() Clock {
	origin := time.Now()
	return func() Instant {
		t := time.Now()
		return Instant{Mono: int64(t.Sub(origin)), Wall: t.UnixNano()}
	}
}
