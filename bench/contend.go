package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// tally is what the goroutines of one process got of a key that all want.
type tally struct {
	Cycles []float64     // of each goroutine
	Worst  time.Duration // the longest wait, also of one that was not served
}

// contend has goroutines acquire and release a key in turn, as fast as they
// get it. What they do under the lock takes no time, so that all of it is the
// lock's.
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

// cycle acquires and releases until ctx ends. That somebody was in the way
// until the end is a wait like any other; what fails then, fails for that.
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
