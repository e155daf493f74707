// Command mega has the verbs that need no app: it writes new applications, runs
// them while they are developed, explains codes, shows the locks of running
// programs and of servers, and runs commands under locks and limits, for scripts
// and for agents. All other verbs are in the binary of each application.
package main

import (
	"os"

	redislog "github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/cli"
)

func main() {
	redislog.Disable() // the verbs report the client's errors
	os.Exit(run(cli.Process{Args: os.Args, Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}))
}

func run(p cli.Process) int {
	return cli.RunTool(p, cli.Tool{
		Long: "mega writes and runs new applications and shows locks. All other verbs are in the binary of\n" +
			"each application: see `go run . help` in its folder.",
		Verbs:     []func(*cli.Shell) *cobra.Command{newVerb, devVerb(p.Environ, p.Stdout), mcpVerb(p.Environ)},
		OpenLocks: openLocks,
	})
}
