package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.uber.org/dig"

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
// what to do. Its JSON says the same as its panel.
type Failure struct {
	Code     string // one of Codes: "lock.driver_unavailable"
	Exit     int
	Text     string // what was asked and what became of it, as a sentence
	Facts    []Fact
	Problems config.Problems // what is wrong with the configuration, where that is the reason
	Cause    error
	Actions  []string // at most four
	Trace    string   // the injector's own account, and the stack of a panic; only if that is traced

	veil *veil // masks what others say in it; nil masks URLs alone
}

// Fact is a line of a Failure.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Error returns the sentence and the cause.
func (f *Failure) Error() string {
	cause := f.Unwrap()
	if cause == nil {
		return f.Text
	}
	return strings.TrimSuffix(f.Text, ".") + ": " + f.veil.text(cause.Error())
}

// Unwrap returns the cause, or else what is wrong with the configuration.
func (f *Failure) Unwrap() error {
	if f.Cause == nil && len(f.Problems) > 0 {
		return f.Problems
	}
	return f.Cause
}

// failureOf makes every error of a boot a Failure.
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
	if f.Code == "config.section" { // what is wrong is in the program
		f.Exit = ExitInternal
	}
	return f
}

// told is an error of a boot as a Failure, with the way that it took through
// the injector for whoever traces that.
func (p Process) told(err error) *Failure {
	f := failureOf(err)
	if !slices.Contains(p.Trace, traceFx) {
		return f
	}
	traced := *f
	traced.Trace = err.Error()
	if panicked, ok := errors.AsType[*panicError](err); ok {
		traced.Trace += "\n" + string(panicked.stack)
	}
	return &traced
}

// Print writes the failure as a panel, for people.
func (f *Failure) Print(w io.Writer, program string) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s could not start  (%s)\n\n  %s\n", program, f.Code, f.Text)
	f.printFacts(&b)
	if len(f.Actions) > 0 {
		b.WriteString("\n  Do one of\n")
	}
	for _, action := range f.Actions {
		fmt.Fprintf(&b, "    • %s\n", action)
	}
	fmt.Fprintf(&b, "\n  more: %s explain %s\n  exit status %d\n\n", program, f.Code, f.Exit)
	_, _ = io.WriteString(w, b.String()) // there is nobody left to tell
}

func (f *Failure) printFacts(b *strings.Builder) {
	lines, width := f.Lines(), 0
	if len(lines) > 0 {
		b.WriteString("\n")
	}
	for _, fact := range lines {
		width = max(width, len(fact.Name))
	}
	for _, fact := range lines {
		value := strings.ReplaceAll(fact.Value, "\n", "\n"+strings.Repeat(" ", width+6))
		fmt.Fprintf(b, "    %-*s  %s\n", width, fact.Name, value)
	}
}

// Lines returns the named lines of the panel, masked.
func (f *Failure) Lines() []Fact {
	lines := slices.Clone(f.Facts)
	for _, p := range f.Problems {
		lines = append(lines, Fact{p.Code, p.String()})
	}
	if f.Cause != nil {
		lines = append(lines, Fact{"cause", f.Cause.Error()})
	}
	if f.Trace != "" {
		lines = append(lines, Fact{"trace", f.Trace})
	}
	return f.masked(lines)
}

func (f *Failure) masked(facts []Fact) (all []Fact) {
	for _, fact := range facts {
		all = append(all, Fact{fact.Name, f.veil.text(fact.Value)})
	}
	return all
}

// MarshalJSON says what the panel says.
func (f *Failure) MarshalJSON() ([]byte, error) {
	type problem struct {
		Code   string `json:"code"`
		Key    string `json:"key,omitempty"`
		Origin string `json:"origin,omitempty"`
		Text   string `json:"text"`
		Hint   string `json:"hint,omitempty"`
	}
	var problems []problem
	for _, p := range f.Problems {
		problems = append(problems, problem{p.Code, p.Key, p.Origin.String(), f.veil.text(p.Text), p.Hint})
	}
	cause := ""
	if f.Cause != nil {
		cause = f.veil.text(f.Cause.Error())
	}
	return json.Marshal(struct {
		Code     string    `json:"code"`
		Exit     int       `json:"exit"`
		Text     string    `json:"text"`
		Facts    []Fact    `json:"facts,omitempty"`
		Problems []problem `json:"problems,omitempty"`
		Cause    string    `json:"cause,omitempty"`
		Actions  []string  `json:"actions,omitempty"`
		Trace    string    `json:"trace,omitempty"`
	}{f.Code, f.Exit, f.Text, f.masked(f.Facts), problems, cause, f.Actions, f.veil.text(f.Trace)})
}
