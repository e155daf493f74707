//go:build !linux

package driver

import "time"

var start = time.Now()

// asleep returns how far the wall clock has run ahead of the monotonic one
// since the process started. Where a system has no clock that counts sleep for
// a caller without cgo, this is the next best: a wall clock set forward ends
// leases early, which is safe, and one set back is ignored.
func asleep() time.Duration {
	now := time.Now()
	ahead := now.Round(0).Sub(start.Round(0)) - now.Sub(start)
	return max(ahead, 0).Truncate(100 * time.Millisecond)
}
