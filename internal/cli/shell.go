package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
)

// Shell is the output of the verbs.
type Shell struct {
	Name           string // of the program
	Stdout, Stderr io.Writer
	JSON           bool
}

func newShell(p Process) *Shell { return &Shell{Name: p.name(), Stdout: p.Stdout, Stderr: p.Stderr} }

// Print writes the result of a verb: v as JSON, or the output of page.
func (s *Shell) Print(v any, page func(w io.Writer)) error {
	if s.JSON {
		return s.printJSON(v)
	}
	var b strings.Builder
	page(&b)
	return s.write(plain.Text(b.String())) // processes and servers have written parts of it
}

// printJSON writes one document.
func (s *Shell) printJSON(v any) error {
	text, err := plain.Document(v)
	if err != nil {
		return err
	}
	return s.write(text)
}

func (s *Shell) write(text string) error {
	if _, err := io.WriteString(s.Stdout, text); err != nil {
		return &failure.Failure{Code: "cli.output", Exit: failure.ExitUnavailable, Text: "Cannot write the result.", Cause: err}
	}
	return nil
}

// fail reports why a verb failed, and returns the exit status.
func (s *Shell) fail(err error) int {
	f, ok := errors.AsType[*failure.Failure](err)
	if !ok {
		f = &failure.Failure{Code: "cli.failed", Exit: failure.ExitInternal, Text: "The command failed.", Cause: err}
	}
	if s.JSON {
		if text, err := plain.Document(f); err == nil {
			_, _ = io.WriteString(s.Stderr, text) // nothing can report a failed write
			return f.Exit
		}
	}
	panel(s.Stderr, s.Name, f)
	return f.Exit
}

// panel writes a failure as a panel. The panel of a boot reports that the
// program could not start; the panel of a verb reports only the verb's failure.
func panel(w io.Writer, program string, f *failure.Failure) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s  (%s)\n", program, f.Text, f.Code)
	t := plain.Table{Indent: "  "}
	for _, fact := range f.Lines() {
		for i, line := range strings.Split(fact.Value, "\n") {
			t.Add([]string{fact.Name, ""}[min(i, 1)], line)
		}
	}
	t.Print(&b)
	for _, action := range f.Actions {
		fmt.Fprintf(&b, "  • %s\n", action)
	}
	if f.Exit != failure.ExitUsage {
		fmt.Fprintf(&b, "  more: %s explain %s\n", failure.Command(program), f.Code)
	}
	_, _ = io.WriteString(w, plain.Text(b.String())) // nothing can report a failed write
}
