package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// standsStill says whether all threads of a process are stopped.
func standsStill(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(stat, []byte(") T ")) {
			return false
		}
	}
	return err == nil && len(threads) > 0
}
