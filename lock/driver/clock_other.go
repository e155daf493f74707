//go:build !linux

package driver

import "time"

// slept depends only on the clocks of the process.
var slept sleep

// asleep returns the sleep time of the machine since the process started, as
// estimated from the time of day.
func asleep(now time.Time) time.Duration { return slept.after(drift(now)) }
