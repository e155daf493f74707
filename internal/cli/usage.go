package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/internal/spelling"
)

// usage returns the failure for a wrong command line: the mistake and the
// correction. Both may repeat arguments, and a log may keep them longer than the
// process has them.
func usage(c *cobra.Command, code, text string, actions ...string) error {
	f := &failure.Failure{Code: code, Exit: failure.ExitUsage, Text: mask.Text(text)}
	for _, action := range append(actions, "show the help: "+typed(c)+" --help") {
		f.Actions = append(f.Actions, mask.Text(action))
	}
	return f
}

// typed returns the command as a user types it.
func typed(c *cobra.Command) string {
	program := c.Root().Name()
	return failure.Command(program) + strings.TrimPrefix(c.CommandPath(), program)
}

// noVerb is for verbs with verbs of their own: a remaining argument is an
// unknown verb.
func noVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := verbNames(c)
	actions := meant(args[0], names, typed(c)+" ")
	if len(actions) == 0 && len(names) > 0 && c.HasParent() {
		actions = []string{"its verbs are " + strings.Join(names, ", ")}
	}
	return usage(c, "cli.unknown_verb", fmt.Sprintf("Unknown verb %q.", args[0]), actions...)
}

// unknownVerb returns the failure for a command line whose last known verb is c and
// which goes on with an unknown one. Other mistakes do not count.
func unknownVerb(c *cobra.Command) error {
	err := c.ValidateArgs(c.Flags().Args())
	if f, ok := errors.AsType[*failure.Failure](err); ok && f.Code == "cli.unknown_verb" {
		return f
	}
	return nil
}

// verbNames returns the names of the verbs that the help of c lists.
func verbNames(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// group returns a verb that only has verbs of its own.
func group(name, short string, verbs ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: name, Short: short, Args: noVerb, RunE: func(c *cobra.Command, _ []string) error {
		return usage(c, "cli.no_verb", fmt.Sprintf("%s needs a verb: %s.", c.CommandPath(), strings.Join(verbNames(c), ", ")))
	}}
	g.AddCommand(verbs...)
	return g
}

// Arguments checks that a verb has at least least arguments and at most one for
// each of their names.
func Arguments(c *cobra.Command, args []string, least int, names ...string) error {
	switch {
	case len(args) < least:
		return usage(c, "cli.missing_argument", fmt.Sprintf("%s needs %s.", c.CommandPath(), names[len(args)]))
	case len(args) > len(names):
		return usage(c, "cli.extra_argument", fmt.Sprintf("%s does not take %q.", c.CommandPath(), args[len(names)]))
	}
	return nil
}

func arguments(least int, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error { return Arguments(c, args, least, names...) }
}

// wrongFlag returns the failure for a wrong flag, with the most similar flag.
func wrongFlag(c *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	e := shell.WrongFlag(c.CommandPath(), c.Flags(), err)
	return usage(c, e.Code, e.Text, e.Actions...)
}

// meant returns an action that suggests the most similar of names, if one is
// similar.
func meant(word string, names []string, before string) []string {
	if best := spelling.Nearest(word, names); best != "" {
		return []string{"did you mean: " + before + best}
	}
	return nil
}
