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
	grants = slices.Clone(grants)
	slices.SortFunc(grants, func(a, b Grant) int { return a.From.Compare(b.From) })
	for i, first := range grants {
		end, sum := first.From.Add(per), 0
		for _, g := range grants[i:] {
			if !g.From.Before(end) {
				break
			}
			if g.To.Before(end) {
				sum += g.Units
			}
		}
		if sum > units {
			units, start = sum, first.From
		}
	}
	return units, start
}
