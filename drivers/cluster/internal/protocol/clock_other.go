//go:build !linux

package protocol

import "time"

// NodeNanos returns the time of day: the only clock that all processes share
// and that can be read without cgo.
func NodeNanos() int64 { return time.Now().UnixNano() }

// fresh reads the clocks again: the time of day may have been set.
func (c Clock) fresh() Clock { return ReadClock() }
