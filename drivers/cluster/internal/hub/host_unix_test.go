//go:build linux || darwin

package hub

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// At the limit of descriptors the hub tries to accept a hundred times a second.
func TestFailuresToAcceptAreReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := &Host{log: slog.New(slog.NewTextHandler(&log, nil))}
		h.ctx, h.end = context.WithCancelCause(t.Context())
		attempts := 0
		began := time.Now()
		h.accept(func() (net.Conn, error) {
			if attempts++; time.Since(began) > 2*time.Minute {
				return nil, net.ErrClosed
			}
			return nil, syscall.EMFILE
		})
		if n := strings.Count(log.String(), "accept failed"); n != 3 || attempts < 10_000 {
			t.Errorf("%d reports of %d attempts", n, attempts)
		}
	})
}

// openHost returns a host that accepts no client, and its lock file.
func openHost(t *testing.T) (h *Host, file string) {
	t.Helper()
	s := openSocket(t)
	lock := take(t, s)
	successor, err := Follow(Config{}, lock, lock.Left(), false)
	if err != nil {
		t.Fatal(err)
	}
	h = &Host{hub: successor, lock: lock, log: slog.New(slog.DiscardHandler)}
	h.ctx, h.end = context.WithCancelCause(t.Context())
	return h, s.Path() + ".lock"
}

// A hub grants leases as long as it has its lock file, also while it leaves, and no
// longer, whatever the record covers. L1
func TestHubWithoutItsLockFileCoversNothing(t *testing.T) {
	for name, leaves := range map[string]bool{"that leaves": true, "that goes on": false} {
		t.Run("a hub "+name, func(t *testing.T) {
			h, file := openHost(t)
			later := driver.Now().Add(time.Minute)
			if !h.cover(later, 1) {
				t.Fatal("it covers no lease")
			}
			if leaves {
				h.end(context.Canceled)
			}
			if !h.cover(later, 1) {
				t.Error("it covers no lease")
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if h.cover(later.Add(time.Hour), 1) || h.cover(later, 1) {
				t.Error("it covers a lease without its lock file")
			}
			if !h.Failed() {
				t.Error("it goes on")
			}
		})
	}
}

// A hub whose recovery is over grants leases only if it can record that in the file of its
// lock, which another process may have by now. L1
func TestHubThatCannotRecordItsRecoveryGrantsNothing(t *testing.T) {
	for name, removed := range map[string]bool{"with its lock file": false, "without its lock file": true} {
		t.Run("a hub "+name, func(t *testing.T) {
			h, file := openHost(t)
			if removed {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			h.grant(0)
			r := driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1}
			_, queued, err := h.hub.locks.table.Ask(&r, table.NewOwner(func(table.Event) {}), 0)
			if err != nil || queued != removed {
				t.Errorf("the request is queued: %v, %v", queued, err)
			}
			if h.Failed() != removed {
				t.Errorf("the hub has failed: %v", h.Failed())
			}
		})
	}
}
