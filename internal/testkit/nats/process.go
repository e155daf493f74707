package natstest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// port is the environment variable that makes a test binary run as a server.
const port = "MEGA_TEST_NATS_PORT"

// Main replaces [testing.M.Run] in a package with tests that use [StartProcess].
// In the child process it runs the server until it is killed.
func Main(m *testing.M) int {
	n, err := strconv.Atoi(os.Getenv(port))
	if err != nil {
		return m.Run()
	}
	if _, err := New(Options{Port: n}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	return 0
}

// Process is a server in a child process.
type Process struct {
	tb    testing.TB
	port  int
	child *redistest.Process
	stdin io.Closer // its end is the child's
}

// StartProcess starts a server as a child that ends with the test. TestMain has
// to call [Main].
func StartProcess(tb testing.TB) *Process {
	tb.Helper()
	port, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Process{tb: tb, port: port}
	p.Start()
	tb.Cleanup(p.Kill)
	return p
}

// freePort returns a port that stays reserved for this process.
func freePort() (int, error) {
	addr, err := redistest.FindAddr()
	if err != nil {
		return 0, err
	}
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, fmt.Errorf("start NATS: %w", err)
	}
	return strconv.Atoi(text)
}

// URL returns the address of the server.
func (p *Process) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", p.port) }

// Start starts the server again, at its address.
func (p *Process) Start() {
	p.tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), port+"="+strconv.Itoa(p.port))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.tb.Fatal(err)
	}
	p.stdin = stdin
	if p.child, err = redistest.StartProcess(cmd); err != nil {
		p.tb.Fatal(err)
	}
	if err := p.await(); err != nil {
		p.tb.Fatal(err)
	}
}

// await returns when the server accepts connections.
func (p *Process) await() error {
	for began := time.Now(); time.Since(began) < startTime; time.Sleep(5 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(p.tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
		if err != nil {
			continue
		}
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
		if err == nil {
			return nil
		}
	}
	return errors.New("start NATS: it does not answer")
}

// Kill ends the server with SIGKILL and waits for its exit.
func (p *Process) Kill() {
	p.tb.Helper()
	if err := p.child.Kill(); err != nil {
		p.tb.Fatal(err)
	}
	_ = p.stdin.Close() // nobody reads it any more
}

// Pause stops the process of the server (SIGSTOP) until Continue.
func (p *Process) Pause() {
	p.tb.Helper()
	if err := p.child.Pause(); err != nil {
		p.tb.Fatal(err)
	}
}

// Continue resumes a paused server.
func (p *Process) Continue() {
	p.tb.Helper()
	if err := p.child.Continue(); err != nil {
		p.tb.Fatal(err)
	}
}
