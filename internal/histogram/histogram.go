// Package histogram counts durations for the statistics of locks and limits.
package histogram

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets is the number of buckets. The bounds double from 1 µs, and the last bucket
// has none.
const Buckets = 28

// Histogram counts durations. Its methods may be called concurrently.
type Histogram struct {
	counts [Buckets]atomic.Uint64
	sum    atomic.Int64
}

// Add counts d. A negative d counts as 0.
func (h *Histogram) Add(d time.Duration) {
	i := bits.Len64(uint64(max(d, 0) / time.Microsecond))
	h.counts[min(i, Buckets-1)].Add(1)
	h.sum.Add(int64(d))
}

// Snapshot returns the counts and the sum, which are read one after the other.
func (h *Histogram) Snapshot() (counts [Buckets]uint64, sum time.Duration) {
	for i := range h.counts {
		counts[i] = h.counts[i].Load()
	}
	return counts, time.Duration(h.sum.Load())
}
