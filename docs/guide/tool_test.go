package guide_test

import (
	"os"

	"github.com/megaframework/mega/internal/shell"
)

// toolRole makes the test binary the program mega of the scripts in
// 07-locks-in-practice.md.
const toolRole = "MEGA_GUIDE_TOOL"

// runTool carries out `mega lock …`.
func runTool() int {
	p := shell.Process{Name: "mega", Verbs: []string{"lock"}, Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
	return shell.Main(p, os.Args[2:])
}
