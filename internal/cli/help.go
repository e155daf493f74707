package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/shell"
)

// help returns the description and the usage of a verb.
func help(c *cobra.Command) string {
	if f := c.Flags().Lookup("help"); f != nil {
		f.Hidden = true // the reader of this help knows the flag
	}
	var b strings.Builder
	text := c.Long
	if text == "" {
		text = shell.Sentence(c.Short)
	}
	fmt.Fprintf(&b, "usage: %s\n\n%s\n", useLine(c), strings.TrimSpace(text))
	printVerbs(&b, c)
	printFlags(&b, "flags", c.LocalNonPersistentFlags())
	all := c.InheritedFlags()
	all.AddFlagSet(c.PersistentFlags())
	printFlags(&b, "shared flags", all)
	if c.Example != "" {
		fmt.Fprintf(&b, "\nexamples:\n%s\n", strings.TrimRight(c.Example, "\n"))
	}
	if epilogue := c.Annotations[statuses]; epilogue != "" {
		fmt.Fprintf(&b, "\nexit status:\n%s", epilogue)
	}
	return b.String()
}

// statuses is the annotation that describes a program's exit statuses.
const statuses = "statuses"

func useLine(c *cobra.Command) string {
	line := c.CommandPath() + strings.TrimPrefix(c.Use, c.Name())
	switch {
	case c.HasAvailableSubCommands() && c.HasParent():
		return line + " VERB"
	case c.HasAvailableSubCommands():
		return line + " [VERB] [flags]"
	}
	return line + " [flags]"
}

func printVerbs(b *strings.Builder, c *cobra.Command) {
	if !c.HasAvailableSubCommands() {
		return
	}
	b.WriteString("\nverbs:\n")
	t := plain.Table{Indent: "  "}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			t.Add(sub.Name(), sub.Short)
		}
	}
	t.Print(b)
}

func printFlags(b *strings.Builder, title string, f *pflag.FlagSet) {
	if f.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s:\n%s", title, f.FlagUsages())
	}
}

// helpVerb returns the verb that shows the help of another verb.
func helpVerb(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [VERB...]",
		Short: "show the usage of a verb",
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			at, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range at.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return completing(prefix, names)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			at, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return noVerb(at, rest)
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}
