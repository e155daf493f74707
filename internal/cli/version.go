package cli

import (
	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/shell"
)

func versionVerb(s *Shell) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: shell.VersionShort,
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error { return printVersion(s) },
	}
}

// versionFlag adds --version to a root command. It does the same as the verb.
func versionFlag(s *Shell, root *cobra.Command) {
	asked := root.Flags().Bool("version", false, shell.VersionShort)
	run := root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if *asked {
			return printVersion(s)
		}
		return run(c, args)
	}
}

// Version returns the version of this program.
func (s *Shell) Version() string { return shell.BuildOf(s.Name).Version }

func printVersion(s *Shell) error {
	v := shell.BuildOf(s.Name)
	return s.Print(v, v.Print)
}
