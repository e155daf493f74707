//go:build unix

package listen

import (
	"math"
	"syscall"
)

// descriptors returns how many descriptors the process may open, or 0 if the
// limit is not known.
func descriptors() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	return int(min(r.Cur, math.MaxInt32))
}
