// Package goroutine identifies goroutines.
package goroutine

// ID returns a number that identifies the calling goroutine among the running
// ones. It is never 0. When a goroutine has ended, a later one may get its
// number.
func ID() uintptr { return id() }
