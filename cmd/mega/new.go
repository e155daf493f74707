package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/scaffold"
)

// written is the document of new --json.
type written struct {
	Name  string   `json:"name"`
	Dir   string   `json:"dir"`
	Mega  string   `json:"mega"` // the version that it requires, or the working copy that it is built with
	Files []string `json:"files"`
	Tidy  bool     `json:"tidy"` // go mod tidy would change nothing

	copied bool // it contains the sources of mega
}

func newVerb(s *cli.Shell) *cobra.Command {
	var a scaffold.App
	var copyAt string
	var link bool
	c := &cobra.Command{
		Use: "new NAME", Short: "write a new application with a test",
		Long: "The application is a small shop in a folder NAME: a program, a handler that sells under a lock, its\n" +
			"test, a configuration with comments, a Dockerfile, and the checks of a push. NAME is a word of lower-case\n" +
			"letters and digits. If mega was built from a working copy, the application contains the sources of mega, so\n" +
			"that it builds on every machine. After an error nothing is left behind.\n\nWith --json: {\"name\", \"dir\", \"mega\", \"files\", \"tidy\"}.",
		Example: "  mega new shop && cd shop && make run",
		Args: func(c *cobra.Command, args []string) error {
			return cli.Arguments(c, args, 1, "a name, as in: "+c.CommandPath()+" shop")
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) (err error) {
			a.Name = args[0]
			if a.Framework, err = chosen(copyAt); err != nil {
				return notWritten(a, err)
			}
			a.Framework.Linked = link
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends mega at once
			have, err := scaffold.Write(ctx, a)
			if errors.Is(err, context.Canceled) && ctx.Err() != nil {
				err = context.Cause(ctx) // the signal, not the step that it ended
			}
			if err != nil {
				return notWritten(a, err)
			}
			w := written{Name: a.Name, Dir: have.Dir, Mega: a.Framework.String(), Files: have.Files, Tidy: have.Tidy, copied: a.Framework.Copied()}
			return s.Print(w, w.print)
		},
	}
	c.Flags().StringVar(&a.Dir, "dir", "", "write into `DIR` (default NAME), which must be missing or empty")
	c.Flags().StringVar(&copyAt, "mega", "", "build with the working copy of mega in `DIR` (default: the version of this mega)")
	c.Flags().BoolVar(&link, "link", false, "use the working copy in its place, for work on mega: only this machine can build the application")
	c.Flags().BoolVar(&a.Bare, "no-tidy", false, "do not run the go command, which may need the network")
	return c
}

func chosen(dir string) (scaffold.Framework, error) {
	if dir != "" {
		return scaffold.WorkingCopy(dir)
	}
	return scaffold.Own()
}

// notWritten adds the corrections to the error of an application that could not be written.
func notWritten(a scaffold.App, err error) error {
	f := &failure.Failure{Code: "new.failed", Exit: failure.ExitUnavailable, Text: fmt.Sprintf("Cannot write the application %q.", a.Name), Cause: err}
	switch {
	case errors.Is(err, scaffold.ErrName):
		f.Code, f.Exit, f.Actions = "new.name", failure.ExitUsage, []string{"choose a word such as shop: it names the folder, the module and the program"}
	case errors.Is(err, scaffold.ErrNotEmpty):
		f.Code, f.Exit, f.Actions = "new.not_empty", failure.ExitUsage, []string{"choose another folder: --dir DIR"}
	case errors.Is(err, scaffold.ErrNoFramework):
		f.Code, f.Exit, f.Actions = "new.no_framework", failure.ExitUsage, []string{"name the folder of a working copy of mega: --mega DIR"}
	case errors.Is(err, scaffold.ErrModules):
		f.Code, f.Actions = "new.modules", []string{
			"install go, check the network, and repeat the command",
			"write only the files with --no-tidy, and run go mod tidy later",
		}
	}
	return f
}

func (w written) print(out io.Writer) {
	fmt.Fprintf(out, "%s is in %s, with mega %s\n\n", w.Name, w.Dir, w.Mega)
	for _, file := range w.Files {
		fmt.Fprintf(out, "  %s\n", file)
	}
	if w.copied {
		fmt.Fprint(out, "  mega/\n\nmega has no published version yet: mega/ contains its sources, so that the application builds everywhere.\n"+
			"README.md says how to replace them by a version.\n")
	}
	fmt.Fprintf(out, "\nnext:\n  cd %s\n", shortest(w.Dir))
	if !w.Tidy {
		fmt.Fprintln(out, "  go mod tidy  # with a network")
	}
	fmt.Fprint(out, "  make dev     # http://127.0.0.1:8080, built and started again after each change\n  make test\n")
}

// shortest returns the path of dir for a command line: relative to the working
// directory if that is shorter.
func shortest(dir string) string {
	here, err := os.Getwd()
	if err != nil {
		return dir
	}
	rel, err := filepath.Rel(here, dir)
	if err != nil || len(rel) > len(dir) {
		return dir
	}
	return rel
}
