package boot

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/cluster"
)

// Open opens what was decided on and closes it again, for tests that go from a
// decision to its exit status. A worker has a line to a supervisor.
func Open(ctx context.Context, c *config.Config, d Decision, worker bool) error {
	var m party
	if worker {
		ours, theirs := net.Pipe()
		hub := cluster.NewHub(cluster.HubConfig{})
		hub.Join(theirs, "worker")
		node, err := cluster.Dial(ctx, cluster.Config{Conn: ours})
		if err != nil {
			return err
		}
		m.line = node
		defer func() { _ = errors.Join(node.Close(ctx), hub.Close(ctx)) }()
	}
	var opened interface{ Close(context.Context) error }
	var err error
	if d.Component == "bus" {
		opened, err = openBus(ctx, c, d, "test", slog.New(slog.DiscardHandler), &m)
	} else {
		opened, err = openLock(ctx, c, d, slog.New(slog.DiscardHandler), &m)
	}
	if err != nil {
		return err
	}
	return errors.Join(opened.Close(ctx), m.close(ctx))
}
