package boot

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/group"
)

// Limits of the back-off before a declared subscription is restored.
const (
	firstRenewal = time.Second
	lastRenewal  = time.Minute
)

// declared is a subscription that the program declares. It is restored when its
// policy or a refusal of the backend ended it (S23). A restored subscription
// starts with a gap mark, which stands for the messages that were lost
// meanwhile.
type declared struct {
	name string
	log  *slog.Logger
	make func(ctx context.Context, more ...bus.SubOption) (*bus.Sub, error)

	leave context.CancelFunc // ends the goroutine that runs keep
	kept  chan struct{}      // closed when that goroutine has ended

	mu  sync.Mutex // guards sub
	sub *bus.Sub
}

// start makes the subscription, which lives until ctx ends, and starts the
// goroutine that restores it.
func (d *declared) start(ctx context.Context) (err error) {
	if d.sub, err = d.make(ctx); err != nil {
		return err
	}
	staying, leave := context.WithCancel(ctx)
	d.leave, d.kept = leave, make(chan struct{})
	go d.keep(ctx, staying)
	return nil
}

// drain stops restoring the subscription, and waits until it has handled its
// queue.
func (d *declared) drain(ctx context.Context) error {
	d.leave()
	<-d.kept
	return d.current().Drain(ctx)
}

func (d *declared) current() *bus.Sub {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sub
}

// keep restores the subscription each time that it ends, until staying ends.
func (d *declared) keep(ctx, staying context.Context) {
	defer close(d.kept)
	pause := firstRenewal
	for {
		began := time.Now()
		select {
		case <-staying.Done():
			return
		case <-d.current().Done():
		}
		if !isRenewable(d.current().Err()) {
			return
		}
		if time.Since(began) > lastRenewal {
			pause = firstRenewal
		}
		for renewed := false; !renewed; renewed = d.renew(ctx, pause) {
			if !group.Sleep(staying, pause+rand.N(pause/4)) { // the subscriptions of a fleet end together, at an outage
				return
			}
			pause = min(2*pause, lastRenewal)
		}
	}
}

// isRenewable reports whether the policy or the backend ended a subscription,
// and not the end of the bus.
func isRenewable(err error) bool {
	return err != nil && !errors.Is(err, bus.ErrClosed) && !errors.Is(err, bus.ErrDraining) && !errors.Is(err, context.Canceled)
}

// renew tries once to restore the subscription, and reports whether it
// succeeded.
func (d *declared) renew(ctx context.Context, next time.Duration) bool {
	sub, err := d.make(ctx, bus.AfterGap())
	if err != nil {
		d.log.Error("subscription not restored", "subscription", d.name, "again", next, "error", err)
		return false
	}
	d.log.Info("subscription restored", "subscription", d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sub = sub
	return true
}
