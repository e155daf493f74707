//go:build !linux

package driver

import "time"

// slept holds nothing but what the clocks of the process say.
var slept sleep

// asleep returns how long the machine has slept since the process started, as
// far as the time of day shows it.
func asleep(now time.Time) time.Duration { return slept.after(drift(now)) }
