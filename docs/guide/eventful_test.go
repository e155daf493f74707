package guide_test

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// eventful is a program in which everything happens that has a series.
func eventful() mega.Option {
	full := make(chan struct{}) // closed when the queue of the subscription is full
	return mega.App("web",
		mega.Routes(homes),
		mega.Subscribe(bus.Topic[int]("parcel"), func(_ *mega.Ctx, _ int) error {
			<-full
			return nil
		}, bus.Buffer(1, 1<<10)),
		mega.Lead("leader", func(*mega.Ctx) error { return errors.New("the term fails") }),
		mega.Run("events", func(ctx *mega.Ctx, locks *lock.Locker, b *bus.Bus) error {
			ctx.Log.Info("events", "error", errors.Join(overflow(ctx, b, full), locked(ctx, locks), limited(ctx)))
			return nil
		}),
	)
}

// overflow publishes until the subscription drops a message.
func overflow(ctx context.Context, b *bus.Bus, full chan struct{}) error {
	defer close(full)
	for b.Stats().Total.Dropped == 0 && ctx.Err() == nil {
		if err := b.Publish(ctx, "parcel", []byte("1")); err != nil {
			return err
		}
	}
	return nil
}

// limited lets a call be allowed and another one refused.
func limited(ctx *mega.Ctx) error {
	m := limit.Limit{Rates: []limit.Rate{limit.PerHour(1)}}
	_, first := ctx.Limit.Allow("partner", m)
	_, second := ctx.Limit.Allow("partner", m)
	return errors.Join(first, second)
}

// locked lets leases be refused, forced, forgotten and found stale.
func locked(ctx context.Context, locks *lock.Locker) error {
	lease, err := locks.Acquire(ctx, "order:1")
	if err != nil {
		return err
	}
	_ = lease.Stale()
	_, busy := locks.TryAcquire(ctx, "order:1")
	_, forced := locks.ForceRelease(ctx, "order:1", "a test")
	_ = lease.Release() // it was taken away

	short, forget := context.WithCancel(ctx)
	_, left := locks.Acquire(short, "order:2")
	forget()

	grown := locks.With(ctx, "box", func(ctx context.Context) error {
		return locks.With(ctx, "box", func(context.Context) error { return nil }, lock.Slots(5))
	}, lock.Slots(4))
	broken := &lock.Pool{Key: "broken", Size: 2, Strikes: 1, Init: func(context.Context, *lock.Slot) error { return errors.ErrUnsupported }}
	withdrawn := locks.WithSlot(ctx, broken, func(context.Context, *lock.Slot) error { return nil })
	_, ran := locks.Once(ctx, "report", time.Hour, func(context.Context) error { return nil })
	if err := errors.Join(forced, left, grown, ran); err != nil || busy == nil || withdrawn == nil {
		return errors.Join(err, errors.New("too little went wrong"))
	}
	return nil
}
