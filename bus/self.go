package bus

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutine returns a number that identifies the calling goroutine while it
// runs. Close has no context that could name the handler in which it is called
// (S26). A runner calls it once, when it starts; it takes about a microsecond.
func goroutine() uintptr {
	var head [64]byte
	fields := bytes.Fields(head[:runtime.Stack(head[:], false)]) // goroutine 18 [running]:
	n, _ := strconv.ParseUint(string(fields[1]), 10, strconv.IntSize)
	return uintptr(n)
}
