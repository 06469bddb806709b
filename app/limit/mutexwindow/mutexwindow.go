// Package mutexwindow is the window counter of the handbooks: a mutex, a count, and the
// instant at which the window began. The window begins with the first call after the last
// one ended.
//
// Use it where a limit is rarely asked and must be read by anyone. It promises at most
// limit units from the first call of a window to its end, and so up to 2 x limit across
// one. Against [limit.FixedWindow] it costs a lock; the service does not use it.
package mutexwindow

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

// Counter admits limit units per window.
type Counter struct {
	limit  int64
	window time.Duration

	mu   sync.Mutex
	ends limit.Instant // guarded by mu; end of the current window
	used int64         // guarded by mu; units in it
}

// New returns a counter of units (0 is closed) per window (positive).
func New(units int64, window time.Duration) (*Counter, error) {
	switch {
	case units < 0:
		return nil, &limit.FieldError{Field: "limit", Problem: fmt.Sprintf("%d is negative (0 closes)", units)}
	case window <= 0 || window > 366*24*time.Hour:
		return nil, &limit.FieldError{Field: "window", Problem: fmt.Sprintf("%v is not in (0, 366 days]", window)}
	}
	return &Counter{limit: units, window: window}, nil
}

// Allow admits n units at now, or refuses them whole until the window ends.
func (c *Counter) Allow(now limit.Instant, n int64) limit.Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now >= c.ends {
		c.used = 0
	}
	left := c.limit - c.used
	switch {
	case n <= 0 || n > c.limit:
		return limit.Decision{RetryAfter: limit.Never, Remaining: left}
	case n > left:
		return limit.Decision{RetryAfter: c.ends.Sub(now), Remaining: left}
	}
	if c.used == 0 { // the first of its window
		c.ends = max(c.ends, now.Add(c.window))
	}
	c.used += n
	return limit.Decision{OK: true, Remaining: left - n}
}
