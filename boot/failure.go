package boot

import (
	"errors"
	"fmt"

	"go.uber.org/dig"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/failure"
)

// The exit statuses of a program.
const (
	ExitOK          = failure.ExitOK
	ExitCut         = failure.ExitCut
	ExitUsage       = failure.ExitUsage
	ExitUnavailable = failure.ExitUnavailable
	ExitInternal    = failure.ExitInternal
	ExitOverrun     = failure.ExitOverrun
	ExitConfig      = failure.ExitConfig
)

type (
	// Failure explains why a program did not start.
	Failure = failure.Failure
	// Fact is a line of a Failure.
	Fact = failure.Fact
)

// failureOf converts any error of a boot to a Failure.
func failureOf(err error) *Failure {
	if known, ok := errors.AsType[*Failure](err); ok {
		return known
	}
	if problems, ok := errors.AsType[config.Problems](err); ok {
		return configFailure(problems)
	}
	return &Failure{Code: "boot.failed", Exit: ExitInternal, Text: "The program could not be put together.", Cause: dig.RootCause(err)}
}

func configFailure(problems config.Problems) *Failure {
	f := &Failure{Code: problems.Code(), Exit: ExitConfig, Text: "The configuration is wrong in one place.", Problems: problems}
	if len(problems) > 1 {
		f.Code, f.Text = "config.problems", fmt.Sprintf("The configuration is wrong in %d places.", len(problems))
	}
	if f.Code == "config.section" { // the error is in the program
		f.Exit = ExitInternal
	}
	return f
}

// failureOf converts an error of a boot to a Failure. If fx is traced, the Failure
// includes the error's path through the injector.
func (p Process) failureOf(err error) *Failure {
	f := failureOf(err)
	if !p.traces() {
		return f
	}
	traced := *f
	traced.Trace = err.Error()
	if panicked, ok := errors.AsType[*panicError](err); ok {
		traced.Trace += "\n" + string(panicked.stack)
	}
	return &traced
}
