package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/shell"
)

// scripted returns the verbs of package shell, for scripts.
func (l *locks) scripted() (verbs []*cobra.Command) {
	for _, v := range shell.Verbs() {
		if v.Name == "release" || v.Name == "ls" { // cases of the verbs for operators
			continue
		}
		verbs = append(verbs, script(v, l.scriptProcess))
	}
	return verbs
}

// script returns a verb for scripts, which process describes to it.
func script(v shell.Verb, process func(*cobra.Command) shell.Process) *cobra.Command {
	c := &cobra.Command{
		Use: strings.TrimSpace(v.Name + " " + v.Args), Short: v.Short, Long: v.Long, Hidden: v.Hidden,
		Annotations:           map[string]string{statuses: v.Statuses},
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			for _, name := range []string{"config", "set", "name", "worker"} { // of the verbs for processes
				if c.Flags().Changed(name) {
					return usage(c, "cli.wrong_flag", typed(c)+" has no use for --"+name+": it calls no process and reads no configuration.",
						"leave out --"+name, "to use a Redis: lock exec, lock acquire and limit exec have --url-env VAR")
				}
			}
			return ScriptError(c, v.Run(process(c), args, c.ArgsLenAtDash()))
		},
	}
	if v.Flags != nil {
		v.Flags(c.Flags())
	}
	return c
}

// limited returns the verb that runs a command under a limit. The keeper that it
// may start is a verb of lock.
func limited(name string, s *Shell, environ []string) *cobra.Command {
	return script(shell.LimitVerb(name), func(c *cobra.Command) shell.Process {
		return shell.Process{Name: s.Name, Verbs: []string{"lock"}, As: c.CommandPath(), Environ: environ, Stdout: s.Stdout, Stderr: s.Stderr, JSON: s.JSON}
	})
}

func (l *locks) scriptProcess(c *cobra.Command) shell.Process {
	path := strings.Fields(c.Parent().CommandPath())
	return shell.Process{
		Name: l.shell.Name, Verbs: path[1:], Environ: l.environ,
		Stdout: l.shell.Stdout, Stderr: l.shell.Stderr, JSON: l.shell.JSON,
	}
}

// ScriptError converts the error of a verb of package shell.
func ScriptError(c *cobra.Command, err error) error {
	if status, ok := errors.AsType[shell.Status](err); ok {
		return exit(status)
	}
	if e, ok := errors.AsType[*shell.Error](err); ok && e.Exit == failure.ExitUsage {
		return usage(c, e.Code, e.Text, e.Actions...)
	}
	return failureOf(err)
}

// failureOf converts an error of package shell, and returns any other as it is.
func failureOf(err error) error {
	if e, ok := errors.AsType[*shell.Error](err); ok {
		return &failure.Failure{Code: e.Code, Exit: e.Exit, Text: e.Text, Actions: e.Actions}
	}
	return err
}
