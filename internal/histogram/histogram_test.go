package histogram_test

import (
	"testing"
	"time"

	"github.com/megaframework/mega/internal/histogram"
)

func TestBoundsDouble(t *testing.T) {
	for d, bucket := range map[time.Duration]int{
		-time.Second: 0, 0: 0, time.Microsecond - 1: 0, time.Microsecond: 1, 2*time.Microsecond - 1: 1, 2 * time.Microsecond: 2,
		time.Microsecond<<26 - 1: 26, time.Microsecond << 26: 27, 1000 * time.Hour: 27,
	} {
		var h histogram.Histogram
		h.Add(d)
		if counts, sum := h.Snapshot(); counts[bucket] != 1 || sum != d {
			t.Errorf("%v: got %v with the sum %v, want bucket %d", d, counts, sum, bucket)
		}
	}
}
