//go:build !linux

package workers

import "syscall"

// continueAtParentDeath returns nil: only Linux signals the death of a process to its children.
func continueAtParentDeath() *syscall.SysProcAttr { return nil }
