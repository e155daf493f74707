// Package systemd notifies a service manager of the state of this process, by the
// datagrams of sd_notify(3): READY=1, STOPPING=1 and WATCHDOG=1.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The variables of sd_notify(3) and sd_watchdog_enabled(3).
const (
	envSocket = "NOTIFY_SOCKET"
	envEvery  = "WATCHDOG_USEC"
	envPID    = "WATCHDOG_PID"
)

// Variables are the names of the variables that this package reads. They are for
// one process, and not for its children.
func Variables() []string { return []string{envSocket, envEvery, envPID} }

// Without returns an environment without those variables.
func Without(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(Variables(), name)
	})
}

// sendTime bounds a notification: a service manager that hangs holds nobody up.
const sendTime = time.Second

// Manager is a service manager that waits for notifications. A nil Manager takes
// them and does nothing. Its methods may be called concurrently.
type Manager struct {
	socket *net.UnixAddr
	every  time.Duration // between two signs of life; 0 for none
	log    *slog.Logger

	complaint sync.Once // one log line, however many notifications fail
	cancel    context.CancelFunc
	watching  sync.WaitGroup

	mu       sync.Mutex      // held when starting ends, and when late grows
	starting context.Context // bounds the attempts of Ready
	endStart context.CancelFunc
	late     sync.WaitGroup // the attempts of Ready in the background
}

// Find returns the service manager of this process, or nil if the environment
// names none. alive is called before each sign of life, on a goroutine that Close
// ends; while it does not return, none is sent.
func Find(environ []string, log *slog.Logger, alive func()) *Manager {
	vars := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	path := vars[envSocket]
	switch {
	case path == "":
		return nil
	case !filepath.IsAbs(path) && !strings.HasPrefix(path, "@"):
		log.Warn("service manager not notified", "socket", path, "reason", "neither a path nor an abstract socket")
		return nil
	}
	m := &Manager{socket: &net.UnixAddr{Name: path, Net: "unixgram"}, every: every(vars), log: log}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	m.starting, m.endStart = context.WithCancel(ctx)
	if m.every > 0 {
		m.watching.Go(func() { m.watch(ctx, alive) })
	}
	return m
}

// every is half of the time after which the service manager takes the process for
// dead, as sd_watchdog_enabled(3) advises.
func every(vars map[string]string) time.Duration {
	if pid := vars[envPID]; pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseInt(vars[envEvery], 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	usec = min(usec, math.MaxInt64/int64(time.Microsecond)) // no overflow below
	return max(time.Duration(usec)*time.Microsecond/2, time.Millisecond)
}

func (m *Manager) watch(ctx context.Context, alive func()) {
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			alive()
			_ = m.send("WATCHDOG=1") // send logs its errors
		case <-ctx.Done():
			return
		}
	}
}

// ready is the notification without which the service manager ends the program after
// its time to start.
const ready = "READY=1"

// Ready notifies that the program serves. If the service manager takes nothing for
// sendTime, as during a reload of its units, Ready goes on in the background, until
// Stopping or Close.
func (m *Manager) Ready() {
	if !errors.Is(m.send(ready), os.ErrDeadlineExceeded) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starting.Err() == nil {
		m.late.Go(m.retryReady)
	}
}

func (m *Manager) retryReady() {
	for m.starting.Err() == nil {
		err := m.write(ready)
		if err == nil {
			m.log.Info("service manager notified", "state", ready)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// Stopping notifies that the program ends.
func (m *Manager) Stopping() {
	m.endRetries()
	_ = m.send("STOPPING=1") // send logs its errors
}

// Close ends the signs of life.
func (m *Manager) Close() {
	m.endRetries()
	if m != nil {
		m.cancel()
		m.watching.Wait()
	}
}

func (m *Manager) endRetries() {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.endStart()
	m.mu.Unlock()
	m.late.Wait()
}

func (m *Manager) send(state string) error {
	if m == nil {
		return nil
	}
	err := m.write(state)
	if err != nil {
		m.complaint.Do(func() { m.log.Warn("service manager not notified", "state", state, "error", err) })
	}
	return err
}

func (m *Manager) write(state string) error {
	conn, err := net.DialUnix(m.socket.Net, nil, m.socket)
	if err != nil {
		return fmt.Errorf("connect to the service manager: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}
