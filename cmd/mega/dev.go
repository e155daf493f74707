package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/dev"
	"github.com/megaframework/mega/internal/failure"
)

// devVerb returns the verb dev of a process with this environment and standard
// output.
func devVerb(environ []string, stdout io.Writer) func(*cli.Shell) *cobra.Command {
	return func(s *cli.Shell) *cobra.Command {
		return &cobra.Command{
			Use: "dev [DIR] [-- ARG...]", Short: "build and run an application, and again after each change",
			Long: "It builds the program in DIR (default: this folder), runs it with the arguments ARG in env dev, and builds\n" +
				"and starts it again when a source or its configuration changes. The program reads its views, texts and public\n" +
				"files from disk: a change of them needs neither. If a build fails, its errors are shown and the running\n" +
				"program keeps serving. SIGINT ends the program and mega; a second one kills the program.",
			Example: "  cd shop && mega dev\n  mega dev ./cmd/shop -- --workers 2",
			Args: func(c *cobra.Command, args []string) error {
				own, _ := split(c, args)
				return cli.Arguments(c, own, 0, "a folder")
			},
			RunE: func(c *cobra.Command, args []string) error {
				signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
				ctx, stop := signal.NotifyContext(c.Context(), signals...)
				defer stop()
				again := make(chan os.Signal, 1)
				defer signal.Stop(again)
				defer context.AfterFunc(ctx, func() { signal.Notify(again, signals...) })()
				own, rest := split(c, args)
				dir := "."
				if len(own) > 0 {
					dir = own[0]
				}
				err := dev.Run(ctx, dev.Config{Dir: dir, Args: rest, Environ: environ, Stdout: stdout, Stderr: s.Stderr, Kill: again})
				if err != nil {
					if path, err := filepath.Abs(dir); err == nil {
						dir = path
					} else if dir == "." {
						dir = "this folder"
					}
					return &failure.Failure{
						Code: "dev.failed", Exit: failure.ExitUsage, Text: "Cannot develop in " + dir + ".", Cause: err,
						Actions: []string{"name the folder of a program: mega dev DIR"},
					}
				}
				return nil
			},
		}
	}
}

// split returns the arguments before and after --.
func split(c *cobra.Command, args []string) (own, rest []string) {
	if at := c.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}
