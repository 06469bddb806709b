package limit

import (
	"fmt"
	"time"
)

// The window limiters keep an epoch (the number of a window or slot since the clock
// began) and a count in one word, so that one compare-and-swap moves both.
const (
	countBits = 28
	// maxCount bounds the limit of an atomic window: 268,435,455.
	maxCount = 1<<countBits - 1
	// maxEpoch is reached after 21 years of uptime with the shortest window; epochs
	// stop there and the window then only refuses.
	maxEpoch = 1<<(64-countBits) - 1
	// minWindow keeps maxEpoch out of reach.
	minWindow = 10 * time.Millisecond
	// maxWindowTime keeps a slip of the unit (s for ms) from becoming a limit.
	maxWindowTime = 366 * 24 * time.Hour
)

// stamp is an epoch and the count that belongs to it.
func stamp(epoch, count int64) uint64 { return uint64(epoch)<<countBits | uint64(count) }

func unstamp(w uint64) (epoch, count int64) { return int64(w >> countBits), int64(w & maxCount) }

// epochAt returns the number of the span of this length that contains now.
func epochAt(now Instant, length time.Duration) int64 {
	return min(int64(now)/int64(length), maxEpoch)
}

// checkWindow validates limit units per window. limit 0 is closed.
func checkWindow(limit, most int64, window, shortest time.Duration) error {
	switch {
	case limit < 0:
		return &FieldError{"limit", fmt.Sprintf("%d is negative (0 closes)", limit)}
	case limit > most:
		return &FieldError{"limit", fmt.Sprintf("%d is above %d", limit, most)}
	case window < shortest:
		return &FieldError{"window", fmt.Sprintf("%v is below %v", window, shortest)}
	case window > maxWindowTime:
		return &FieldError{"window", fmt.Sprintf("%v is above %v", window, maxWindowTime)}
	}
	return nil
}
