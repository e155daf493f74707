package boot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/testkit/output"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// TestTellingRowsThroughTheRealBinary starts the shop with the ten combinations
// that say most about selection. One that serves is read by its report, and
// ends with status 0 when it is told to.
func TestTellingRowsThroughTheRealBinary(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	cache := "MEGA_CACHE_MAIN_URL=" + server.URL()
	for _, x := range []struct {
		name   string
		run    run
		chosen string // by the lock
		key    string // that decided
		origin string
		exit   int
		code   string
	}{
		{"nothing is configured", with(), "memory", "cache.<alias>.url", "not set", 0, ""},
		{"a cache is configured", with(cache), "redis", "cache.main.url", "env MEGA_CACHE_MAIN_URL", 0, ""},
		{"a cache in a file", file("mega.config.yaml", "cache:\n  main:\n    url: "+server.URL()+"\n"), "redis", "cache.main.url", "mega.config.yaml:3", 0, ""},
		{"memory is asked for beside a cache", with(cache, "MEGA_LOCK_DRIVER=memory"), "memory", "lock.driver", "env MEGA_LOCK_DRIVER", 0, ""},
		{"the fleet is required and reached", with(cache, "MEGA_LOCK_REQUIRE=fleet"), "redis", "cache.main.url", "env MEGA_CACHE_MAIN_URL", 0, ""},
		{"the fleet is required of memory", with("MEGA_LOCK_REQUIRE=fleet"), "", "", "", 78, "lock.scope_too_small"},
		{"a cache that cannot be reached", with("MEGA_CACHE_MAIN_URL=redis://127.0.0.1:1", "MEGA_BOOT_WAIT_FOR=0"), "", "", "", 69, "lock.driver_unavailable"},
		{"redis is asked for without a cache", with("MEGA_LOCK_DRIVER=redis"), "", "", "", 78, "lock.no_cache"},
		{"a worker without a supervisor", with("MEGA_WORKER_FD=99"), "", "", "", 78, "cluster.no_supervisor"},
		{"a process that a worker has started", with("MEGA_WORKER_ID=1", "MEGA_WORKER_GENERATION=1"), "memory", "cache.<alias>.url", "not set", 0, ""},
		{"only one of two apps, in memory", run{args: []string{"serve", "--only", "web"}}, "memory", "cache.<alias>.url", "not set", 0, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			if x.code != "" {
				e := x.run.end(t)
				if e.status != x.exit || !strings.Contains(e.stderr, "("+x.code+")") {
					t.Errorf("exit status %d, want %d with %s:\n%s", e.status, x.exit, x.code, e.stderr)
				}
				return
			}
			s := x.run.start(t)
			d := s.report(t).Lock
			if d.Chosen != x.chosen || d.Key != x.key || d.Origin != x.origin {
				t.Errorf("got %s by %s (%s), want %s by %s (%s)", d.Chosen, d.Key, d.Origin, x.chosen, x.key, x.origin)
			}
			if status := s.stop(t); status != x.exit {
				t.Errorf("exit status %d, want %d:\n%s", status, x.exit, s.stderr)
			}
		})
	}
}

// started is a shop that runs.
type started struct {
	cmd    *exec.Cmd
	stderr *output.Buffer
	ended  chan error
}

// start starts the shop with its log in JSON.
func (r run) start(t *testing.T) *started {
	t.Helper()
	cmd, _ := r.and("MEGA_LOG_LEVEL=info", "MEGA_LOG_FORMAT=json").command(t.Context(), t)
	s := &started{cmd: cmd, stderr: &output.Buffer{}, ended: make(chan error, 1)}
	cmd.Stderr = s.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return s
}

// report waits for the report of the boot.
func (s *started) report(t *testing.T) plan.Report {
	t.Helper()
	var record struct{ Report plan.Report }
	if !comes(s.stderr, `"msg":"boot.report"`) {
		t.Fatalf("it does not report:\n%s", s.stderr)
	}
	for line := range bytes.Lines([]byte(s.stderr.String())) {
		if bytes.Contains(line, []byte(`"msg":"boot.report"`)) {
			if err := json.Unmarshal(line, &record); err != nil {
				t.Fatal(err)
			}
		}
	}
	return record.Report
}

// stop tells the shop to end, and returns its exit status.
func (s *started) stop(t *testing.T) int {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return s.wait(t)
}

func (s *started) wait(t *testing.T) int {
	t.Helper()
	select {
	case err := <-s.ended:
		s.ended <- err
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(20 * time.Second):
		t.Fatalf("it does not end:\n%s", s.stderr)
		return -1
	}
}

func TestWhoIsLeftOutIsWarnedOfByTheRealBinary(t *testing.T) {
	t.Parallel()
	s := run{args: []string{"serve", "--only", "web"}}.start(t)
	r := s.report(t)
	if len(r.LeftOut) != 1 || r.LeftOut[0] != "admin" || !strings.Contains(fmt.Sprint(r.Lock.Warnings), "run elsewhere have locks of their own: admin") {
		t.Errorf("got %q and %q", r.LeftOut, r.Lock.Warnings)
	}
	if !strings.Contains(s.stderr.String(), `"level":"WARN","msg":"lock: apps that are left out`) {
		t.Errorf("nobody is warned:\n%s", s.stderr)
	}
	_ = s.stop(t)
}

// A server that is waited for may never come. Whoever does not want to wait any
// longer says so, and that is no failure.
func TestWaitingForAServerTellsWhyAndEndsAtOnceWhenAsked(t *testing.T) {
	hanging := silent(t)
	for name, url := range map[string]string{"refused": "redis://127.0.0.1:1", "silent": "redis://" + hanging} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := with("MEGA_CACHE_MAIN_URL="+url, "MEGA_BOOT_WAIT_FOR=5m").start(t)
			if !comes(s.stderr, `"msg":"waiting for the server","component":"lock","driver":"redis"`) {
				t.Fatalf("it does not say that it waits:\n%s", s.stderr)
			}
			if name == "refused" && !strings.Contains(s.stderr.String(), "connection refused") {
				t.Errorf("the cause of the attempt is not told:\n%s", s.stderr)
			}
			asked := time.Now()
			if status := s.stop(t); status != failure.ExitOK {
				t.Errorf("exit status %d, want %d:\n%s", status, failure.ExitOK, s.stderr)
			}
			if took := time.Since(asked); took > 20*time.Second { // of five minutes
				t.Errorf("it took %v to end", took)
			}
			if strings.Contains(s.stderr.String(), "could not start") {
				t.Errorf("it calls it a failure:\n%s", s.stderr)
			}
		})
	}
}

// silent returns an address where a listener never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
