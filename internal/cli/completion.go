package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

func completionVerb(s *Shell) *cobra.Command {
	return &cobra.Command{
		Use: "completion SHELL", Short: "write a completion script for verbs, flags, keys and codes",
		Long: "The shells are bash, zsh, fish and powershell.",
		Example: fmt.Sprintf(`  source <(%[1]s completion bash)
  %[1]s completion zsh > "${fpath[1]}/_%[1]s"
  %[1]s completion fish > ~/.config/fish/completions/%[1]s.fish
  %[1]s completion powershell | Out-String | Invoke-Expression`, s.Name),
		Args:      arguments(1, "a shell: "+strings.Join(shells, ", ")),
		ValidArgs: shells,
		RunE: func(c *cobra.Command, args []string) error {
			var script strings.Builder
			var err error
			switch root := c.Root(); args[0] {
			case "bash":
				err = root.GenBashCompletionV2(&script, true)
			case "zsh":
				err = root.GenZshCompletion(&script)
			case "fish":
				err = root.GenFishCompletion(&script, true)
			case "powershell":
				err = root.GenPowerShellCompletionWithDesc(&script)
			default:
				text := fmt.Sprintf("Completion for the shell %q is not available; the shells are %s.", args[0], strings.Join(shells, ", "))
				return usage(c, "cli.unknown_shell", text, meant(args[0], shells, typed(c)+" ")...)
			}
			if err != nil {
				return err
			}
			return s.write(script.String())
		},
	}
}

// completing returns a completion from all candidates, each with its
// description after a tab.
func completing(prefix string, all []string) ([]string, cobra.ShellCompDirective) {
	var fit []string
	for _, one := range all {
		if strings.HasPrefix(one, prefix) {
			fit = append(fit, one)
		}
	}
	return fit, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag adds a completion for the values of a flag.
func completeFlag(c *cobra.Command, flag string, with cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, with); err != nil { // there is no such flag
		panic(err)
	}
}

// completeSet completes the keys of the configuration, each followed by =.
func (l *commandLine) completeSet(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	c, err := l.load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var settings []string
	for _, key := range c.Keys() {
		settings = append(settings, key+"=")
	}
	fit, directive := completing(prefix, settings)
	return fit, directive | cobra.ShellCompDirectiveNoSpace
}

// completeApps completes the apps of the program.
func (l *commandLine) completeApps(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	c, err := l.load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completing(prefix, slices.Sorted(maps.Keys(c.Apps)))
}
