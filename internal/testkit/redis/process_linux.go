package redistest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ownedChild makes the child lead a process group, and the kernel kill it when its
// parent dies.
func ownedChild() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// isStopped reports whether all threads of a process are stopped.
func isStopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(stat, []byte(") T ")) {
			return false
		}
	}
	return err == nil && len(threads) > 0
}
