//go:build !linux

package redistest

import "syscall"

// ownedChild leaves the child in its parent's group, where it hears the
// interrupt of the terminal too: without Linux's parent death signal that is
// the best there is.
func ownedChild() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
