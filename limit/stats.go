package limit

import (
	"sync/atomic"

	"github.com/megaframework/mega/internal/histogram"
	"github.com/megaframework/mega/lock"
)

// Stats holds the counters of a [Limiter] since its start. They are read one
// after the other without a lock: each is exact, but they are not of one
// instant.
type Stats struct {
	Driver  string `json:"driver"`
	Waiting int64  `json:"waiting"` // calls waiting now

	Unavailable bool `json:"unavailable"` // the backend does not answer now

	Allowed  uint64 `json:"allowed"`
	Refused  uint64 `json:"refused"`
	Local    uint64 `json:"local"`    // the part of Refused that needed no call of the backend
	Degraded uint64 `json:"degraded"` // the part of Allowed that an Outage has allowed
	Settled  uint64 `json:"settled"`  // grants whose units were corrected

	Wait Histogram `json:"wait"` // of the calls of Wait and With that were allowed
}

// Histogram counts durations in buckets whose bounds double.
type Histogram = lock.Histogram

type counters struct {
	waiting                                    atomic.Int64
	allowed, refused, local, degraded, settled atomic.Uint64
	wait                                       histogram.Histogram
}

func (c *counters) snapshot(driver string) Stats {
	s := Stats{
		Driver:   driver,
		Waiting:  c.waiting.Load(),
		Degraded: c.degraded.Load(), // before Allowed, of which it is a part
		Local:    c.local.Load(),
		Allowed:  c.allowed.Load(),
		Refused:  c.refused.Load(),
		Settled:  c.settled.Load(),
	}
	s.Wait.Counts, s.Wait.Sum = c.wait.Snapshot()
	return s
}
