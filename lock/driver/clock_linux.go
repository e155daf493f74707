package driver

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Clock ids of clock_gettime(2).
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// reading is the time asleep that the kernel reported at a drift.
type reading struct{ drift, asleep time.Duration }

// newest saves three system calls per call: while the drift does not change,
// the time asleep does not either. It only caches values of the kernel.
var newest atomic.Pointer[reading]

// asleep returns the total sleep time of the machine since it booted.
func asleep(now time.Time) time.Duration {
	d := drift(now)
	if r := newest.Load(); r != nil && (d-r.drift).Abs() < time.Millisecond {
		return r.asleep
	}
	r := &reading{d, readAsleep()}
	newest.Store(r)
	return r.asleep
}

// readAsleep returns the difference between the two clocks, which is the sleep
// time. Both are read from the kernel, not from time.Now, so that the result is
// the same under testing/synctest.
func readAsleep() time.Duration {
	for {
		before := clock(clockMonotonic)
		boot := clock(clockBoottime)
		// A thread that was suspended between the readings would count its
		// pause as sleep, so it reads again. Truncate removes shorter pauses.
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
