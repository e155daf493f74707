package boot

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// panicError is a panic of the program's own code.
type panicError struct {
	value any
	at    string // where it began: file:line
	stack []byte
}

// panicked is what a deferred function makes of what it recovered.
func panicked(value any) *panicError { return &panicError{value, origin(), debug.Stack()} }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v (%s)", e.value, e.at) }

// Unwrap returns the value of the panic, where that was an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// origin is the code that panicked, as a deferred function sees it: the first
// below the runtime's own.
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
