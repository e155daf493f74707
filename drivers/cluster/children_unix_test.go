//go:build linux || darwin

package cluster

import (
	"os/exec"
	"syscall"
)

// ofItsOwn keeps the signals that are for a child away from its child.
func ofItsOwn(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
