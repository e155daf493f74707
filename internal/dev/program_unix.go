//go:build unix

package dev

import (
	"os"
	"os/exec"
	"syscall"
)

// executable returns the file name of a program.
func executable(name string) string { return name }

// isolate puts a command into a process group of its own, so that a signal of
// the terminal reaches mega dev alone, which ends the command in order.
func isolate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// killGroup kills all processes of the group of p.
func killGroup(p *os.Process) error {
	if p == nil || p.Pid <= 1 {
		return errNoProcess
	}
	return syscall.Kill(-p.Pid, syscall.SIGKILL)
}
