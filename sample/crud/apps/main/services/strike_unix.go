//go:build linux || darwin

package services

import (
	"os"
	"syscall"
	"time"
)

// killSelf ends this process as kill -9 does. It does not return, unless it fails.
func killSelf() error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return err
	}
	select {}
}

// freezeSelf stops this process until it is continued. The signal may arrive a
// moment after the call, so freezeSelf returns when the clock has jumped.
func freezeSelf() {
	const jump, patience = 300 * time.Millisecond, 5 * time.Second
	began := time.Now()
	last := began
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) != nil {
		return
	}
	for time.Since(last) < jump && time.Since(began) < patience {
		last = time.Now()
		time.Sleep(time.Millisecond)
	}
}

// resume continues a process that was frozen.
func resume(pid int) {
	if pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may be gone
	}
}
