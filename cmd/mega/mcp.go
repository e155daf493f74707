package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/mcp"
	"github.com/megaframework/mega/internal/shell"
)

// mcpVerb returns the verb mcp of a process with this environment.
func mcpVerb(environ []string) func(*cli.Shell) *cobra.Command {
	return func(s *cli.Shell) *cobra.Command {
		var backend shell.Backend
		c := &cobra.Command{
			Use: "mcp", Short: "offer locks and limits to an agent as tools",
			Long: "It speaks the Model Context Protocol on standard input and output, and ends with its input. The tools are\n" +
				"lock_exec, lock_acquire, lock_renew, lock_release, lock_ls, limit_exec and limit_permit. They do what the verbs\n" +
				"of mega lock and mega limit do, with the same keys, errors and codes; lock_exec and limit_exec run any command\n" +
				"with the rights of this process.\n\n" +
				"When the client disconnects, the locks of lock_acquire are given back, and running commands are ended.",
			Example: "  {\"mcpServers\": {\"mega\": {\"command\": \"mega\", \"args\": [\"mcp\"]}}}",
			Args:    func(c *cobra.Command, args []string) error { return cli.Arguments(c, args, 0) },
			RunE: func(c *cobra.Command, _ []string) error {
				ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
				defer stop()
				broken := make(chan os.Signal, 1) // a write to a client that has gone fails, and does not end the process
				signal.Notify(broken, syscall.SIGPIPE)
				defer signal.Stop(broken)
				return cli.ScriptError(c, mcp.Serve(ctx, mcp.Config{
					Process: shell.Process{Name: s.Name, Verbs: []string{"lock"}, Environ: environ, Stderr: s.Stderr},
					Backend: backend, Version: s.Version(), In: os.Stdin, Out: os.Stdout,
				}))
			},
		}
		backend.Flags(c.Flags())
		return c
	}
}
