//go:build unix

package locks

import (
	"os"
	"syscall"
)

// lockFile waits for the kernel's lock of a file, and unlockFile gives it back.
func lockFile(f *os.File) error   { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
func unlockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
