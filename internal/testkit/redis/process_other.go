//go:build !linux

package redistest

import (
	"syscall"
	"time"
)

// ownedChild leaves the child in the group of its parent, where it receives the
// interrupt of the terminal too: other systems have no parent death signal.
func ownedChild() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// isStopped gives the threads of a process that was sent SIGSTOP the time to
// stop: these systems do not tell when they have.
func isStopped(int) bool {
	time.Sleep(50 * time.Millisecond)
	return true
}
