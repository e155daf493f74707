package cluster

import "golang.org/x/sys/unix"

// nodeNanos is the time since the machine was started, asleep or awake.
func nodeNanos() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("read CLOCK_BOOTTIME: " + err.Error()) // it is there since Linux 2.6.39
	}
	return t.Nano()
}

// fresh returns c: neither clock is ever set.
func (c clock) fresh() clock { return c }
