//go:build unix

package boxes

import (
	"os"
	"syscall"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// lockFile locks f for this process and those that inherit it, unless it is
// locked.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// ofItsOwn keeps the signals for the group of a holder away from a resident.
func ofItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func kill(pid int) error { return redistest.Signal(pid, syscall.SIGKILL) }
