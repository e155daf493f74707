package measure

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"time"
)

// Batch does an operation n times, and returns when all of it is done.
type Batch func(n int) error

// Each is a batch of operations one after the other.
func Each(op func() error) Batch {
	return func(n int) error {
		for range n {
			if err := op(); err != nil {
				return err
			}
		}
		return nil
	}
}

// QuietRep adds a quiet batch of each contestant, and its allocations. A batch
// lasts less than a millisecond, so other work on the machine disturbs some
// batches and not others; the tenth percentile is an undisturbed one.
func QuietRep(s Scale, batches map[string]Batch, times, allocs Samples) error {
	if err := QuietBatches(s.Scaled(200), batches, times); err != nil {
		return err
	}
	for name, do := range batches {
		n, err := Allocations(s.Scaled(10_000), do)
		if err != nil {
			return err
		}
		allocs.Add(name, n)
	}
	return nil
}

// QuietBatches adds the nanoseconds of an operation in a quiet batch of each
// contestant.
func QuietBatches(rounds int, batches map[string]Batch, times Samples) error {
	const size = 500
	names := slices.Sorted(maps.Keys(batches))
	perOp := Samples{}
	for round := range rounds {
		for _, i := range Turn(len(names), round) {
			start := time.Now()
			if err := batches[names[i]](size); err != nil {
				return err
			}
			perOp.Add(names[i], float64(time.Since(start))/size)
		}
	}
	for _, name := range names {
		times.Add(name, Quantile(perOp[name], 0.1))
	}
	return nil
}

// Allocations is the number of objects that one operation allocates, on average
// and to two places: allocations made once per batch, such as a goroutine, do
// not count.
func Allocations(n int, do Batch) (float64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := do(n); err != nil {
		return 0, err
	}
	runtime.ReadMemStats(&after)
	return math.Round(100*float64(after.Mallocs-before.Mallocs)/float64(n)) / 100, nil
}

// InUse returns the bytes of live objects and of stacks.
func InUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
