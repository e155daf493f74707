package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/failure"
)

// party is the connection of a process to the cluster of its node: the line to
// its supervisor, or a client of the cluster socket. Locks and messages share
// one connection.
type party struct {
	line   *cluster.Node // nil in a process without a supervisor
	socket *cluster.Node // nil until the process has joined
}

// clustered reports whether this system supports the cluster driver.
func clustered() bool { return runtime.GOOS == "linux" || runtime.GOOS == "darwin" }

// join returns the connection that locks and messages of the cluster use.
func (m *party) join(ctx context.Context, c *config.Config, d Decision, log *slog.Logger) (*cluster.Node, error) {
	switch {
	case m.socket != nil:
		return m.socket, nil
	case c.Cluster.Socket == "" && m.line == nil:
		return nil, supervisorGone(errors.New("MEGA_WORKER_FD does not say where its line is"))
	case c.Cluster.Socket == "":
		return m.line, nil
	}
	path := meetingPlace(c)
	ctx, cancel := context.WithTimeout(ctx, max(c.Boot.WaitFor, meetingTime))
	defer cancel()
	node, err := cluster.Dial(ctx, cluster.Config{Socket: path, Log: log})
	if err != nil {
		return nil, meetingFailure(c, d, path, err)
	}
	m.socket = node
	return node, nil
}

// alive returns an error if the hub does not answer. A stalled hub keeps its
// connections open but answers no request, so that the process is not ready.
func (m *party) alive(ctx context.Context) error {
	switch {
	case m.socket != nil:
		return m.socket.Ping(ctx)
	case m.line != nil:
		return m.line.Ping(ctx)
	}
	return nil // the caller of the boot has passed a driver and is responsible for it
}

// pingTime is the timeout of a ping of the hub.
const pingTime = time.Second

// meetingTime is the minimum time that the processes at a socket get to agree
// on a hub.
const meetingTime = 5 * time.Second

// close closes the connection to the socket.
func (m *party) close(ctx context.Context) error {
	if m.socket == nil {
		return nil
	}
	return m.socket.Close(ctx)
}

// meetingPlace returns the path of cluster.socket.
func meetingPlace(c *config.Config) string {
	if c.Cluster.Socket == "auto" {
		return cluster.AutoSocket()
	}
	return c.Cluster.Socket
}

// checkPlace checks the socket's path as far as possible without opening the
// socket.
func checkPlace(c *config.Config, d decisions) error {
	for _, of := range []Decision{d.lock, d.bus} {
		if of.Chosen != "cluster" || c.Cluster.Socket == "" {
			continue
		}
		if path := meetingPlace(c); cluster.CheckPlace(path) != nil {
			return meetingFailure(c, of, path, cluster.CheckPlace(path))
		}
	}
	return nil
}

// meetingFailure returns the Failure for a cluster socket that cannot be used.
func meetingFailure(c *config.Config, d Decision, path string, cause error) error {
	if errors.Is(cause, context.Canceled) {
		return cause
	}
	const key = "cluster.socket"
	if unfit, ok := errors.AsType[*cluster.PlaceError](cause); ok {
		refused := &Failure{
			Code: "cluster.place_refused", Exit: ExitConfig, Cause: unfit,
			Text:  fmt.Sprintf("%s are to be shared with the processes that meet at %s, but nobody can meet there.", sentence(subjectOf(d)), path),
			Facts: []Fact{failure.Setting(c, key)},
			Actions: []string{
				"meet in a folder that is made:  " + failure.Set(c, key, "auto"),
				"meet in one of your own:        " + failure.Set(c, key, "/run/shop/cluster.sock"),
				"do without:                     " + failure.Set(c, d.Component+".driver", "memory") + ": they then end at this process",
			},
		}
		if c.Cluster.Socket == "auto" {
			refused.Actions = refused.Actions[1:]
		}
		return refused
	}
	f := &Failure{
		Code: "cluster.unavailable", Exit: ExitUnavailable, Cause: cause,
		Text:  fmt.Sprintf("%s are to be shared with the processes that meet at %s, but nobody can be met there.", sentence(subjectOf(d)), path),
		Facts: []Fact{failure.Setting(c, key)},
		Actions: []string{
			"see to it:         the cause names the process that has the place",
			"meet elsewhere:    " + failure.Set(c, key, "/run/shop/cluster.sock"),
			"do without:        " + failure.Set(c, d.Component+".driver", "memory") + ": they then end at this process",
		},
	}
	if d.Key != key {
		f.Facts = append(f.Facts, Fact{Name: "because", Value: told(d)})
	}
	return f
}

func subjectOf(d Decision) string {
	if d.Component == "bus" {
		return "messages"
	}
	return "locks"
}
