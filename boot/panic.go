package boot

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// panicError is a panic in the program's own code.
type panicError struct {
	value any
	at    string // file:line of the panic
	stack []byte
}

// panicked converts a recovered value to an error, in a deferred function.
func panicked(value any) *panicError { return &panicError{value, origin(), debug.Stack()} }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v (%s)", e.value, e.at) }

// Unwrap returns the value of the panic if it is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// origin returns the file:line that panicked, in a deferred function: the first
// frame below the runtime's own.
func origin() string {
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	inside := false
	for {
		frame, more := frames.Next()
		own := strings.HasPrefix(frame.Function, "runtime.")
		if inside && !own || !more {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		inside = inside || own
	}
}
