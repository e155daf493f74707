package systemd_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/systemd"
)

// A service manager that reads nothing for a moment, as during a reload of its units,
// would end a program after its time to start, if it were not notified later.
func TestReadinessOutlastsAFullQueue(t *testing.T) {
	conn, m := readyAtFullQueue(t)
	for next(t, conn) != "READY=1" {
		continue
	}
	m.Stopping()
	if got := next(t, conn); got != "STOPPING=1" {
		t.Errorf("got %q after it", got)
	}
}

// The end of a program ends the attempts.
func TestNoReadinessAfterTheEnd(t *testing.T) {
	conn, m := readyAtFullQueue(t)
	m.Stopping()
	m.Close()
	for {
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		b := make([]byte, 100)
		n, err := conn.Read(b)
		if err != nil {
			return
		}
		if got := string(b[:n]); got != "WATCHDOG=1" {
			t.Errorf("got %q", got)
		}
	}
}

// readyAtFullQueue calls Ready of a program whose service manager has read nothing, and
// returns the socket of the service manager.
func readyAtFullQueue(t *testing.T) (*net.UnixConn, *systemd.Manager) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn := listen(t, path)
	fill(t, path)
	m := find(t, "NOTIFY_SOCKET="+path)
	m.Ready()
	return conn, m
}

// fill sends notifications to a service manager until it takes no more of them.
func fill(t *testing.T, path string) {
	t.Helper()
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = conn.Write([]byte("WATCHDOG=1"))
	}
}
