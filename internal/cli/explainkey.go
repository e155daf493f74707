package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
)

// explained is the document of config explain --json.
type explained struct {
	settings.Explanation
	Decision *choice `json:"decision,omitempty"`
}

func (l *commandLine) explainKeyVerb() *cobra.Command {
	return &cobra.Command{
		Use: "explain KEY", Short: "explain a key: meaning, valid values, current value and its origin",
		Long: "For a key that influences the choice of a driver it shows the driver that would be chosen, and why. With\n" +
			"--set it does so for other values. For a section it lists the keys.\n\n" +
			"With --json: {\"key\", \"doc\", \"takes\", \"value\", \"set\", \"origin\", \"shadows\", \"inherits\", \"default\", \"variable\",\n" +
			"\"legal\", \"min\", \"max\", \"like\", \"required\", \"live\", \"secret\", \"decision\"}; for a section a list of these.",
		Example: fmt.Sprintf("  %[1]s config explain lock.driver\n  %[1]s config explain lock.driver --set cache.main.url=redis://localhost:6379/0", l.shell.Name),
		Args:    arguments(1, "a key, such as lock.driver"), ValidArgsFunction: l.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			have, err := l.load()
			if err != nil {
				return errors.Join(l.explainMissing(args[0], err), err)
			}
			e, err := have.Explain(args[0])
			if err != nil {
				return l.explainSection(c, have, args[0])
			}
			doc := explained{e, choiceOf(have, e.Key)}
			return l.shell.Print(doc, doc.print)
		},
	}
}

// explainMissing explains a required key without a value, for which err is the reason
// that the configuration cannot be loaded.
func (l *commandLine) explainMissing(key string, err error) error {
	f, ok := errors.AsType[*failure.Failure](err)
	program, wrong := plan.NewProgram(l.options, l.flags.only)
	if !ok || wrong != nil {
		return nil //nolint:nilerr // err is the same
	}
	e, ok := settings.ExplainMissing(settings.Source{Apps: program.Names(), Sections: program.Sections()}, key, f.Problems)
	if !ok {
		return nil
	}
	doc := explained{Explanation: e}
	return l.shell.Print(doc, doc.print)
}

// explainSection lists the keys of a section.
func (l *commandLine) explainSection(c *cobra.Command, have *settings.Config, section string) error {
	var all []settings.Explanation
	for _, key := range have.Keys() {
		if e, err := have.Explain(key); err == nil && below(key, section) {
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return noKey(c, have, section)
	}
	return l.shell.Print(all, func(w io.Writer) {
		t := plain.Table{}
		t.Add("KEY", "VALUE", "ORIGIN", "WHAT")
		for _, e := range all {
			t.Add(e.Key, listedValue(e), e.Origin.String(), e.Doc)
		}
		t.Print(w)
	})
}

func listedValue(e settings.Explanation) string {
	if !e.Set {
		return "-"
	}
	return oneLine(e.Value)
}

// choice is the selection that a key belongs to: the selected driver, every
// candidate, and the failure of the boot, if the selection fails.
type choice struct {
	plan.Decision
	Refused *failure.Failure `json:"refused,omitempty"`
}

// choiceOf returns the selection that key belongs to, if there is one.
func choiceOf(c *settings.Config, key string) *choice {
	var of component
	switch section, _, _ := strings.Cut(key, "."); section {
	case "lock", "cache", "cluster":
		of = lockComponent
	case "limit":
		of = limitComponent
	case "bus", "nats":
		of = busComponent
	default:
		return nil
	}
	d, err := of.configured(c)
	refused, _ := errors.AsType[*failure.Failure](err)
	return &choice{d, refused}
}

func (e explained) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", e.Key, cmp.Or(e.Doc, "a key of the program"))
	t := plain.Table{Indent: "  "}
	add := func(name, text string) {
		if text != "" {
			t.Add(name, text)
		}
	}
	t.Add("value", e.valueLine())
	add("default", e.Default)
	add("inherits", e.Inherits)
	add("takes", e.Takes)
	add("legal", strings.Join(e.Legal, ", "))
	add("from", e.Min)
	add("to", e.Max)
	add("like", e.Like)
	t.Add("variable", e.Variable)
	for _, is := range []struct {
		so   bool
		text string
	}{
		{e.Required, "required"},
		{e.Live, "live: a running process applies a new value at config reload"},
		{e.Secret, "secret: never shown, and refused on a command line"},
	} {
		if is.so {
			t.Add("note", is.text)
		}
	}
	t.Print(w)
	if e.Decision != nil {
		printDecision(w, e.Decision)
	}
}

func (e explained) valueLine() string {
	if !e.Set {
		return "not set"
	}
	return oneLine(e.Value) + "  (" + e.Origin.String() + hidden(e.Shadows) + ")"
}

func printDecision(w io.Writer, d *choice) {
	fmt.Fprintf(w, "\nselected for the %s: %s (%s)\n", d.Component, d.Chosen, d.Why)
	t := plain.Table{Indent: "  "}
	for _, c := range d.Candidates {
		t.Add(c.Name, string(c.Outcome), c.Reason, needs(c))
	}
	t.Print(w)
	for _, warning := range d.Warnings {
		fmt.Fprintf(w, "  ! %s\n", warning)
	}
	if d.Refused != nil {
		fmt.Fprintf(w, "  the boot stops: %s (%s)\n", d.Refused.Text, d.Refused.Code)
	}
}

// needs returns the conditions for the selection of a candidate.
func needs(c plan.Candidate) string {
	if c.Outcome == plan.Chosen || c.Needs == "" {
		return ""
	}
	return "needs " + c.Needs
}
