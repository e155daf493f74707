package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/megaframework/mega/bus"
	busdriver "github.com/megaframework/mega/bus/driver"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func (b *booting) openLock(made *plan.Plan, log *slog.Logger) (driver.Driver, error) {
	if o := b.process.Offline; o != nil {
		if o.Lock == nil {
			return memory.NewLock(), nil
		}
		return o.Lock, nil
	}
	defer b.report.Record("lock", time.Now())
	return b.backends.OpenLock(b.ctx, made.Config, made.Lock, log)
}

// lockTime is the timeout for the release of leases in use, after all work has
// ended.
const lockTime = 2 * time.Second

func (b *booting) newLocker(c *settings.Config, d driver.Driver, log *slog.Logger) (*lock.Locker, error) {
	l, err := lock.New(d, lock.Config{
		TTL: c.Lock.TTL, Wait: max(c.Lock.Wait, 1), FIFO: c.Lock.FIFO, // a Wait of 0 is the default of a Locker
		Observer: lockObserver{&logging.LockEvents{Log: log}, b.metrics}, Identify: b.process.identify(),
	})
	if err != nil {
		return nil, errors.Join(err, d.Close(b.ctx))
	}
	b.locker = l
	b.metrics.Locker(l)
	info := l.Info()
	b.report.Lock.Opened(info)
	b.life.endWith(locking, hook{name: "locks", budget: lockTime, run: func(ctx context.Context) error {
		if o := b.process.Offline; o != nil && o.Left != nil {
			o.Left(l.Held())
		}
		err := l.Close(ctx)
		if errors.Is(err, lock.ErrUnavailable) { // no lease was cut off
			log.Warn("locks closed without their backend", "error", err)
			return nil
		}
		return err
	}})
	b.dependOn(backend{
		name: "lock", driver: info.Name, scope: info.Scope, required: c.Lock.Require != "", unavailable: l.Unavailable, ping: l.Ping,
	})
	return l, nil
}

// pulseEvery is the time between two pings of a server of locks or limits. Requests
// detect a loss at once. The ping detects it where no caller uses a lock or a limit.
// The load on the server is a fifth of a command per second and process.
const pulseEvery = 5 * time.Second

// pingTime is the timeout of a ping of a backend.
const pingTime = time.Second

// backend is a backend of locks or limits for the probes.
type backend struct {
	name        string // "lock" or "limit"
	driver      string
	scope       driver.Scope
	required    bool // by lock.require or limit.require
	unavailable func() error
	ping        func(context.Context) error
}

// dependOn makes the probes report a lost backend: as degraded, or as not ready if
// it is required (L21). Locks and limits in the process cannot be lost.
func (b *booting) dependOn(on backend) {
	if on.scope == driver.Process {
		return
	}
	b.probes.AddBackend(ops.Check{Name: on.name, Budget: pingTime, Run: contain(func(ctx context.Context) error {
		if on.driver != "cluster" {
			return on.ping(ctx)
		}
		if err := b.backends.PingHub(ctx); err != nil {
			return err // names the hub, and is the cause of the other error
		}
		return on.unavailable()
	})}, on.required)
	if on.scope == driver.Fleet && b.process.Offline == nil {
		b.pulse("pulse of "+on.name+"s", on.ping)
	}
}

// dependOnMessages makes the probes report a lost bus backend: as degraded, or
// as not ready if bus.require is set (S23). Meanwhile, publishes are buffered. A
// refusal concerns single subjects, and never makes the process unready (S27).
func (b *booting) dependOnMessages(messages *bus.Bus) {
	b.probes.AddBackend(ops.Check{Name: "bus", Budget: pingTime, Run: contain(func(ctx context.Context) error {
		if messages.Info().Name == "cluster" {
			if err := b.backends.PingHub(ctx); err != nil {
				return err
			}
		}
		return connected(messages)
	})}, b.plan.Config.Bus.Require != "")
	b.probes.AddWarning(ops.Check{Name: "bus refusals", Budget: pingTime, Run: b.refused.check})
	b.probes.AddWarning(ops.Check{Name: "subscriptions", Budget: pingTime, Run: b.checkSubscriptions})
}

// connected returns an error if the bus is not connected to its backend.
func connected(messages *bus.Bus) error {
	if state, why := messages.State(); state == bus.StateDisconnected {
		return fmt.Errorf("the bus is %s: %w", state, why)
	}
	return nil
}

// pulse calls ping until the locks and limits are closed. It ignores the result,
// because their events report it.
func (b *booting) pulse(name string, ping func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for group.Sleep(ctx, pulseEvery) {
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

func (b *booting) openBus(made *plan.Plan, log *slog.Logger) (busdriver.Driver, error) {
	if o := b.process.Offline; o != nil && o.Bus != nil {
		return o.Bus, nil
	}
	defer b.report.Record("bus", time.Now())
	return b.backends.OpenBus(b.ctx, made.Config, made.Bus, b.process.name(), log)
}

func (b *booting) newBus(d busdriver.Driver, log *slog.Logger) (*bus.Bus, error) {
	messages, err := bus.New(d, bus.Config{
		Observer: busObserver{&logging.BusEvents{Log: log}, b.metrics, &b.refused}, Use: []bus.Middleware{b.metrics.Timed}, Inject: megactx.Inject, Extract: megactx.Extract,
	})
	if err != nil {
		return nil, errors.Join(err, d.Close(b.ctx))
	}
	b.bus = messages
	b.metrics.Bus(messages)
	info := messages.Info()
	b.report.Bus.Warnings = append(b.report.Bus.Warnings, info.Warnings...)
	for _, l := range info.Lacks {
		b.report.Bus.Lacks = append(b.report.Bus.Lacks, plan.Lack(l))
	}
	b.dependOnMessages(messages)
	b.life.endWith(locking, hook{name: "bus", budget: longBudget, run: messages.Drain})
	return messages, nil
}

// busObserver passes the events of a bus to the log, the metrics and the probes.
type busObserver struct {
	log     *logging.BusEvents
	metrics *metrics.Metrics
	refused *refusal
}

// Observe passes an event on.
func (o busObserver) Observe(e bus.Event) {
	o.metrics.ObserveBus(e)
	o.log.Observe(e)
	if refused, ok := e.(bus.PublishRefused); ok {
		o.refused.note(refused)
	}
}

// refusal is the latest refusal of a published message.
type refusal struct {
	mu   sync.Mutex // guards the fields below
	last bus.PublishRefused
	at   time.Time
}

func (r *refusal) note(e bus.PublishRefused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.at = e, time.Now()
}

// refusedTime is how long a refusal is a limitation of the process. The backend
// does not report that it accepts messages again.
const refusedTime = time.Minute

// check returns an error if the backend has refused a message lately.
func (r *refusal) check(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) > refusedTime {
		return nil
	}
	return fmt.Errorf("bus backend refuses messages: %s: %w", r.last.Subject, r.last.Err)
}
