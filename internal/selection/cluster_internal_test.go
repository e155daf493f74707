package selection

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/failure"
)

// The end of the hub would not help: the next one has the same limit.
func TestAHubWithoutDescriptorsNeedsAHigherLimit(t *testing.T) {
	c, d := pinnedBy(t, false, "MEGA_CLUSTER_SOCKET=/run/shop/c.sock")
	for cause, want := range map[string]string{
		"the hub (process 7) refuses this process: open x: too many open files": "ulimit -n 1024",
		"the hub (process 7) does not answer":                                   "End the other process",
	} {
		f, ok := errors.AsType[*failure.Failure](socketUnusable(c, d.Lock, "/run/shop/c.sock", errors.New(cause)))
		if !ok || !strings.Contains(f.Actions[0], want) {
			t.Errorf("%s: %+v, want the action %q first", cause, f, want)
		}
	}
}

// A full disk is no mistake of the configuration, after which a service manager does not
// start the program again, and no other process is to blame.
func TestASocketOnAFullDiskIsUnavailable(t *testing.T) {
	c, d := pinnedBy(t, false, "MEGA_CLUSTER_SOCKET=/run/shop/c.sock")
	full := &os.PathError{Op: "mkdir", Path: "/run/shop", Err: syscall.ENOSPC}
	for _, cause := range []error{full, &cluster.SocketError{Err: full}} {
		f, ok := errors.AsType[*failure.Failure](socketUnusable(c, d.Lock, "/run/shop/c.sock", cause))
		if !ok || f.Exit != failure.ExitUnavailable || !strings.Contains(f.Actions[0], "Free space") {
			t.Errorf("%T: %+v", cause, f)
		}
	}
}

// A supervisor that was stopped goes on later. With the status of a mistake in the
// configuration, the first worker that has waited for it would end the program for good.
func TestSupervisorThatDoesNotAnswerIsUnavailable(t *testing.T) {
	here, there := net.Pipe()
	defer func() { _ = here.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := cluster.Dial(ctx, cluster.Config{Conn: there})
	f, ok := errors.AsType[*failure.Failure](NoSupervisor(err))
	if !ok || f.Code != "cluster.unavailable" || f.Exit != failure.ExitUnavailable {
		t.Errorf("%+v", f)
	}
}
