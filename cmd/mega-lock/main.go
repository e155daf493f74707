// Command mega-lock has the verbs of `mega lock` and `mega limit` for scripts alone,
// in a small binary for cron and containers.
package main

import (
	"os"
	"path/filepath"

	"github.com/megaframework/mega/internal/shell"
)

func main() {
	p := shell.Process{Name: filepath.Base(os.Args[0]), Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(shell.Main(p, os.Args[1:]))
}
