package dev

import (
	"os/exec"
	"runtime"
	"syscall"
)

// bindDeath makes a command end when mega dev is killed. The signal belongs to
// the thread that starts the command, so the caller keeps its thread until
// release.
func bindDeath(cmd *exec.Cmd) (release func()) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
