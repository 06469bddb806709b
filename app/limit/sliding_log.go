package limit

import (
	"sort"
	"sync"
	"time"
)

// maxLog bounds the memory of a sliding log: 8 MiB.
const maxLog = 1 << 20

// SlidingLog admits limit units in any window of time, exactly: it remembers the instant
// of each of the last limit units. It costs 8 bytes a unit and a mutex.
type SlidingLog struct {
	window time.Duration

	mu   sync.Mutex
	at   []Instant // guarded by mu; ring, in order of time from next on
	next int       // guarded by mu; index of the oldest unit, overwritten first
}

// NewSlidingLog admits limit units (0..1,048,576; 0 is closed) in any window (10 ms to
// 366 days).
func NewSlidingLog(limit int64, window time.Duration) (*SlidingLog, error) {
	if err := checkWindow(limit, maxLog, window, minWindow); err != nil {
		return nil, err
	}
	l := &SlidingLog{window: window, at: make([]Instant, limit)}
	for i := range l.at {
		l.at[i] = -Instant(window) // long gone when the clock begins
	}
	return l, nil
}

// Allow admits n units at now, or refuses them whole until the oldest ones have left the
// window.
func (l *SlidingLog) Allow(now Instant, n int64) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	now = now.clamp()
	if n <= 0 || n > int64(len(l.at)) {
		return refuseForever(l.free(now))
	}
	// The n-th oldest unit is the last one that must make room.
	if gone := l.nth(int(n) - 1).Add(l.window); gone > now {
		return Decision{RetryAfter: gone.Sub(now), Remaining: l.free(now)}
	}
	newest := max(now, l.nth(len(l.at)-1)) // keeps the ring in order under an older reading
	for range n {
		l.at[l.next] = newest
		l.next = (l.next + 1) % len(l.at)
	}
	return Decision{OK: true, Remaining: l.free(now)}
}

// nth returns the instant of the i-th oldest unit, from 0.
func (l *SlidingLog) nth(i int) Instant { return l.at[(l.next+i)%len(l.at)] }

// free returns how many units have left the window.
func (l *SlidingLog) free(now Instant) int64 {
	return int64(sort.Search(len(l.at), func(i int) bool { return l.nth(i).Add(l.window) > now }))
}
