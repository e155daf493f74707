package lock

import (
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/histogram"
)

// Stats holds the counters of a [Locker] since its start. They are read one
// after the other without a lock: each is exact, but they are not of one
// instant.
type Stats struct {
	Driver  string `json:"driver"`
	Active  int64  `json:"active"`  // leases held now
	Waiting int64  `json:"waiting"` // calls waiting now

	Unavailable bool `json:"unavailable"` // the backend does not serve locks now

	Acquired  uint64 `json:"acquired"`
	Contended uint64 `json:"contended"` // calls that found the lock busy
	TimedOut  uint64 `json:"timed_out"` // calls whose wait passed
	Lost      uint64 `json:"lost"`
	Forced    uint64 `json:"forced"` // the part of Lost that ForceRelease ended

	// Unreleased counts failed releases that were left to their TTL, because
	// 65 536 others were waiting for a retry.
	Unreleased uint64 `json:"unreleased"`

	// Stale counts the writes that stores refused because of their fence.
	Stale uint64 `json:"stale"`

	Wait Histogram `json:"wait"` // of granted calls
	Hold Histogram `json:"hold"`
}

// Buckets is the number of buckets of a [Histogram].
const Buckets = 28

// Histogram counts durations in buckets whose bounds double: bucket i counts
// durations below BucketBound(i) and not below the previous bound. The last
// bucket counts all longer durations.
type Histogram struct {
	Counts [Buckets]uint64 `json:"counts"`
	Sum    time.Duration   `json:"sum"`
}

// BucketBound returns the upper bound of bucket i: 1µs, 2µs, 4µs and so on, to
// 67 s. The last bucket has none and returns the largest duration.
func BucketBound(i int) time.Duration {
	if i >= Buckets-1 {
		return Forever
	}
	return time.Microsecond << i
}

// Count returns the number of counted durations.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Quantile returns an upper bound of the quantile q, 0 to 1: the bound of the
// bucket in which it lies. Without durations it returns 0.
func (h Histogram) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rest := min(uint64(q*float64(total)), total-1)
	for i, c := range h.Counts {
		if c > rest {
			return BucketBound(i)
		}
		rest -= c
	}
	return Forever
}

// counters are the live numbers behind Stats.
type counters struct {
	waiting                           atomic.Int64
	contended, timedOut, lost, forced atomic.Uint64
	unreleased, stale                 atomic.Uint64
	wait, hold                        histogram.Histogram // each lease counts in the first at its start, and in the second at its end
}

func (c *counters) snapshot(driver string) Stats {
	// Read in this order, so that no snapshot has more ended than started
	// leases.
	var wait, hold Histogram
	hold.Counts, hold.Sum = c.hold.Snapshot()
	wait.Counts, wait.Sum = c.wait.Snapshot()
	return Stats{
		Driver:    driver,
		Active:    int64(wait.Count() - hold.Count()),
		Waiting:   c.waiting.Load(),
		Acquired:  wait.Count(),
		Contended: c.contended.Load(),
		TimedOut:  c.timedOut.Load(),
		Lost:      c.lost.Load(),
		Forced:    c.forced.Load(),

		Unreleased: c.unreleased.Load(),
		Stale:      c.stale.Load(),
		Wait:       wait,
		Hold:       hold,
	}
}
