package lab

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bench/internal/peers"
)

// settling is how long clients run before their cycles count: until all of them
// are in the queue.
func (o Order) settling() time.Duration {
	if o.Own {
		return 100 * time.Millisecond
	}
	return 300 * time.Millisecond
}

// clients are the clients of a worker. They stay open from one order to the next.
type clients []peers.Locker

// join opens clients until there are enough.
func (c *clients) join(ctx context.Context, o Order) error {
	for len(*c) < o.Goroutines {
		l, err := peers.Open(ctx, o.Contestant, o.Addr)
		if err != nil {
			return err
		}
		*c = append(*c, l)
	}
	return nil
}

func (c *clients) part() error {
	errs := make([]error, len(*c))
	var wg sync.WaitGroup
	for i, l := range *c {
		wg.Go(func() { errs[i] = l.Close() })
	}
	wg.Wait()
	*c = nil
	return errors.Join(errs...)
}

// CyclesPerSecond has all clients acquire and release in turn, and counts their
// cycles when all of them are in the queue.
func CyclesPerSecond(ctx context.Context, all []peers.Locker, o Order) (rate float64, err error) {
	time.Sleep(time.Until(o.Start))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		cycles atomic.Int64
		wg     sync.WaitGroup
		errs   = make([]error, len(all))
	)
	for i, l := range all {
		key := o.Key
		if o.Own {
			key += ":" + strconv.Itoa(os.Getpid()) + ":" + strconv.Itoa(i)
		}
		wg.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				if _, _, errs[i] = peers.Timed(ctx, l, key); errs[i] == nil {
					cycles.Add(1)
				}
			}
			if ctx.Err() != nil {
				errs[i] = nil // the end ends a wait
			}
		})
	}
	time.Sleep(o.settling())
	before, began := cycles.Load(), time.Now()
	time.Sleep(o.For)
	rate = float64(cycles.Load()-before) / time.Since(began).Seconds()
	cancel()
	wg.Wait()
	return rate, errors.Join(errs...)
}
