package boot

import (
	"errors"

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
	panicked, isPanic := errors.AsType[*panicError](err)
	if isPanic {
		f.Stack = stack.Text(stack.Parse(panicked.stack))
	}
	if p.traces() {
		f.Trace = err.Error()
		if isPanic {
			f.Trace += "\n" + string(panicked.stack)
		}
	}
	return &f
}
