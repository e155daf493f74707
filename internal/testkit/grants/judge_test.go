//go:build linux || darwin

package grants

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/megaframework/mega/limit/limittest"
)

// judge returns an error for each rate that was exceeded in some interval: on the
// backend's clock if it is the same for all clients, and on the machine's.
func judge(clients [][]record, sameClock bool) error {
	var errs []error
	for key, m := range limits {
		exact, seen := grantsOf(clients, key)
		for _, r := range m.Rates {
			if r == everything {
				continue
			}
			if sameClock {
				if worst, at := limittest.Worst(exact, r.Per); worst > r.N {
					errs = append(errs, fmt.Errorf("%s: %d units within %v from %v on the backend's clock, want at most %d", keyOf(key), worst, r.Per, at, r.N))
				}
			}
			// The two clocks may run at rates that differ a little.
			if worst, at := limittest.Worst(seen, r.Per-r.Per/1000); worst > r.N {
				errs = append(errs, fmt.Errorf("%s: %d units within %v from %v on the machine's clock, want at most %d", keyOf(key), worst, r.Per, at, r.N))
			}
		}
	}
	return errors.Join(errs...)
}

// grantsOf returns the grants of a key at their times on the backend's clock, and
// as they were seen on the machine's clock. Returned units do not count, and a
// debt is not a grant.
func grantsOf(clients [][]record, key int) (exact, seen []limittest.Grant) {
	for _, client := range clients {
		low, high := lag(client, key)
		for _, r := range client {
			if r.Key != int64(key) || r.At == 0 {
				continue
			}
			units := int(min(r.Cost, r.Least))
			exact = append(exact, limittest.Grant{From: micros(r.At), To: micros(r.At), Units: units})
			from, to := r.From, r.To
			if low <= high {
				from, to = max(from, r.At*1000+low), min(to, r.At*1000+high)
			}
			seen = append(seen, limittest.Grant{From: time.Unix(0, from), To: time.Unix(0, to), Units: units})
		}
	}
	return exact, seen
}

// lag returns how far the machine's clock is ahead of the times of a client's
// grants of a key, at least and at most. Each grant was between the beginning and the end
// of its call, so the fastest calls give narrow bounds. Without such bounds, as
// after a step of the backend's clock, low is greater than high.
func lag(client []record, key int) (low, high int64) {
	low, high = math.MinInt64, math.MaxInt64
	for _, r := range client {
		if r.Key == int64(key) && r.At != 0 {
			low, high = max(low, r.From-(r.At+1)*1000), min(high, r.To-r.At*1000)
		}
	}
	return low, high
}

// granted returns the number of calls that were granted, and of their units.
func granted(clients [][]record) (calls, units int) {
	for _, client := range clients {
		for _, r := range client {
			if r.At != 0 {
				calls, units = calls+1, units+int(r.Cost)
			}
		}
	}
	return calls, units
}

// balance returns the units of a key that the backend must have at least, and may
// have at most if each of killed clients has lost the records of its callers.
func balance(clients [][]record, key, killed int) (least, most int) {
	for _, client := range clients {
		for _, r := range client {
			if r.Key == int64(key) {
				least, most = least+int(r.Least), most+int(r.Most)
			}
		}
	}
	return least, most + killed*callers*maxCost
}

// lost returns the units of the calls whose outcome is unknown.
func lost(clients [][]record, key int) (units int) {
	for _, client := range clients {
		for _, r := range client {
			if r.Key == int64(key) && r.At == 0 {
				units += int(r.Cost)
			}
		}
	}
	return units
}
