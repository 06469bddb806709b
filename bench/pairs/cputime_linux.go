package pairs

import (
	"syscall"
	"time"
)

// threadClock returns a clock of the processor time of the thread that reads it, to the
// microsecond. It stands still while others have the core.
func threadClock() func() time.Duration {
	const thread = 1 // RUSAGE_THREAD, getrusage(2); Linux 2.6.26
	return func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(thread, &u); err != nil {
			panic("getrusage: " + err.Error()) // its arguments are constants
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
}
