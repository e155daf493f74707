package boot

import (
	"errors"
	"log/slog"
	"time"

	"github.com/megaframework/mega/bus"
	busdriver "github.com/megaframework/mega/bus/driver"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/plan"
)

func (b *booting) openBus(made *plan.Plan, log *slog.Logger) (busdriver.Driver, error) {
	if o := b.process.Offline; o != nil && o.Bus != nil {
		return o.Bus, nil
	}
	defer b.report.Record("bus", time.Now())
	return b.backends.OpenBus(b.ctx, made.Config, made.Bus, b.process.name(), log)
}

func (b *booting) newBus(d busdriver.Driver, log *slog.Logger) (*bus.Bus, error) {
	messages, err := bus.New(d, bus.Config{
		Observer: busObserver{logging.BusEvents{Log: log}, b.metrics}, Use: []bus.Middleware{b.metrics.Timed}, Inject: megactx.Inject, Extract: megactx.Extract,
	})
	if err != nil {
		return nil, errors.Join(err, d.Close(b.ctx))
	}
	b.bus = messages
	b.metrics.Bus(messages)
	b.report.Bus.Warnings = append(b.report.Bus.Warnings, messages.Info().Warnings...)
	b.dependOnMessages(messages)
	b.life.endWith(locking, hook{name: "bus", budget: longBudget, run: messages.Drain})
	return messages, nil
}

// busObserver passes the events of a bus to the log and the metrics.
type busObserver struct {
	log     logging.BusEvents
	metrics *metrics.Metrics
}

// Observe passes an event on.
func (o busObserver) Observe(e bus.Event) {
	o.metrics.ObserveBus(e)
	o.log.Observe(e)
}
