package lab

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/megaframework/mega/bench/internal/peers"
)

// Tally counts the leases of the goroutines of one process that compete for a
// key.
type Tally struct {
	Cycles []float64     // per goroutine
	Worst  time.Duration // the longest wait, with or without a lease
}

// contend lets goroutines acquire and release a key in turn, as fast as they
// get it. The work under the lock takes no time, so the measured time is that
// of the lock.
func contend(ctx context.Context, l peers.Locker, o Order) (Tally, error) {
	time.Sleep(time.Until(o.Start))
	ctx, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	t := Tally{Cycles: make([]float64, o.Goroutines)}
	worst := make([]time.Duration, o.Goroutines)
	errs := make([]error, o.Goroutines)
	var wg sync.WaitGroup
	for i := range o.Goroutines {
		wg.Go(func() { t.Cycles[i], worst[i], errs[i] = peers.Repeat(ctx, l, o.Key) })
	}
	wg.Wait()
	for _, w := range worst {
		t.Worst = max(t.Worst, w)
	}
	return t, errors.Join(errs...)
}
