package measure

import "time"

// Scale is the amount of work of a run.
type Scale struct{ Quick bool }

// Reps is how often a row repeats its measurement: an odd number, at least
// five, for the median.
func (s Scale) Reps(n int) int {
	if s.Quick {
		return 3
	}
	return n
}

// Scaled returns a number of operations, reduced for a quick run.
func (s Scale) Scaled(n int) int {
	if s.Quick {
		return n / 4
	}
	return n
}

// Slice is how long one contestant runs at a time.
func (s Scale) Slice(d time.Duration) time.Duration {
	if s.Quick {
		return d / 4
	}
	return d
}
