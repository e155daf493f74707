package boot

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"go.uber.org/dig"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/stack"
)

// Failure is the error of a program that did not start: its dotted code, the
// exit status, what failed and where it was requested, the cause, and what to
// do. Its Print writes it as a panel, its JSON has the same content.
type Failure = failure.Failure

// failureOf converts any error of a boot to a Failure. The cause of an unknown
// error is inside the injector's error.
func failureOf(err error) *Failure {
	if _, known := errors.AsType[*Failure](err); !known {
		err = dig.RootCause(err)
	}
	return failure.Of(err)
}

// failureOf converts an error of a boot to a Failure. If fx is traced, the Failure
// includes the error's path through the injector.
func (p Process) failureOf(err error) *Failure {
	f := *failureOf(err)
	f.Stack = stackText(err)
	if p.traces() {
		f.Trace = err.Error()
		if panicked, ok := errors.AsType[*panicError](err); ok {
			f.Trace += "\n" + string(panicked.stack)
		}
	}
	return &f
}

// stackText returns the stack of the panic that err wraps, for a panel, and "" without
// one.
func stackText(err error) string {
	panicked, ok := errors.AsType[*panicError](err)
	if !ok {
		return ""
	}
	return stack.Text(stack.Parse(panicked.stack))
}

// panicError is a panic in the program's own code.
type panicError struct {
	value any
	at    string // file:line of the panic
	stack []byte
}

// panicked converts a recovered value to an error, in a deferred function.
func panicked(value any) *panicError { return &panicError{value, origin(), debug.Stack()} }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v (%s)", e.value, e.at) }

// PanicStack returns the stack of the panic, see logging.ErrorAttrs.
func (e *panicError) PanicStack() []byte { return e.stack }

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
