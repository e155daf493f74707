package cli

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/doctor"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/shell"
)

// bootVerb explains a boot without performing it.
func (l *commandLine) bootVerb() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "boot --dry-run", Short: "show what a boot would decide, and why; nothing is started",
		Long: "The verb loads the configuration, makes every decision and reads the files of the apps. It connects to nothing,\n" +
			"listens nowhere and calls no constructor. A failure ends it with the exit status of the boot, after the\n" +
			"decisions are shown.\n\n" +
			"With --json: the report, as in the record boot.report of the log and at /ops/boot.",
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if !dry {
				return usage(c, "cli.missing_argument", c.CommandPath()+" needs --dry-run.", "boot and serve: "+failure.Command(l.shell.Name)+" serve")
			}
			made, err := l.plan()
			if err != nil {
				return err
			}
			report, err := doctor.Rehearse(made)
			return errors.Join(l.shell.Print(&report, func(w io.Writer) { _ = report.Print(w) }), err)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "do not boot; this flag is required")
	l.onlyFlag(c)
	l.workersFlag(c)
	return c
}

// doctorVerb checks everything that the program needs.
func (l *commandLine) doctorVerb() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Short: "check all that the program needs: configuration, addresses, servers, machine",
		Long: "Run it where the program will run: it connects to the configured servers. A check that would stop the\n" +
			"program has the verdict fail, and the exit status is 1. A weakened promise has the verdict warn.\n\n" +
			"With --json: a list of {\"name\", \"verdict\", \"text\", \"action\", \"took\"}; took is in nanoseconds.",
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			made, err := l.plan()
			findings := doctor.Examine(c.Context(), l.process.Environ, made, err)
			if err := l.shell.Print(findings, func(w io.Writer) { printFindings(w, findings) }); err != nil {
				return err
			}
			for _, f := range findings {
				if f.Verdict == doctor.Fail {
					return exit(failure.ExitCut)
				}
			}
			return nil
		},
	}
	l.onlyFlag(c)
	return c
}

func printFindings(w io.Writer, findings []doctor.Finding) {
	t := plain.Table{}
	for _, f := range findings {
		verdict, name := string(f.Verdict), f.Name
		for line := range strings.SplitSeq(f.Text, "\n") {
			t.Add(verdict, name, line)
			verdict, name = "", ""
		}
		if f.Action != "" {
			t.Add("", "", "-> "+f.Action)
		}
	}
	t.Print(w)
}

// onlyFlag adds --only to verbs that examine the apps that would run.
func (l *commandLine) onlyFlag(c *cobra.Command) {
	c.Flags().StringSliceVar(&l.flags.only, "only", nil, "only the apps `A,B`")
	f := c.Flags().Lookup("only")
	f.Value, f.DefValue = shell.Filled(f.Value), "" // an empty list would start all apps
	completeFlag(c, "only", l.completeApps)
}
