//go:build linux || darwin

package doctor

import "syscall"

// fileLimit returns the number of files that the process may open: Go raises
// the soft limit to the hard one.
func fileLimit() (uint64, bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return limit.Max, err == nil
}
