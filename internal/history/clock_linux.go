package history

import (
	"syscall"
	"unsafe"
)

const clockMonotonic = 1

// Now is the present on CLOCK_MONOTONIC, which is one clock for all processes
// of the machine and is never set.
func Now() int64 {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic("history: clock_gettime: " + errno.Error())
	}
	return ts.Nano()
}
