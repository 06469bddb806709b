package pairs

import (
	"syscall"
	"time"
	"unsafe"
)

// threadClock returns a clock of the processor time of the thread that reads it, to the
// nanosecond. It stands still while others have the core. (getrusage tells the same only
// up to the last tick of the scheduler, which is as long as a run.)
func threadClock() func() time.Duration {
	const threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID, clock_gettime(2)
	return func() time.Duration {
		var ts syscall.Timespec
		if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
			panic("clock_gettime: " + errno.Error()) // its arguments are constants
		}
		return time.Duration(ts.Nano())
	}
}
