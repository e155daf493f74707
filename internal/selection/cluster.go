package selection

import (
	"context"
	"errors"
	"fmt"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
)

// socketPath returns the path of cluster.socket.
func socketPath(c *config.Config) string {
	if c.Cluster.Socket == "auto" {
		return cluster.AutoSocket()
	}
	return c.Cluster.Socket
}

// CheckSocket checks the socket's path as far as possible without opening the
// socket.
func CheckSocket(c *config.Config, d Decisions) error {
	for _, of := range []plan.Decision{d.Lock, d.Bus} {
		if of.Chosen != "cluster" || c.Cluster.Socket == "" {
			continue
		}
		if path := socketPath(c); cluster.CheckSocket(path) != nil {
			return socketUnusable(c, of, path, cluster.CheckSocket(path))
		}
	}
	return nil
}

// socketUnusable returns the Failure for a cluster socket that cannot be used.
func socketUnusable(c *config.Config, d plan.Decision, path string, cause error) error {
	if errors.Is(cause, context.Canceled) {
		return cause
	}
	const key = "cluster.socket"
	if unfit, ok := errors.AsType[*cluster.SocketError](cause); ok {
		refused := &failure.Failure{
			Code: "cluster.place_refused", Exit: failure.ExitConfig, Cause: unfit,
			Text:  fmt.Sprintf("%s are to be shared with the processes that meet at %s, but nobody can meet there.", sentence(d.Subject()), path),
			Facts: []failure.Fact{failure.Setting(c, key)},
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
	f := &failure.Failure{
		Code: "cluster.unavailable", Exit: failure.ExitUnavailable, Cause: cause,
		Text:  fmt.Sprintf("%s are to be shared with the processes that meet at %s, but nobody can be met there.", sentence(d.Subject()), path),
		Facts: []failure.Fact{failure.Setting(c, key)},
		Actions: []string{
			"see to it:         the cause names the process that has the place",
			"meet elsewhere:    " + failure.Set(c, key, "/run/shop/cluster.sock"),
			"do without:        " + failure.Set(c, d.Component+".driver", "memory") + ": they then end at this process",
		},
	}
	if d.Key != key {
		f.Facts = append(f.Facts, failure.Fact{Name: "because", Value: d.Because()})
	}
	return f
}

// NoSupervisor returns the failure for a process whose environment declares
// it a worker, but which has no supervisor.
func NoSupervisor(cause error) error {
	return &failure.Failure{
		Code: "cluster.no_supervisor", Exit: failure.ExitConfig, Cause: cause,
		Text:    "The environment says that this process is a worker, but no supervisor is at the other end.",
		Actions: []string{"if it is to serve by itself:  unset MEGA_WORKER_*", "if it is to be a worker:      have it started by serve --workers 2"},
	}
}
