package dev

import (
	"os"
	"os/exec"
)

// executable returns the file name of a program.
func executable(name string) string { return name + ".exe" }

func isolate(*exec.Cmd) {}

func terminate(p *os.Process) error { return p.Kill() }

func killGroup(p *os.Process) error {
	if p == nil {
		return errNoProcess
	}
	return p.Kill()
}
