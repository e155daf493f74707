// Package failure explains why a program did not start: the failure itself, the
// panel that shows it, its exit status, and the catalogue of codes.
package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/settings"
)

// The exit statuses of a program, after sysexits.h where it defines one.
const (
	ExitOK          = 0
	ExitCut         = 1  // stopped, but some work was cut off
	ExitUsage       = 64 // the command line is not valid
	ExitUnavailable = 69 // a required service is unavailable
	ExitInternal    = 70 // the program has a bug
	ExitOverrun     = 75 // a start hook exceeded its budget
	ExitConfig      = 78 // the configuration is not valid; a retry does not help
)

// Failure explains to an operator why a program did not start: what was
// requested and where, the cause in its own words, and what to do. Its JSON has
// the same content as its panel.
type Failure struct {
	Code     string // one of Codes: "lock.driver_unavailable"
	Exit     int
	Text     string // a sentence: the failed operation
	Facts    []Fact
	Problems settings.Problems // the errors of the configuration, if they are the reason
	Cause    error
	Actions  []string // at most MaxActions
	Stack    string   // of a panic, with the frames of mega and Go folded
	Trace    string   // the injector's error and the stack of a panic; empty unless fx is traced

	Started bool // the program had started, and failed later

	Mask func(string) string // masks secrets in the texts of causes and facts; nil masks the credentials of URLs
}

// Of converts an error of a boot to a Failure.
func Of(err error) *Failure {
	if known, ok := errors.AsType[*Failure](err); ok {
		return known
	}
	if problems, ok := errors.AsType[settings.Problems](err); ok {
		return configFailure(problems)
	}
	return &Failure{Code: "boot.failed", Exit: ExitInternal, Text: "The program could not be put together.", Cause: err}
}

// codeProvider is the code of a source of the configuration that cannot be read. A
// retry may help: it often is a server.
const codeProvider = "config.provider"

// configFailure returns the failure of a configuration with problems.
func configFailure(problems settings.Problems) *Failure {
	f := &Failure{Code: problems.Code(), Exit: ExitConfig, Text: "The configuration is wrong in one place.", Problems: problems}
	if len(problems) > 1 {
		f.Code, f.Text = "config.problems", fmt.Sprintf("The configuration is wrong in %d places.", len(problems))
	}
	if f.Code == "config.section" { // the error is in the program
		f.Exit = ExitInternal
	}
	if f.Code == codeProvider {
		f.Text = "Cannot read a source of the configuration."
	}
	if slices.ContainsFunc(problems, func(p settings.Problem) bool { return p.Code == codeProvider }) {
		f.Exit = ExitUnavailable
	}
	return f
}

// MaxActions is the maximum number of actions of a Failure.
const MaxActions = 4

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
	return strings.TrimSuffix(f.Text, ".") + ": " + f.masked(cause.Error())
}

// Unwrap returns the cause, or else the errors of the configuration.
func (f *Failure) Unwrap() error {
	if f.Cause == nil && len(f.Problems) > 0 {
		return f.Problems
	}
	return f.Cause
}

// Print writes the failure as a panel.
func (f *Failure) Print(w io.Writer, program string) {
	var b strings.Builder
	heading := "could not start"
	if f.Started {
		heading = "failed"
	}
	fmt.Fprintf(&b, "\n%s %s  (%s)\n\n  %s\n", program, heading, f.Code, f.Text)
	f.printFacts(&b)
	if len(f.Actions) > 0 {
		b.WriteString("\n  Do one of\n")
	}
	for _, action := range f.Actions {
		fmt.Fprintf(&b, "    • %s\n", action)
	}
	fmt.Fprintf(&b, "\n  more: %s explain %s\n  exit status %d\n\n", Command(program), f.Code, f.Exit)
	_, _ = io.WriteString(w, plain.Text(b.String())) // a failed write has no other place to be reported
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
	if f.Stack != "" {
		lines = append(lines, Fact{"stack", f.Stack})
	}
	if f.Trace != "" {
		lines = append(lines, Fact{"trace", f.Trace})
	}
	return f.maskedFacts(lines)
}

func (f *Failure) masked(text string) string {
	if f.Mask != nil {
		return f.Mask(text)
	}
	return mask.Text(text)
}

func (f *Failure) maskedFacts(facts []Fact) (all []Fact) {
	for _, fact := range facts {
		all = append(all, Fact{fact.Name, f.masked(fact.Value)})
	}
	return all
}

// MarshalJSON returns the content of the panel, with the characters escaped that
// a terminal obeys.
func (f *Failure) MarshalJSON() ([]byte, error) {
	type problem struct {
		Code    string `json:"code"`
		Key     string `json:"key,omitempty"`
		Origin  string `json:"origin,omitempty"`
		Text    string `json:"text"`
		Hint    string `json:"hint,omitempty"`
		Excerpt string `json:"excerpt,omitempty"`
	}
	var problems []problem
	for _, p := range f.Problems {
		problems = append(problems, problem{p.Code, p.Key, p.Origin.String(), f.masked(p.Text), f.masked(p.Hint), f.masked(p.Excerpt)})
	}
	cause := ""
	if f.Cause != nil {
		cause = f.masked(f.Cause.Error())
	}
	text, err := json.Marshal(struct {
		Code     string    `json:"code"`
		Exit     int       `json:"exit"`
		Text     string    `json:"text"`
		Facts    []Fact    `json:"facts,omitempty"`
		Problems []problem `json:"problems,omitempty"`
		Cause    string    `json:"cause,omitempty"`
		Actions  []string  `json:"actions,omitempty"`
		Stack    string    `json:"stack,omitempty"`
		Trace    string    `json:"trace,omitempty"`
	}{f.Code, f.Exit, f.Text, f.maskedFacts(f.Facts), problems, cause, f.Actions, f.masked(f.Stack), f.masked(f.Trace)})
	return []byte(plain.JSON(string(text))), err
}
