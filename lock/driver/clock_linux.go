package driver

import (
	"syscall"
	"time"
	"unsafe"
)

// Clock ids of clock_gettime(2).
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// asleep returns how long the machine has slept since it booted: the one
// difference between the two clocks. Both are read from the kernel, not from
// time.Now, so that it is the same under testing/synctest.
func asleep() time.Duration {
	for {
		before := clock(clockMonotonic)
		boot := clock(clockBoottime)
		// A thread that was put aside between the readings would take its
		// pause for sleep; it looks again. What remains is cut off.
		if clock(clockMonotonic)-before < time.Millisecond {
			return (boot - before).Truncate(time.Millisecond)
		}
	}
}

func clock(id uintptr) time.Duration {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
