//go:build unix

package redistest

import (
	"fmt"
	"os"
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

// lockByte locks a byte of the file for this process, and reports whether no other
// process has locked it.
func lockByte(file *os.File, at int) bool { return setLock(file, at, syscall.F_WRLCK) == nil }

func unlockByte(file *os.File, at int) { _ = setLock(file, at, syscall.F_UNLCK) } // ends with the process

func setLock(file *os.File, at int, kind int16) error {
	return syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: kind, Start: int64(at), Len: 1})
}
