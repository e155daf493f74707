package limittest

import (
	"slices"
	"time"
)

// Grant is a grant as somebody saw it: at some time from From to To, which are
// equal where the time is known.
type Grant struct {
	From, To time.Time
	Units    int
}

// Worst returns the greatest number of units that were certainly granted within
// one half-open interval of length per, and the start of that interval. It tries
// every interval that begins with a grant.
func Worst(grants []Grant, per time.Duration) (units int, start time.Time) {
	begun, ended := slices.Clone(grants), slices.Clone(grants)
	slices.SortFunc(begun, func(a, b Grant) int { return a.From.Compare(b.From) })
	slices.SortFunc(ended, func(a, b Grant) int { return a.To.Compare(b.To) })
	sum, next := 0, 0
	for _, first := range begun {
		end := first.From.Add(per)
		for ; next < len(ended) && ended[next].To.Before(end); next++ {
			if !ended[next].From.Before(first.From) {
				sum += ended[next].Units
			}
		}
		if sum > units {
			units, start = sum, first.From
		}
		if first.To.Before(end) {
			sum -= first.Units // the next interval begins after it
		}
	}
	return units, start
}
