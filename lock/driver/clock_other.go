//go:build !linux

package driver

import "time"

// asleep returns how far the time of day has run ahead. Where a system has no
// clock that counts sleep for a caller without cgo, this is the next best: a
// wall clock set forward ends leases early, which is safe, and one set back is
// ignored.
func asleep(now time.Time) time.Duration {
	return max(drift(now), 0).Truncate(100 * time.Millisecond)
}
