package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// tally counts the leases of the goroutines of one process that compete for a
// key.
type tally struct {
	Cycles []float64     // per goroutine
	Worst  time.Duration // the longest wait, with or without a lease
}

// contend lets goroutines acquire and release a key in turn, as fast as they
// get it. The work under the lock takes no time, so the measured time is that
// of the lock.
func contend(ctx context.Context, l locker, o order) (tally, error) {
	time.Sleep(time.Until(o.Start))
	ctx, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	t := tally{Cycles: make([]float64, o.Goroutines)}
	worst := make([]time.Duration, o.Goroutines)
	errs := make([]error, o.Goroutines)
	var wg sync.WaitGroup
	for i := range o.Goroutines {
		wg.Go(func() { t.Cycles[i], worst[i], errs[i] = cycle(ctx, l, o.Key) })
	}
	wg.Wait()
	for _, w := range worst {
		t.Worst = max(t.Worst, w)
	}
	return t, errors.Join(errs...)
}

// cycle acquires and releases until ctx ends. A call that is still waiting at
// the end counts as a wait; its error is ignored.
func cycle(ctx context.Context, l locker, key string) (n float64, worst time.Duration, err error) {
	for err == nil && ctx.Err() == nil {
		asked := time.Now()
		var release func() error
		release, err = l.acquire(ctx, key)
		worst = max(worst, time.Since(asked))
		if err == nil {
			n++
			err = release()
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	return n, worst, err
}
