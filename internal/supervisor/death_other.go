//go:build !linux

package supervisor

import "syscall"

// wakes is nothing: only Linux tells a process of its parent's death by a signal.
func wakes() *syscall.SysProcAttr { return nil }
