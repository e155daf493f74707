//go:build !linux

package cluster

import "time"

// nodeNanos returns the time of day: the only clock that all processes share
// and that can be read without cgo.
func nodeNanos() int64 { return time.Now().UnixNano() }

// fresh reads the clocks again: the time of day may have been set.
func (c clock) fresh() clock { return readClock() }
