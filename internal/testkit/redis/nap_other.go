//go:build !linux

package redistest

import "time"

// nap sleeps as precisely as a timer of the runtime does.
func nap(d time.Duration) { time.Sleep(d) }
