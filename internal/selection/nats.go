package selection

import (
	"context"
	"log/slog"

	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
)

func openNATS(ctx context.Context, c *settings.Config, d plan.Decision, program string, log *slog.Logger) (busdriver.Driver, error) {
	return openServer(ctx, c, d, busServer(c, d), log, func(ctx context.Context) (busdriver.Driver, error) {
		return nats.OpenBus(ctx, natsConfig(c, program))
	})
}

func natsConfig(c *settings.Config, program string) nats.Config {
	n := c.NATS
	return nats.Config{
		URL: n.URL.Reveal(), Name: program,
		User: n.User, Password: n.Password.Reveal(), Token: n.Token.Reveal(), NKeyFile: n.NKeyFile, CredsFile: n.CredsFile,
		TLS:    nats.TLS{CA: n.TLS.CA, Cert: n.TLS.Cert, Key: n.TLS.Key, HandshakeFirst: n.TLS.HandshakeFirst},
		Prefix: dotted(c.Bus.NATS.Prefix), EventPrefix: dotted(c.Bus.NATS.EventPrefix), RequestPrefix: dotted(c.Bus.NATS.RequestPrefix),
		Raw: c.Bus.NATS.EventPrefix == "", RawRequests: c.Bus.NATS.RequestPrefix == "", InboxPrefix: c.Bus.NATS.InboxPrefix,
	}
}

// dotted returns a prefix of subjects with its dot.
func dotted(prefix string) string {
	if prefix == "" {
		return ""
	}
	return prefix + "."
}
