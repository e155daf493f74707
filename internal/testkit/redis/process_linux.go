package redistest

import "syscall"

// ownedChild makes the child lead a process group, and the kernel kill it when its
// parent dies.
func ownedChild() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
