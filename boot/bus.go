package boot

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/megaframework/mega/bus"
	busdriver "github.com/megaframework/mega/bus/driver"
	megactx "github.com/megaframework/mega/ctx"
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
		Observer: busLog{log, b.metrics}, Use: []bus.Middleware{b.metrics.Timed}, Inject: megactx.Inject, Extract: megactx.Extract,
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

// busLog writes the events of a bus that matter to an operator to the log and
// the metrics.
type busLog struct {
	log     *slog.Logger
	metrics *metrics.Metrics
}

// Observe writes an event of a Bus to the log and the metrics.
func (l busLog) Observe(e bus.Event) {
	l.metrics.ObserveBus(e)
	switch e := e.(type) {
	case bus.HandlerFailed:
		l.failed(e)
	case bus.Dropped:
		l.tell(slog.LevelWarn, "messages dropped", e.Who, slog.String("subject", e.Subject), slog.Uint64("messages", e.Count))
	case bus.Missed:
		l.tell(slog.LevelWarn, "messages missed", e.Who, slog.Int("messages", e.Count))
	case bus.GapFailed:
		l.tell(slog.LevelError, "gap not repaired", e.Who, slog.Int("missed", e.Missed), slog.Duration("again", e.Again), failed(e.Err))
	case bus.Blocked:
		l.tell(slog.LevelWarn, "responder blocked by requests to itself", e.Who, slog.String("subject", e.Subject), slog.Int("handlers", e.Handlers))
	case bus.Stuck:
		l.tell(slog.LevelWarn, "handler stuck", e.Who, slog.String("subject", e.Subject), slog.Duration("for", e.For))
	case bus.Ended:
		l.tell(slog.LevelError, "subscription ended", e.Who, failed(e.Err))
	case bus.AnswerFailed:
		l.tell(slog.LevelWarn, "answer not sent", e.Who, slog.String("subject", e.Subject), failed(e.Err))
	case bus.PublishLost:
		l.log.Error("published messages lost", "messages", e.Messages, "bytes", e.Bytes, "error", e.Err)
	case bus.PublishRefused:
		l.log.Error("published message refused", "subject", e.Subject, "error", e.Err)
	case bus.Disconnected:
		l.log.Error("bus backend lost", "error", e.Err)
	case bus.Connected:
		l.log.Info("bus backend returned", "after", e.After)
	}
}

// failed logs the error of a handler. A responder's error is also its answer.
func (l busLog) failed(e bus.HandlerFailed) {
	attrs := []slog.Attr{slog.String("subject", e.Msg.Subject), failed(e.Err)}
	if p, ok := errors.AsType[*bus.PanicError](e.Err); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	l.tell(slog.LevelError, "handler failed", e.Who, attrs...)
}

func (l busLog) tell(level slog.Level, text string, who bus.Who, attrs ...slog.Attr) {
	attrs = append([]slog.Attr{slog.String("subscription", who.Name), slog.String("pattern", who.Pattern)}, attrs...)
	l.log.LogAttrs(context.Background(), level, text, attrs...)
}
