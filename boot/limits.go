package boot

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/limit"
	limitdriver "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func (b *booting) openLimit(made *plan.Plan, log *slog.Logger) (limitdriver.Driver, error) {
	if b.process.Offline != nil {
		return memory.NewLimit(), nil
	}
	defer b.report.Record("limit", time.Now())
	return b.backends.OpenLimit(b.ctx, made.Config, made.Limit, log)
}

// newLimiter takes the Locker for Concurrent, and because the locks must be
// closed after the limits.
func (b *booting) newLimiter(c *settings.Config, d limitdriver.Driver, l *lock.Locker, log *slog.Logger) (*limit.Limiter, error) {
	limits, err := limit.New(d, limit.Config{
		Locker: l, Observer: limitObserver{logging.LimitEvents{Log: log}, b.metrics}, Identify: b.process.identify(),
	})
	if err != nil {
		return nil, errors.Join(err, d.Close(b.ctx))
	}
	b.limiter = limits
	b.metrics.Limiter(limits)
	b.report.Limit.Opened(limits.Info())
	b.life.endWith(locking, hook{name: "limits", budget: lockTime, run: limits.Close})
	b.dependOnLimits(c, limits)
	return limits, nil
}

// dependOnLimits makes the probes report a lost backend of limits: as degraded,
// or as not ready if limit.require is set. Limits in the process cannot be lost,
// and what the probes report about the locks is enough for limits beside them.
func (b *booting) dependOnLimits(c *settings.Config, limits *limit.Limiter) {
	if limits.Info().Scope == driver.Process || b.report.Limit.Follows() && c.Limit.Require == "" {
		return
	}
	b.probes.AddBackend(ops.Check{Name: "limit", Budget: pingTime, Run: contain(func(ctx context.Context) error {
		if limits.Info().Name == "cluster" {
			return errors.Join(limits.Unavailable(), b.backends.PingHub(ctx))
		}
		return pingLimits(ctx, limits)
	})}, c.Limit.Require != "")
	if limits.Info().Scope == driver.Fleet && b.process.Offline == nil {
		b.pulse("pulse of limits", func(ctx context.Context) error { return pingLimits(ctx, limits) })
	}
}

// pingLimits calls the backend once, so that a loss is detected also while no limit is
// used, as [lock.Locker.Ping] does. During a known outage it returns at once.
func pingLimits(ctx context.Context, limits *limit.Limiter) error {
	if err := limits.Unavailable(); err != nil {
		return err
	}
	_, err := limits.Inspect(ctx, "mega:probe")
	return err
}

// limitObserver passes the events of limits to the log and the metrics.
type limitObserver struct {
	log     logging.LimitEvents
	metrics *metrics.Metrics
}

// Observe passes an event on.
func (o limitObserver) Observe(e limit.Event) {
	o.metrics.ObserveLimit(e)
	o.log.Observe(e)
}
