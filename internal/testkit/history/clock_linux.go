package history

import (
	"syscall"
	"unsafe"
)

const clockMonotonic = 1

// Now returns the time of CLOCK_MONOTONIC, which all processes of the machine
// share and which is never set.
func Now() int64 {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic("history: clock_gettime: " + errno.Error())
	}
	return ts.Nano()
}
