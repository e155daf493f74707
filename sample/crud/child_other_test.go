//go:build !linux

package main

import "syscall"

// endWithParent can do nothing here: children are ended by their tests.
func endWithParent() *syscall.SysProcAttr { return nil }
