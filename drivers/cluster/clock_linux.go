package cluster

import "golang.org/x/sys/unix"

// nodeNanos returns the time since the machine was started, asleep or awake.
func nodeNanos() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("read CLOCK_BOOTTIME: " + err.Error()) // every Linux since 2.6.39 has this clock
	}
	return t.Nano()
}

// fresh returns c: neither clock is ever set.
func (c clock) fresh() clock { return c }
