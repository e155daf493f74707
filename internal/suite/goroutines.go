package suite

import (
	"bytes"
	"runtime"
)

// Goroutines returns the number of goroutines of this process. The result is
// exact if it is above limit.
//
// runtime.NumGoroutine is not: while the garbage collector frees the stacks of
// goroutines that have ended, it counts them too, several hundred at times. A
// list of the stacks does not have them.
func Goroutines(limit int) int {
	n := runtime.NumGoroutine()
	if n <= limit {
		return n
	}
	for buf := make([]byte, 1<<20); ; buf = make([]byte, 2*len(buf)) {
		if size := runtime.Stack(buf, true); size < len(buf) {
			return bytes.Count(buf[:size], []byte("\n\ngoroutine ")) + 1
		}
	}
}
