package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// pulseEvery is the time between two pings of a lock server. Requests detect a
// loss at once. The ping detects it where no caller takes a lock. The load on
// the server is a fifth of a command per second and process.
const pulseEvery = 5 * time.Second

// pingTime is the timeout of a ping of a backend.
const pingTime = time.Second

// dependOnLocks makes the probes report a lost lock backend: as degraded, or as
// not ready if lock.require is set (L21). Locks in the process cannot be lost.
func (b *booting) dependOnLocks(c *config.Config, l *lock.Locker) {
	if l.Info().Scope == driver.Process {
		return
	}
	b.probes.AddBackend(ops.Check{Name: "lock", Budget: pingTime, Run: contain(func(ctx context.Context) error {
		if l.Info().Name == "cluster" {
			return errors.Join(l.Unavailable(), b.backends.PingHub(ctx))
		}
		return l.Ping(ctx)
	})}, c.Lock.Require != "")
	if l.Info().Scope == driver.Fleet && b.process.Offline == nil {
		b.pulse("pulse of locks", l.Ping)
	}
}

// dependOnMessages makes the probes report a lost bus backend: as degraded, or
// as not ready if bus.require is set (S23). Meanwhile, publishes are buffered.
func (b *booting) dependOnMessages(messages *bus.Bus) {
	b.probes.AddBackend(ops.Check{Name: "bus", Budget: pingTime, Run: contain(func(ctx context.Context) error {
		if messages.Info().Name == "cluster" {
			return errors.Join(connected(messages), b.backends.PingHub(ctx))
		}
		return connected(messages)
	})}, b.plan.Config.Bus.Require != "")
}

// connected returns an error if the bus is not connected to its backend.
func connected(messages *bus.Bus) error {
	if state, why := messages.State(); state == bus.StateDisconnected {
		return fmt.Errorf("the bus is %s: %w", state, why)
	}
	return nil
}

// pulse calls ping until the locks are closed. It ignores the result, because
// the events of the lock report it.
func (b *booting) pulse(name string, ping func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, pulseEvery) == nil {
			bounded, end := context.WithTimeout(ctx, pingTime)
			_ = ping(bounded)
			end()
		}
	}()
	b.life.endWith(locking, hook{name: name, budget: lockTime, run: func(ctx context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
