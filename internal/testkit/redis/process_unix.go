//go:build unix

package redistest

import (
	"fmt"
	"os/exec"
	"syscall"
)

func killGroup(cmd *exec.Cmd) error { return signal(cmd, syscall.SIGKILL) }
func terminate(cmd *exec.Cmd) error { return signal(cmd, syscall.SIGTERM) }
func pause(cmd *exec.Cmd) error     { return signal(cmd, syscall.SIGSTOP) }
func proceed(cmd *exec.Cmd) error   { return signal(cmd, syscall.SIGCONT) }

// signal sends sig to the group of cmd where it leads one.
func signal(cmd *exec.Cmd, sig syscall.Signal) error {
	pid := cmd.Process.Pid
	if cmd.SysProcAttr.Setpgid {
		pid = -pid
	}
	return syscall.Kill(pid, sig)
}

// Signal sends sig to the process pid. A pid below 2 is an error: kill(2) would
// signal the group of the caller, or every process of the machine, and a worker
// between two processes has the pid 0.
func Signal(pid int, sig syscall.Signal) error {
	if pid < 2 {
		return fmt.Errorf("signal %v: %d is no process", sig, pid)
	}
	return syscall.Kill(pid, sig)
}
