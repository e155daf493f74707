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

// reading is what the kernel said of its clocks when the drift was so much.
type reading struct{ drift, asleep time.Duration }

// newest saves three system calls a look: as long as the drift stands still,
// so does the time asleep. It holds nothing but what the kernel says.
var newest atomic.Pointer[reading]

// asleep returns how long the machine has slept since it booted.
func asleep(now time.Time) time.Duration {
	d := drift(now)
	if r := newest.Load(); r != nil && (d-r.drift).Abs() < time.Millisecond {
		return r.asleep
	}
	r := &reading{d, readAsleep()}
	newest.Store(r)
	return r.asleep
}

// readAsleep returns the one difference between the two clocks. Both are read
// from the kernel, not from time.Now, so that it is the same under
// testing/synctest.
func readAsleep() time.Duration {
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
