package selection

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

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
