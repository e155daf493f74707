package selection

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	limitdriver "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock/driver"
)

// Backends opens the drivers that were selected for a process. Locks, messages
// and limits share one connection to the cluster of the node. The zero value is
// ready to use. Its methods may not be called concurrently until all drivers
// are open.
type Backends struct {
	Line   *cluster.Node // the connection to the supervisor; nil in a process without one
	socket *cluster.Node // nil until the process has joined the cluster socket
}

// OpenLock opens the selected lock driver.
func (b *Backends) OpenLock(ctx context.Context, c *settings.Config, d plan.Decision, log *slog.Logger) (driver.Driver, error) {
	switch d.Chosen {
	case "redis":
		return openRedis(ctx, c, d, log)
	case "cluster":
		node, err := b.join(ctx, c, d, log)
		if err != nil {
			return nil, err
		}
		return node.Locks(c.Lock.Namespace), nil
	}
	return memory.NewLock(), nil
}

// OpenBus opens the selected bus driver. A NATS server gets the name of the
// program.
func (b *Backends) OpenBus(ctx context.Context, c *settings.Config, d plan.Decision, program string, log *slog.Logger) (busdriver.Driver, error) {
	switch d.Chosen {
	case "nats":
		return openNATS(ctx, c, d, program, log)
	case "cluster":
		node, err := b.join(ctx, c, d, log)
		if err != nil {
			return nil, err
		}
		return node.Bus(), nil
	}
	return memory.NewBus(), nil
}

// OpenLimit opens the selected driver of limits.
func (b *Backends) OpenLimit(ctx context.Context, c *settings.Config, d plan.Decision, log *slog.Logger) (limitdriver.Driver, error) {
	switch d.Chosen {
	case "redis":
		return openLimitRedis(ctx, c, d, log)
	case "cluster":
		node, err := b.join(ctx, c, d, log)
		if err != nil {
			return nil, err
		}
		return node.Limits(c.Lock.Namespace), nil
	}
	return memory.NewLimit(), nil
}

// JoinSocket connects to the cluster socket if locks, messages or limits need it.
func (b *Backends) JoinSocket(ctx context.Context, c *settings.Config, d plan.Decisions, log *slog.Logger) error {
	for _, of := range d.All() {
		if of.Chosen == "cluster" && c.Cluster.Socket != "" {
			_, err := b.join(ctx, c, of, log)
			return err
		}
	}
	return nil
}

// join returns the connection that locks, messages and limits of the cluster use.
func (b *Backends) join(ctx context.Context, c *settings.Config, d plan.Decision, log *slog.Logger) (*cluster.Node, error) {
	switch {
	case b.socket != nil:
		return b.socket, nil
	case c.Cluster.Socket == "" && b.Line == nil:
		return nil, NoSupervisor(errors.New("MEGA_WORKER_FD is not set"))
	case c.Cluster.Socket == "":
		return b.Line, nil
	}
	path := socketPath(c)
	ctx, cancel := context.WithTimeout(ctx, max(c.Boot.WaitFor, joinTime))
	defer cancel()
	node, err := cluster.Dial(ctx, cluster.Config{Socket: path, Log: log})
	if err != nil {
		return nil, socketUnusable(c, d, path, err)
	}
	b.socket = node
	return node, nil
}

// joinTime is the minimum time that the processes at a socket get to agree on a
// hub.
const joinTime = 5 * time.Second

// PingHub returns an error if the hub does not answer. A stalled hub keeps its
// connections open but answers no request, so that the process is not ready.
// PingHub returns nil in a process without a connection to a hub.
func (b *Backends) PingHub(ctx context.Context) error {
	switch {
	case b.socket != nil:
		return b.socket.Ping(ctx)
	case b.Line != nil:
		return b.Line.Ping(ctx)
	}
	return nil // the caller of the boot has passed a driver and is responsible for it
}

// Close closes the connection to the socket. Close the drivers first.
func (b *Backends) Close(ctx context.Context) error {
	if b.socket == nil {
		return nil
	}
	return b.socket.Close(ctx)
}

// built reports whether this build contains a driver: the cluster needs Linux or macOS.
// The choice of a driver does not depend on it. One that is not built is refused.
func built(name string) bool {
	return name != "cluster" || runtime.GOOS == "linux" || runtime.GOOS == "darwin"
}
