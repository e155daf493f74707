package redistest

import "syscall"

// ownedChild gives the child a group of its own, and has the kernel kill it
// when its parent dies.
func ownedChild() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
