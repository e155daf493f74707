package boot

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
)

// The exit statuses of a program, after sysexits.h where that has a word.
const (
	ExitOK          = 0
	ExitCut         = 1  // stopped, but something had to be cut off
	ExitUsage       = 64 // the command line
	ExitUnavailable = 69 // something that was asked for cannot be had now
	ExitInternal    = 70 // the program is wrong
	ExitOverrun     = 75 // a start hook took longer than its budget
	ExitConfig      = 78 // the configuration is wrong; trying again does not help
)

// Failure is why a program did not start, for whoever has to do something
// about it: what was asked, where it was asked, the cause in its own words and
// what to do.
type Failure struct {
	Code    string // "lock.driver_unavailable"
	Exit    int
	Text    string // what was asked and what became of it, as a sentence
	Facts   []Fact
	Cause   error
	Actions []string // at most four
}

// Fact is a line of a Failure.
type Fact struct{ Name, Value string }

// Error returns the sentence and the cause.
func (f *Failure) Error() string {
	if f.Cause == nil {
		return f.Text
	}
	return strings.TrimSuffix(f.Text, ".") + ": " + f.Cause.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// failureOf makes every error of a boot a Failure.
func failureOf(err error) *Failure {
	if known, ok := errors.AsType[*Failure](err); ok {
		return known
	}
	if problems, ok := errors.AsType[config.Problems](err); ok {
		return configFailure(problems)
	}
	return &Failure{Code: "boot.failed", Exit: ExitInternal, Text: "The program could not be put together.", Cause: err}
}

func configFailure(problems config.Problems) *Failure {
	f := &Failure{Code: problems.Code(), Exit: ExitConfig, Text: "The configuration is wrong in one place."}
	if len(problems) > 1 {
		f.Code, f.Text = "config.problems", fmt.Sprintf("The configuration is wrong in %d places.", len(problems))
	}
	for _, p := range problems {
		f.Facts = append(f.Facts, Fact{p.Code, p.String()})
	}
	return f
}

// print writes the failure as a panel.
func (f *Failure) print(w io.Writer, program string) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s could not start  (%s)\n\n  %s\n", program, f.Code, f.Text)
	width := 0
	for _, fact := range f.facts() {
		width = max(width, len(fact.Name))
	}
	for _, fact := range f.facts() {
		value := strings.ReplaceAll(fact.Value, "\n", "\n"+strings.Repeat(" ", width+6))
		fmt.Fprintf(&b, "    %-*s  %s\n", width, fact.Name, value)
	}
	if len(f.Actions) > 0 {
		b.WriteString("\n  Do one of\n")
	}
	for _, action := range f.Actions {
		fmt.Fprintf(&b, "    • %s\n", action)
	}
	fmt.Fprintf(&b, "\n  exit status %d\n\n", f.Exit)
	_, _ = io.WriteString(w, b.String()) // there is nobody left to tell
}

func (f *Failure) facts() []Fact {
	if f.Cause == nil {
		return f.Facts
	}
	return append(slices.Clip(f.Facts), Fact{"cause", f.Cause.Error()})
}
