// Package redistest starts real Redis servers for tests: single ones, a Sentinel
// set and a Cluster, on free loopback ports and in temporary folders. It can break
// the servers, and a [Proxy] the connections to them.
//
// Nothing here needs a *testing.T: New serves TestMain and child processes,
// Start serves tests. No server outlives the process that started it.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// startTimeout is the maximum time from the start of a server until it answers,
// the loading of its data included.
const startTimeout = 20 * time.Second

// Persistence is the data that a server keeps over a restart.
type Persistence int

// The kinds of persistence.
const (
	Nothing Persistence = iota // no data
	AOF                        // all acknowledged writes
)

// Options configures a server. The zero value is ready for use.
type Options struct {
	Persistence Persistence
	// Password is the password of the default user. Default: none.
	Password string
	// Users are ACL rules, such as "alice on >secret ~* +@all".
	Users []string
	// MaxMemory and MaxMemoryPolicy, such as "64mb" and "allkeys-lru". Default:
	// no limit.
	MaxMemory, MaxMemoryPolicy string
	// Clock makes a server whose wall clock StepClock can set.
	Clock bool
	// Config contains further lines of redis.conf.
	Config []string
}

// Server is one redis-server process. Its methods may be called concurrently.
type Server struct {
	options Options
	role    []string // arguments beside the configuration file
	dir     string
	port    int

	returned sync.Once // the port, which another server may have since

	mu      sync.Mutex // guards the field below; not held while the process starts
	process *Process
}

// New starts a server and returns when it answers. The caller closes it.
func New(o Options) (*Server, error) { return launch(o) }

// Start starts a server that ends with the test.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// launch tries another port if another process has taken the free one meanwhile.
func launch(o Options, role ...string) (*Server, error) {
	var errs []error
	for range 5 {
		s, err := prepare(o, role)
		if err != nil {
			return nil, err
		}
		if err = s.Restart(); err == nil {
			return s, nil
		}
		errs = append(errs, err, s.Close())
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func prepare(o Options, role []string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s := &Server{options: o, role: role, dir: dir, port: port}
	conf := strings.Join(s.config(), "\n") + "\n"
	if err := os.WriteFile(s.file("redis.conf"), []byte(conf), 0o600); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return s, nil
}

func (s *Server) config() []string {
	lines := []string{
		"bind 127.0.0.1",
		fmt.Sprintf("port %d", s.port),
		"dir " + strconv.Quote(s.dir),
	}
	if s.isSentinel() {
		return append(lines, s.options.Config...)
	}
	lines = append(lines, `save ""`, "enable-debug-command local", "repl-diskless-sync-delay 0")
	if s.options.Persistence == AOF {
		// Written before each answer. An fsync would also survive a crash of the
		// machine, and would make parallel servers wait for the disk.
		lines = append(lines, "appendonly yes", "appendfsync no")
	}
	if p := s.options.Password; p != "" {
		lines = append(lines, "requirepass "+strconv.Quote(p))
	}
	if m := s.options.MaxMemory; m != "" {
		lines = append(lines, "maxmemory "+m)
	}
	if p := s.options.MaxMemoryPolicy; p != "" {
		lines = append(lines, "maxmemory-policy "+p)
	}
	for _, u := range s.options.Users {
		lines = append(lines, "user "+u)
	}
	return append(lines, s.options.Config...)
}

// Addr returns the host and port of the server.
func (s *Server) Addr() string { return address(s.port) }

// URL returns the address of the server for a client, with its password.
func (s *Server) URL() string {
	if s.options.Password != "" {
		return "redis://:" + s.options.Password + "@" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Dir returns the folder with the configuration, log and data of the server.
func (s *Server) Dir() string { return s.dir }

// PID returns the id of the server's process, or 0 if it does not run.
func (s *Server) PID() int {
	if p := s.running(); p != nil {
		return p.PID()
	}
	return 0
}

// Restart starts the server again, with the same port, folder and
// configuration, after stopping it if it runs. It returns when the server
// answers.
func (s *Server) Restart() error {
	if err := s.Stop(); err != nil {
		return err
	}
	binary, err := lookup()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.file("redis.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer func() { _ = log.Close() }() // the server has its own by then
	cmd := exec.Command(binary, append([]string{s.file("redis.conf")}, s.role...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.options.Clock {
		if cmd.Env, err = s.steppable(); err != nil {
			return err
		}
	}
	p, err := StartProcess(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	return s.waitReady(p)
}

func lookup() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("redistest: redis-server is missing; install the package redis-server " +
			"(apt-get install redis-server, dnf install redis, apk add redis, brew install redis)")
	}
	return path, nil
}

var errPortTaken = errors.New("redistest: the port is taken")

// waitReady waits until this process answers, not a foreign server on the same
// port.
func (s *Server) waitReady(p *Process) error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := s.answers(p)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("redistest: redis-server does not answer: %w\n%s", err, s.LogTail())
		}
		select {
		case <-p.Done():
			return s.diedAtStart(p)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *Server) answers(p *Process) error {
	info, err := s.Info("server")
	if err != nil {
		return err
	}
	if info["process_id"] != strconv.Itoa(p.PID()) {
		return errPortTaken
	}
	if _, err = s.Do("PING"); err != nil && strings.Contains(err.Error(), "ERR unknown command") {
		return nil // a test has disabled PING
	}
	return err
}

func (s *Server) diedAtStart(p *Process) error {
	tail := s.LogTail()
	if strings.Contains(tail, "Address already in use") {
		return errPortTaken
	}
	return fmt.Errorf("redistest: redis-server ended at its start: %w\n%s", p.Wait(), tail)
}

// LogTail returns the end of the server's log.
func (s *Server) LogTail() string {
	log, err := os.ReadFile(s.file("redis.log"))
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-4096):])
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill() error {
	if p := s.running(); p != nil {
		return p.Kill()
	}
	return nil
}

// Stop shuts the server down.
func (s *Server) Stop() error {
	if p := s.running(); p != nil {
		return p.Stop(5 * time.Second)
	}
	return nil
}

// Pause stops the server's process (SIGSTOP): connections stay open, and nothing
// answers.
func (s *Server) Pause() error { return s.signal((*Process).Pause) }

// Continue resumes a paused server.
func (s *Server) Continue() error { return s.signal((*Process).Continue) }

// Close kills the server, removes its folder and gives its port back. It is
// idempotent.
func (s *Server) Close() error {
	err := errors.Join(s.Kill(), os.RemoveAll(s.dir))
	s.returned.Do(func() { release(s.port) })
	return err
}

func (s *Server) signal(send func(*Process) error) error {
	p := s.running()
	if p == nil {
		return errors.New("redistest: the server is not running")
	}
	return send(p)
}

func (s *Server) running() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil || s.process.gone() {
		return nil
	}
	return s.process
}

func (s *Server) isSentinel() bool { return len(s.role) > 0 && s.role[0] == "--sentinel" }

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) dial() (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second}
	return d.DialContext(context.Background(), "tcp", s.Addr())
}
