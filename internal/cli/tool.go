package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/lock"
)

// Tool is a program without an app: cmd/mega.
type Tool struct {
	Long  string
	Verbs []func(*Shell) *cobra.Command
	// OpenLocks opens the locks that the server at url keeps.
	OpenLocks func(ctx context.Context, url string) (*lock.Locker, error)
}

// RunTool does what the command line of a tool says, and returns the exit
// status.
func RunTool(p Process, t Tool) int {
	s := newShell(p)
	root := &cobra.Command{
		Use: s.Name, Long: t.Long, Args: noVerb,
		RunE:        func(c *cobra.Command, _ []string) error { return c.Help() },
		Annotations: map[string]string{statuses: toolStatuses},
	}
	root.AddCommand(explainVerb(s), completionVerb(s), versionVerb(s))
	root.PersistentFlags().BoolVar(&s.JSON, "json", false, "write JSON")
	for _, verb := range t.Verbs {
		root.AddCommand(verb(s))
	}
	return execute(s, root, p.Args)
}

const toolStatuses = `   0  done
  64  the command line is wrong
  69  something that was asked for cannot be had now
`
