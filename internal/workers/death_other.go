//go:build !linux

package workers

import "syscall"

// wakes returns nil: only Linux signals the death of a process to its children.
func wakes() *syscall.SysProcAttr { return nil }
