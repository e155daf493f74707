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

// SIGUSR2, or the death of a worker, may start a worker from an executable that has
// another version of the protocol than the supervisor. A restart of the whole program is
// the remedy. After the status of a mistake in the configuration, with which the
// supervisor ends if no worker starts, a service manager would not restart it. L24
func TestSupervisorOfAnotherVersionIsUnavailable(t *testing.T) {
	here, there := net.Pipe()
	go func() {
		defer func() { _ = here.Close() }()
		_, _ = here.Read(make([]byte, 64)) // the hello
		const reason = "it speaks version 9 of the protocol, the hub version 2"
		refused := append([]byte{byte(len(reason)) + 2, 0, 0, 0, 3, byte(len(reason))}, reason...)
		_, _ = here.Write(refused)
	}()
	_, err := cluster.Dial(t.Context(), cluster.Config{Conn: there})
	f, ok := errors.AsType[*failure.Failure](NoSupervisor(err))
	if !ok || f.Code != "cluster.unavailable" || f.Exit != failure.ExitUnavailable || !strings.Contains(f.Cause.Error(), "version 9") {
		t.Fatalf("%v: %+v", err, f)
	}
	if !strings.Contains(f.Actions[0], "stop the whole program") {
		t.Errorf("the first action is %q", f.Actions[0])
	}
}
