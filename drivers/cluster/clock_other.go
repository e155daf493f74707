//go:build !linux

package cluster

import "time"

// nodeNanos is the time of day: the one clock that all processes have and that
// can be read without cgo.
func nodeNanos() int64 { return time.Now().UnixNano() }

// fresh reads the clocks again: the time of day may have been set.
func (c clock) fresh() clock { return readClock() }
