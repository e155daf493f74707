package cli

import (
	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
)

// commandVerb returns the verb of a command of the program.
func (l *commandLine) commandVerb(h plan.Hook) *cobra.Command {
	return &cobra.Command{
		Use: h.Name + " [ARGUMENT...]", Short: "run the program's " + h.Fn.Name() + " and end",
		Long: "It runs " + h.Fn.Name() + " with the configuration, the locks and the messages of the program, and ends.\n" +
			"It opens no listener. Arguments that begin with a dash follow after --.",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, words []string) error {
			p := l.boot()
			p.Command, p.Words, p.JSON = h.Name, words, l.shell.JSON
			if status := serve(p, l.options); status != failure.ExitOK {
				return exit(status)
			}
			return nil
		},
	}
}
