package driver

import (
	"fmt"
	"time"
)

// The bounds of a rate, before the slack is added.
const (
	MaxN   = 1_000_000_000
	MinPer = 10 * time.Millisecond
	MaxPer = 31 * 24 * time.Hour
)

// RatesFault returns what is wrong with rates of which one is out of bounds
// (W15), or "".
func RatesFault(rates []Rate) string {
	if len(rates) < 1 || len(rates) > MaxRates {
		return fmt.Sprintf("the limit has %d rates, want 1 to %d", len(rates), MaxRates)
	}
	for i, r := range rates {
		switch {
		case r.N < 1 || r.N > MaxN:
			return fmt.Sprintf("N is %d, want 1 to %d", r.N, MaxN)
		case r.Per < MinPer || r.Per > MaxPer:
			return fmt.Sprintf("Per is %v, want %v to %v", r.Per, MinPer, MaxPer)
		}
		for _, other := range rates[:i] {
			if micros(other.Per) == micros(r.Per) {
				return fmt.Sprintf("two rates have the Per %v", r.Per)
			}
		}
	}
	return ""
}

// micros rounds d up to microseconds, as the front does.
func micros(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}
