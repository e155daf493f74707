//go:build !linux

package cluster

import "time"

// standsStill gives the threads of a process that was told to stop the time to
// do it: nothing says when they have.
func standsStill(int) bool {
	time.Sleep(50 * time.Millisecond)
	return true
}
