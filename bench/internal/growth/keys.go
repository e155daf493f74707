package growth

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

// tenths is the number of parts in which growth over keys is looked at.
const tenths = 10

// holding is what it costs to hold many keys at once.
type holding struct {
	acquire [tenths]float64 // per key of each tenth of the keys, in µs
	held    float64         // bytes per held key
	left    float64         // bytes per key after the release
	lasting float64         // bytes per key that are still there 60 s later
}

// holdings are the repetitions of a holding.
type holdings []holding

// each returns one figure of every repetition.
func (h holdings) each(of func(holding) float64) (values []float64) {
	for _, one := range h {
		values = append(values, of(one))
	}
	return values
}

func (h holdings) samples(of func(holding) float64) measure.Samples {
	return measure.Samples{measure.Mega: h.each(of)}
}

// firstHalf is mega's own figure for the first half of the keys, beside which the
// other half must stay the same.
const firstHalf = "the first half"

// flat compares the halves, not the ends: a table grows by doubling, which one
// tenth pays for all.
func (h holdings) flat() measure.Samples {
	half := func(from int) func(holding) float64 {
		return func(h holding) (sum float64) {
			for _, v := range h.acquire[from : from+tenths/2] {
				sum += v
			}
			return sum / (tenths / 2)
		}
	}
	return measure.Samples{measure.Mega: h.each(half(tenths / 2)), firstHalf: h.each(half(0))}
}

// curve returns the medians of the tenths of n keys.
func (h holdings) curve(name string, n int) measure.Curve {
	c := measure.Curve{Name: name}
	for t := range tenths {
		each := h.each(func(h holding) float64 { return h.acquire[t] })
		c.Points = append(c.Points, measure.Point{X: float64((t + 1) * n / tenths), Y: measure.Median(each)})
	}
	return c
}

// MemoryKeys holds a million keys of a process at once and releases them.
func MemoryKeys(_ context.Context, l *lab.Lab) ([]measure.Claim, error) {
	n := l.Scaled(1_000_000)
	names := make([]string, n)
	for i := range names {
		names[i] = lab.Key("keys", i)
	}
	var all holdings
	for range l.Reps(5) {
		h, err := holdInMemory(names)
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	debug.FreeOSMemory() // for the rows after this one
	return []measure.Claim{
		all.samples(func(h holding) float64 { return h.held }).Absolute("memory per held key", "B"),
		all.samples(func(h holding) float64 { return h.left }).Absolute("memory per key, just released", "B").AtMost(16),
		all.flat().Ratio("acquire, the second half of the keys", "µs", firstHalf, firstHalf).AtMost(1.5).
			Over("keys held", all.curve(measure.Mega, n)),
	}, nil
}

// holdInMemory acquires all keys of a new locker, and releases them. The names
// of the keys are not part of its memory: they are there before and after.
func holdInMemory(names []string) (h holding, err error) {
	ctx := context.Background()                                           // as in memory-alone: nothing that a lease has to watch
	locks, err := lock.New(memory.NewLock(), lock.Config{TTL: time.Hour}) // nothing is renewed while memory is measured
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	n := len(names)
	leases := make([]*lock.Lease, n)
	before := measure.InUse()
	for t := range tenths {
		h.acquire[t], err = inBatches(t*n/tenths, (t+1)*n/tenths, func(i int) (err error) {
			leases[i], err = locks.Acquire(ctx, names[i])
			return err
		})
		if err != nil {
			return h, err
		}
	}
	held := measure.InUse()
	for i, l := range leases {
		if err := l.Release(); err != nil {
			return h, fmt.Errorf("release %s: %w", names[i], err)
		}
	}
	clear(leases)
	h.held, h.left = (held-before)/float64(n), (measure.InUse()-before)/float64(n)
	return h, nil
}

// inBatches calls do for each number of a range, and returns the microseconds of
// a call in the median of batches: the collector, whose work is in proportion to
// the garbage and not to the keys, interrupts some batches and not others.
func inBatches(from, to int, do func(i int) error) (float64, error) {
	const size = 500
	var batches []float64
	for ; from < to; from += size {
		began, end := time.Now(), min(from+size, to)
		for i := from; i < end; i++ {
			if err := do(i); err != nil {
				return 0, err
			}
		}
		batches = append(batches, measure.Micros(time.Since(began))/float64(end-from))
	}
	return measure.Median(batches), nil
}
