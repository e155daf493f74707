//go:build !linux

package redistest

import "syscall"

// ownedChild leaves the child in the group of its parent, where it receives the
// interrupt of the terminal too: other systems have no parent death signal.
func ownedChild() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
