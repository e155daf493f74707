package main

import "syscall"

// endWithParent has a child killed when the test ends, however it ends.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
