package protocol

import "golang.org/x/sys/unix"

// NodeNanos returns the time since the machine was started, asleep or awake.
func NodeNanos() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("read CLOCK_BOOTTIME: " + err.Error()) // every Linux since 2.6.39 has this clock
	}
	return t.Nano()
}

// fresh returns c: neither clock is ever set.
func (c Clock) fresh() Clock { return c }
