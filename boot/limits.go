package boot

import (
	"errors"
	"log/slog"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/limit"
	limitdriver "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock"
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
	info := limits.Info()
	b.report.Limit.Opened(info)
	b.life.endWith(locking, hook{name: "limits", budget: lockTime, run: limits.Close})
	if b.report.Limit.Follows() && c.Limit.Require == "" {
		return limits, nil // the probes report the backend with the locks
	}
	b.dependOn(backend{
		name: "limit", driver: info.Name, scope: info.Scope, required: c.Limit.Require != "", unavailable: limits.Unavailable,
		ping: limits.Ping,
	})
	return limits, nil
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
