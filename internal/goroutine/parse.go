package goroutine

import (
	"bytes"
	"runtime"
	"strconv"
)

// parsed returns the number of the goroutine that a stack trace shows. It takes
// 1 to 5 µs.
func parsed() uintptr {
	var head [64]byte
	fields := bytes.Fields(head[:runtime.Stack(head[:], false)]) // goroutine 18 [running]:
	n, _ := strconv.ParseUint(string(fields[1]), 10, strconv.IntSize)
	return uintptr(n)
}
