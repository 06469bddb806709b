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
	return func() time.Duration { return cpuTime(threadCPU) }
}

// ProcessClock returns a clock of the processor time of this process, all threads and the
// kernel's work for them included: for a server that runs here and its callers elsewhere.
func ProcessClock() func() time.Duration {
	const processCPU = 2 // CLOCK_PROCESS_CPUTIME_ID
	return func() time.Duration { return cpuTime(processCPU) }
}

func cpuTime(clock uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("clock_gettime: " + errno.Error()) // its arguments are constants
	}
	return time.Duration(ts.Nano())
}
