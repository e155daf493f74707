package boot

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/megaframework/mega/bus"
	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/metrics"
)

// openBus opens the selected bus driver.
func openBus(ctx context.Context, c *config.Config, d Decision, program string, log *slog.Logger, m *party) (busdriver.Driver, error) {
	switch {
	case !built("bus", d.Chosen):
		return nil, busMissing(c, d)
	case d.Chosen == "nats":
		return openNATS(ctx, c, d, program, log)
	case d.Chosen == "cluster":
		node, err := m.join(ctx, c, d, log)
		if err != nil {
			return nil, err
		}
		return node.Bus(), nil
	}
	return memory.NewBus(), nil
}

func openNATS(ctx context.Context, c *config.Config, d Decision, program string, log *slog.Logger) (busdriver.Driver, error) {
	w := waiting[busdriver.Driver]{
		open:  func(ctx context.Context) (busdriver.Driver, error) { return nats.OpenBus(ctx, natsConfig(c, program)) },
		log:   log.With("component", d.Component, "driver", d.Chosen, "server", d.Server),
		limit: c.Boot.WaitFor,
		hopeless: func(err error) bool {
			return errors.Is(err, bus.ErrInvalid) || errors.Is(err, busdriver.ErrUnsupported) || denied(err)
		},
	}
	opened, err := w.run(ctx)
	if err != nil {
		return nil, busUnavailable(c, d, w.account(err), err)
	}
	return opened, nil
}

func natsConfig(c *config.Config, program string) nats.Config {
	n := c.NATS
	return nats.Config{
		URL: n.URL.Reveal(), Name: program,
		User: n.User, Password: n.Password.Reveal(), Token: n.Token.Reveal(), NKeyFile: n.NKeyFile, CredsFile: n.CredsFile,
		TLS:    nats.TLS{CA: n.TLS.CA, Cert: n.TLS.Cert, Key: n.TLS.Key},
		Prefix: dotted(c.Bus.NATS.Prefix), EventPrefix: dotted(c.Bus.NATS.EventPrefix), RequestPrefix: dotted(c.Bus.NATS.RequestPrefix),
		Raw: c.Bus.NATS.EventPrefix == "", RawRequests: c.Bus.NATS.RequestPrefix == "", InboxPrefix: c.Bus.NATS.InboxPrefix,
	}
}

func dotted(prefix string) string {
	if prefix == "" {
		return ""
	}
	return prefix + "."
}

// busUnavailable returns the Failure for a bus server that cannot be used.
func busUnavailable(c *config.Config, d Decision, a attempts, cause error) error {
	const key = "nats.url"
	facts := []Fact{failure.Setting(c, key)}
	if d.Key != key {
		facts = append(facts, failure.Setting(c, d.Key))
	}
	if denied(cause) {
		return &Failure{
			Code: "bus.driver_refused", Exit: ExitConfig, Cause: cause, Facts: facts,
			Text: "NATS refuses the credentials or permissions of this program.",
			Actions: []string{
				"Correct them:      nats.user and nats.password, nats.token, nats.nkey_file or nats.creds_file",
				"Continue without:  " + failure.Set(c, "bus.driver", "memory") + ": messages then end at this process",
			},
		}
	}
	if a.hopeless {
		return &Failure{
			Code: "bus.driver_refused", Exit: ExitConfig, Cause: cause, Facts: facts,
			Text:    "Messages are to be carried by NATS, but it cannot be opened as configured.",
			Actions: []string{"correct it:  " + failure.Set(c, key, "nats://localhost:4222")},
		}
	}
	return &Failure{
		Code: "bus.driver_unavailable", Exit: ExitUnavailable, Cause: cause, Facts: append(facts, a.tried),
		Text: "Messages are to be carried by NATS, but it cannot be used.",
		Actions: []string{
			"see to it:        the cause says what is wrong with the server",
			"point elsewhere:  " + failure.SetOther(c, key, "nats://localhost:4222"),
			"wait longer:      " + failure.Set(c, "boot.wait_for", "60s"),
			"do without:       " + failure.Set(c, "bus.driver", "memory") + ": messages then end at this process",
		},
	}
}

func (b *booting) openBus(c *config.Config, d decisions, log *slog.Logger) (busdriver.Driver, error) {
	if o := b.process.Offline; o != nil && o.Bus != nil {
		return o.Bus, nil
	}
	defer b.report.Record("bus", time.Now())
	return openBus(b.ctx, c, d.bus, b.process.name(), log, &b.party)
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
