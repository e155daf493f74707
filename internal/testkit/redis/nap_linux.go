package redistest

import (
	"syscall"
	"time"
)

// nap sleeps for less than a timer of the runtime can: an idle process notices
// its timers up to 1 ms late.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&t, &t) == syscall.EINTR {
		continue
	}
}
