//go:build !linux

package pairs

import "time"

// threadClock counts wall time where a thread's own is not to be had: measure on an idle
// machine.
func threadClock() func() time.Duration { return wallClock() }

// ProcessClock counts wall time likewise.
func ProcessClock() func() time.Duration { return wallClock() }
