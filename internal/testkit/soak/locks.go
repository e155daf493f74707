package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock"
)

const (
	lockers = 4           // goroutines that take locks
	ttl     = time.Second // of a lease; a stop of a process may outlast it
)

// keys are few, so that every key has a queue; "pool" has three slots, and so
// has "boxes", whose slots have states.
var keys = []string{"a", "b", "c", "pool", "boxes"}

// lockAll takes and releases locks until ctx ends.
func (w *Worker) lockAll(ctx context.Context, client *history.Client) {
	for ctx.Err() == nil {
		w.lockOnce(client)
		pause(ctx, time.Duration(rand.IntN(8))*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (w *Worker) lockOnce(client *history.Client) {
	key, slots := keys[rand.IntN(len(keys))], 1
	switch key {
	case "pool":
		slots = 3
	case "boxes":
		w.useSlot(client)
		return
	}
	ctx, opts := context.Background(), []lock.Option{lock.Wait(5 * time.Second)}
	switch rand.IntN(12) {
	case 0: // one that gives up early
		short, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(4))*time.Millisecond)
		defer cancel()
		ctx = short
	case 1:
		opts = append(opts, lock.FIFO())
	case 2:
		opts = append(opts, lock.NoRenew())
	}
	lease, err := client.Acquire(ctx, key, slots, opts...)
	if err != nil {
		w.tally.failed("acquire", err)
		return
	}
	w.tally.granted()
	time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
	if err := lease.Release(); err != nil && !errors.Is(err, lock.ErrLost) {
		w.tally.failed("release", err)
	}
}

func (w *Worker) useSlot(client *history.Client) {
	switch err := client.UseSlot(context.Background(), "boxes", 3, ttl); {
	case err == nil:
		w.tally.granted()
	case !errors.Is(err, lock.ErrLost):
		w.tally.failed("acquire", err)
	}
}
