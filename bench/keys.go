package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

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

func (h holdings) samples(of func(holding) float64) samples { return samples{mega: h.each(of)} }

// firstHalf is mega's own figure for the first half of the keys, beside which the
// other half must stay the same.
const firstHalf = "the first half"

// flat compares the halves, not the ends: a table grows by doubling, which one
// tenth pays for all.
func (h holdings) flat() samples {
	half := func(from int) func(holding) float64 {
		return func(h holding) (sum float64) {
			for _, v := range h.acquire[from : from+tenths/2] {
				sum += v
			}
			return sum / (tenths / 2)
		}
	}
	return samples{mega: h.each(half(tenths / 2)), firstHalf: h.each(half(0))}
}

// curve returns the medians of the tenths of n keys.
func (h holdings) curve(name string, n int) curve {
	c := curve{Name: name}
	for t := range tenths {
		each := h.each(func(h holding) float64 { return h.acquire[t] })
		c.Points = append(c.Points, point{float64((t + 1) * n / tenths), median(each)})
	}
	return c
}

// memoryKeys holds a million keys of a process at once and releases them.
func memoryKeys(_ context.Context, l *lab) ([]claim, error) {
	n := l.scaled(1_000_000)
	names := make([]string, n)
	for i := range names {
		names[i] = key("keys", i)
	}
	var all holdings
	for range l.reps(5) {
		h, err := holdInMemory(names)
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	debug.FreeOSMemory() // for the rows after this one
	return []claim{
		all.samples(func(h holding) float64 { return h.held }).absolute("memory per held key", "B"),
		all.samples(func(h holding) float64 { return h.left }).absolute("memory per key, just released", "B").atMost(16),
		all.flat().ratio("acquire, the second half of the keys", "µs", firstHalf, firstHalf).atMost(1.5).
			over("keys held", all.curve(mega, n)),
	}, nil
}

// holdInMemory acquires all keys of a new locker, and releases them. The names
// of the keys are not part of its memory: they are there before and after.
func holdInMemory(names []string) (h holding, err error) {
	ctx := context.Background() // as in memory-alone: nothing that a lease has to watch
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	n := len(names)
	leases := make([]*lock.Lease, n)
	before := inUse()
	for t := range tenths {
		h.acquire[t], err = inBatches(t*n/tenths, (t+1)*n/tenths, func(i int) (err error) {
			leases[i], err = locks.Acquire(ctx, names[i])
			return err
		})
		if err != nil {
			return h, err
		}
	}
	held := inUse()
	for i, l := range leases {
		if err := l.Release(); err != nil {
			return h, fmt.Errorf("release %s: %w", names[i], err)
		}
	}
	clear(leases)
	h.held, h.left = (held-before)/float64(n), (inUse()-before)/float64(n)
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
		batches = append(batches, micros(time.Since(began))/float64(end-from))
	}
	return median(batches), nil
}

// inUse returns the bytes of live objects and of stacks.
func inUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
