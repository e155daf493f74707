//go:build linux || darwin

package e2e_test

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// The supervisor, or the only process, notifies the service manager, and no worker
// does.
func TestServiceManagerIsNotified(t *testing.T) {
	for _, workers := range []string{"1", "2"} {
		path := filepath.Join(t.TempDir(), "notify")
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		got := map[string]int{}
		until := func(state string) {
			t.Helper()
			for b := make([]byte, 100); got[state] == 0; {
				n, err := conn.Read(b)
				if err != nil {
					t.Fatalf("%s: %v", state, err)
				}
				got[string(b[:n])]++
			}
		}
		c := startWorkers(t, "settings", workers, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=100000")
		until("READY=1")
		if n := got["STOPPING=1"]; n > 0 {
			t.Error("it stops before it is ready")
		}
		until("WATCHDOG=1")
		c.await(t, "boot.report", 1)
		if workers == "2" {
			if n := len(c.records("worker ready")); n != 2 {
				t.Errorf("ready with %d workers", n)
			}
			c.signal(t, syscall.SIGUSR2)
			c.await(t, "worker restart finished", 1)
		}
		c.signal(t, syscall.SIGTERM)
		until("STOPPING=1")
		if status := c.end(t); status != 0 || got["READY=1"] != 1 || got["STOPPING=1"] != 1 {
			t.Errorf("%s workers: exit status %d, notified %v:\n%s", workers, status, got, c)
		}
	}
}
