// Command mega is what needs no app: it writes new applications, explains codes,
// and looks at the locks of programs that run and of servers. All other verbs
// are in each application's own binary.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/cli"
)

func main() {
	os.Exit(run(cli.Process{Args: os.Args, Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}))
}

func run(p cli.Process) int {
	return cli.RunTool(p, cli.Tool{
		Long: "mega writes new applications and looks at locks. Everything else is a verb of an\n" +
			"application's own binary: see `go run . help` in its folder.",
		Verbs:     []func(*cli.Shell) *cobra.Command{newVerb},
		OpenLocks: openLocks,
	})
}
