//go:build unix

package systemd_test

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/systemd"
)

// listen is the service manager's side.
func listen(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	return conn
}

func next(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 100)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func find(t *testing.T, environ ...string) *systemd.Manager {
	t.Helper()
	m := systemd.Find(environ, slog.New(slog.DiscardHandler), func() {})
	t.Cleanup(m.Close)
	return m
}

func TestNotificationsArriveInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn := listen(t, path)
	m := find(t, "NOTIFY_SOCKET="+path)
	m.Ready()
	m.Stopping()
	if a, b := next(t, conn), next(t, conn); a != "READY=1" || b != "STOPPING=1" {
		t.Errorf("got %q and %q", a, b)
	}
}

func TestSignsOfLifeAreSentAtHalfTheTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	for _, pid := range []string{"", strconv.Itoa(os.Getpid())} {
		conn := listen(t, path)
		m := find(t, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=200000", "WATCHDOG_PID="+pid)
		began := time.Now()
		for range 3 {
			if got := next(t, conn); got != "WATCHDOG=1" {
				t.Errorf("got %q", got)
			}
		}
		if took := time.Since(began); took < 250*time.Millisecond {
			t.Errorf("three signs of life within %v", took)
		}
		m.Close()
		_ = conn.Close()
		_ = os.Remove(path)
	}
}

// Signs of life are those of the program, not of a goroutine beside it.
func TestNoSignOfLifeWhileTheProgramHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn := listen(t, path)
	hangs := make(chan struct{})
	m := systemd.Find([]string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=2000"}, slog.New(slog.DiscardHandler), func() { <-hangs })
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 100)); err == nil {
		t.Errorf("it sent %d bytes", n)
	}
	close(hangs)
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if got := next(t, conn); got != "WATCHDOG=1" {
		t.Errorf("got %q", got)
	}
	m.Close()
}

func TestProcessWithoutAServiceManagerNotifiesNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn := listen(t, path)
	for _, environ := range [][]string{nil, {"NOTIFY_SOCKET="}, {"NOTIFY_SOCKET=notify"}} {
		m := systemd.Find(environ, slog.New(slog.DiscardHandler), func() {})
		if m != nil {
			t.Errorf("%q: found a service manager", environ)
		}
		m.Ready()
		m.Stopping()
		m.Close()
	}
	find(t, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=2000", "WATCHDOG_PID=1") // for another process
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 100)); err == nil {
		t.Errorf("it sent %d bytes", n)
	}
}

func TestMissingServiceManagerIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	m := systemd.Find([]string{"NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "notify")}, slog.New(slog.NewTextHandler(&log, nil)), func() {})
	m.Ready()
	m.Stopping()
	m.Close()
	if n := strings.Count(log.String(), "service manager not notified"); n != 1 {
		t.Errorf("%d lines:\n%s", n, &log)
	}
}

func TestChildrenHaveNoVariablesOfTheServiceManager(t *testing.T) {
	got := systemd.Without([]string{"A=1", "NOTIFY_SOCKET=/x", "WATCHDOG_USEC=1", "WATCHDOG_PID=2", "NOTIFY_SOCKETS=3"})
	if want := []string{"A=1", "NOTIFY_SOCKETS=3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
