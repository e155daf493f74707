package selection

import (
	"context"
	"errors"
	"log/slog"

	"github.com/megaframework/mega/bus"
	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
)

func openNATS(ctx context.Context, c *config.Config, d plan.Decision, program string, log *slog.Logger) (busdriver.Driver, error) {
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
func busUnavailable(c *config.Config, d plan.Decision, a attempts, cause error) error {
	const key = "nats.url"
	facts := []failure.Fact{failure.Setting(c, key)}
	if d.Key != key {
		facts = append(facts, failure.Setting(c, d.Key))
	}
	if denied(cause) {
		return &failure.Failure{
			Code: "bus.driver_refused", Exit: failure.ExitConfig, Cause: cause, Facts: facts,
			Text: "NATS refuses the credentials or permissions of this program.",
			Actions: []string{
				"Correct them:      nats.user and nats.password, nats.token, nats.nkey_file or nats.creds_file",
				"Continue without:  " + failure.Set(c, "bus.driver", "memory") + ": messages then end at this process",
			},
		}
	}
	if a.hopeless {
		return &failure.Failure{
			Code: "bus.driver_refused", Exit: failure.ExitConfig, Cause: cause, Facts: facts,
			Text:    "Messages are to be carried by NATS, but it cannot be opened as configured.",
			Actions: []string{"correct it:  " + failure.Set(c, key, "nats://localhost:4222")},
		}
	}
	return &failure.Failure{
		Code: "bus.driver_unavailable", Exit: failure.ExitUnavailable, Cause: cause, Facts: append(facts, a.tried),
		Text: "Messages are to be carried by NATS, but it cannot be used.",
		Actions: []string{
			"see to it:        the cause says what is wrong with the server",
			"point elsewhere:  " + failure.SetOther(c, key, "nats://localhost:4222"),
			"wait longer:      " + failure.Set(c, "boot.wait_for", "60s"),
			"do without:       " + failure.Set(c, "bus.driver", "memory") + ": messages then end at this process",
		},
	}
}
