package selection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock/driver"
)

// socketPath returns the path of cluster.socket.
func socketPath(c *settings.Config) string {
	if c.Cluster.Socket == "auto" {
		return cluster.AutoSocket()
	}
	return c.Cluster.Socket
}

// CheckSocket checks the socket's path as far as possible without opening the
// socket.
func CheckSocket(c *settings.Config, d plan.Decisions) error {
	for _, of := range d.All() {
		if of.Chosen != "cluster" || c.Cluster.Socket == "" {
			continue
		}
		path := socketPath(c)
		if err := cluster.CheckSocket(path); err != nil {
			return socketUnusable(c, of, path, err)
		}
	}
	return nil
}

// socketUnusable returns the Failure for a cluster socket that cannot be used:
// its path is not valid, or the process at the socket does not answer.
func socketUnusable(c *settings.Config, d plan.Decision, path string, cause error) error {
	if errors.Is(cause, context.Canceled) {
		return cause
	}
	const key = "cluster.socket"
	f := &failure.Failure{
		Code: "cluster.unavailable", Exit: failure.ExitUnavailable, Cause: cause,
		Text:  fmt.Sprintf("Cannot use the cluster socket %s, which is configured for %s.", path, d.Subject()),
		Facts: []failure.Fact{failure.Setting(c, key)},
	}
	if d.Key != key {
		f.Facts = append(f.Facts, failure.Fact{Name: "because", Value: d.Because()})
	}
	actions := []string{"End the other process", "the cause names the process at the socket"}
	if strings.Contains(cause.Error(), syscall.EMFILE.Error()) { // of the hub, or of this process
		actions = []string{"Raise the limit", "ulimit -n 1024, or LimitNOFILE of the service, for the process that has no free descriptor"}
	}
	full := errors.Is(cause, syscall.ENOSPC) // another start may find space: it is no mistake of the configuration
	if full {
		actions = []string{"Free space", "on the disk of the path in the cause"}
	}
	if place, ok := errors.AsType[*cluster.SocketError](cause); ok && !full {
		f.Code, f.Exit, f.Cause = "cluster.place_refused", failure.ExitConfig, place
		actions = []string{"Use the default folder", failure.Set(c, key, "auto")}
		if c.Cluster.Socket == "auto" {
			actions = nil
		}
	}
	f.Actions = failure.Actions(append(actions,
		"Use a folder of your own", failure.Set(c, key, "/run/shop/cluster.sock"),
		"Continue without it", failure.Set(c, d.Component+".driver", "memory")+": "+d.Subject()+" then end at this process")...)
	return f
}

// NoSupervisor returns the failure for a process whose environment declares it
// a worker, but which has no supervisor, or one that does not answer or is of
// another version.
func NoSupervisor(cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) { // the next worker may have its answer
		return &failure.Failure{
			Code: "cluster.unavailable", Exit: failure.ExitUnavailable, Cause: cause,
			Text:    "The supervisor of this worker does not answer.",
			Actions: failure.Actions("Let it continue", "kill -CONT and the supervisor's process id", "Run one process", "unset MEGA_WORKER_*"),
		}
	}
	if errors.Is(cause, driver.ErrUnavailable) { // a restart of the whole program is a remedy, also by a service manager. L24
		return &failure.Failure{
			Code: "cluster.unavailable", Exit: failure.ExitUnavailable, Cause: cause,
			Text:    "The supervisor of this worker is of another build, which this build cannot work with.",
			Actions: failure.Actions("Run this build", "stop the whole program and start it again", "Keep the old one", "put its executable back"),
		}
	}
	return &failure.Failure{
		Code: "cluster.no_supervisor", Exit: failure.ExitConfig, Cause: cause,
		Text:    "The environment declares this process a worker, but it has no supervisor.",
		Actions: failure.Actions("Run one process", "unset MEGA_WORKER_*", "Run workers", "start the program with serve --workers 2"),
	}
}
