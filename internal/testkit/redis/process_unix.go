//go:build unix

package redistest

import (
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
