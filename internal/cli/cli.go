// Package cli is the command line of a program: its verbs, their output, and
// its signals.
//
// A verb writes its result to standard output, as a table or with --json as one
// document, and its errors to standard error, as a panel or with --json as the
// same in JSON. The exit status is the same either way: 64 for a wrong command
// line, otherwise the status of the failure.
//
//	cli.go      Run: an application's program; tool.go RunTool: a program without an app
//	usage.go    mistakes of the command line; help.go and completion.go
//	shell.go    output: tables, JSON, panels
//
//	source.go   the processes that a verb asks, and their answers
//	process.go  the running processes of this program; socket.go the processes at a socket
//
//	serve.go    serve, with the signals; command.go the commands of mega.Command
//	boot.go     boot --dry-run and doctor; routes.go; config.go
//	lock.go     lock, with lockpage.go; limit.go; bus.go, with bustail.go and bustopics.go; worker.go
//	script.go   the verbs of package shell, such as lock exec
//	explain.go  explain CODE; explainkey.go config explain KEY
package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/shell"
)

// Process describes how a program was started.
type Process struct {
	Args    []string // with the program's name first
	Environ []string
	Dir     string // where the search for configuration files begins; "" for no search
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// name returns the name by which the program was called.
func (p Process) name() string {
	if len(p.Args) == 0 {
		return "program"
	}
	return strings.TrimSuffix(filepath.Base(p.Args[0]), ".exe")
}

// commandLine is the command line of one run of an app's program.
type commandLine struct {
	shell   *Shell
	process Process
	options []plan.Option
	flags   flags
}

// flags are the flags of an app's program.
type flags struct {
	config string
	set    []string
	trace  []string
	only   []string

	verbose bool
	workers int
}

// Run executes the command line of an app's program and returns the exit
// status.
func Run(p Process, options ...plan.Option) int {
	l := &commandLine{shell: newShell(p), process: p, options: options}
	root := l.root()
	root.AddCommand(
		l.serveVerb(), l.bootVerb(), l.doctorVerb(), l.routesVerb(),
		l.configVerb(), l.lockVerb(), l.limitVerb(), l.busVerb(), l.workerVerb(), explainVerb(l.shell), completionVerb(l.shell), versionVerb(l.shell),
	)
	for _, h := range plan.Commands(options) {
		if !slices.Contains(plan.Verbs(), h.Name) { // a wrong name stops every start
			root.AddCommand(l.commandVerb(h))
		}
	}
	return execute(l.shell, root, p.Args)
}

// root returns the root command, which serves if no verb is given.
func (l *commandLine) root() *cobra.Command {
	root := &cobra.Command{
		Use:         l.shell.Name,
		Long:        "Without a verb the program serves until SIGINT or SIGTERM.",
		Args:        noVerb,
		RunE:        l.serveVerb().RunE,
		Annotations: map[string]string{statuses: programStatuses},
		// Verbs that do not boot refuse a wrong topic too. A start refuses it by
		// itself, with a panel.
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if !c.HasParent() || c.Name() == "serve" {
				return nil
			}
			return plan.CheckTrace(l.flags.trace)
		},
	}
	l.onlyFlag(root)
	l.workersFlag(root)
	versionFlag(l.shell, root)
	all := root.PersistentFlags()
	all.Var(shell.Text(&l.flags.config), "config", "read the configuration from `PATH`, a file or a folder, instead of searching for it")
	all.StringArrayVar(&l.flags.set, "set", nil, "set a key of the configuration, as `KEY=VALUE`; repeatable")
	all.StringSliceVar(&l.flags.trace, "trace", nil, "trace a part of the boot: `WHAT` is fx, the injector")
	all.BoolVar(&l.flags.verbose, "verbose", false, "show all candidates, settings and slow phases in the boot report")
	all.BoolVar(&l.shell.JSON, "json", false, "write JSON")
	completeFlag(root, "set", l.completeSet)
	completeFlag(root, "trace", cobra.FixedCompletions([]string{"fx"}, cobra.ShellCompDirectiveNoFileComp))
	return root
}

const programStatuses = `   0  done
   1  stopped, but not everything finished in time; or a check failed
  64  the command line is wrong
  69  a required service is unavailable
  70  the program is wrong
  75  a start hook exceeded its budget
  78  the configuration is wrong
`

// boot returns the process in the form of package boot.
func (l *commandLine) boot() boot.Process {
	set, flags := l.flags.set, map[string]string{}
	if l.flags.workers != 0 {
		set, flags["cluster.workers"] = append(slices.Clip(set), "cluster.workers="+strconv.Itoa(l.flags.workers)), "--workers"
	}
	return boot.Process{
		Args: l.process.Args, Environ: l.process.Environ, Stderr: l.process.Stderr, Dir: l.process.Dir,
		Config: l.flags.config, Set: set, Flags: flags, Trace: l.flags.trace, Only: l.flags.only, Verbose: l.flags.verbose,
	}
}

// exit is the error that ends a verb with a status, after it has written all
// its output.
type exit int

func (exit) Error() string { return "exit" }

// execute runs the verb in args and returns the exit status.
func execute(s *Shell, root *cobra.Command, args []string) int {
	args = append([]string{}, args[min(1, len(args)):]...) // not nil, for which cobra uses os.Args
	dress(s, root)
	var wrong error // of a command line with --help, for which cobra expects no error
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if wrong = unknownVerb(c); wrong == nil {
			wrong = s.write(help(c))
		}
	})
	root.SetArgs(args)
	err := cmp.Or(root.ExecuteContext(context.Background()), wrong)
	status, known := errors.AsType[exit](err)
	switch {
	case known:
		return int(status)
	case err != nil:
		s.JSON = s.JSON || slices.Contains(beforeDashes(args), "--json") // the flag may follow the mistake
		return s.fail(err)
	}
	return failure.ExitOK
}

func beforeDashes(args []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i]
	}
	return args
}

// dress adds the common settings to a tree of verbs.
func dress(s *Shell, root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(s.Stdout)
	root.SetErr(s.Stderr)
	root.SetFlagErrorFunc(wrongFlag)
	root.SetHelpCommand(helpVerb(root))
}
