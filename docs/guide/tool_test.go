package guide_test

import (
	"os"

	"github.com/megaframework/mega/internal/shell"
)

// toolRole makes the test binary the program mega of the scripts in
// 07-locks-in-practice.md.
const toolRole = "MEGA_GUIDE_TOOL"

// runTool carries out `mega lock …` and `mega limit …`.
func runTool() int {
	p := shell.Process{Name: "mega", Verbs: []string{"lock"}, Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
	if os.Args[1] == "limit" {
		return shell.Run(p, shell.LimitVerb("limit"), os.Args[2:])
	}
	return shell.Main(p, os.Args[2:])
}
