//go:build linux || darwin

package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/testkit/output"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// A process that a worker has started before it took its line, and that outlives
// it, does not hide its end: whoever reads the line finds that, and not that this
// side has closed it, which would say nothing of the worker.
func TestALineEndsWithItsWorkerThoughAChildKeepsIt(t *testing.T) {
	ended := make(chan error, 1)
	s := newRunner(Config{
		Workers: 1, Path: "/bin/sh", Args: []string{"sh", "-c", "sleep 30 & kill -9 $$"}, Grace: time.Second,
		Permanent: func(int) bool { return true },
	}, func(_ *Process, conn net.Conn) {
		defer func() { _ = conn.Close() }()
		_, err := io.Copy(io.Discard, conn)
		ended <- err
	})
	var spent *SpentError
	began := time.Now()
	if err := s.Run(context.Background()); !errors.As(err, &spent) {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the line has ended with %v, want its end of file", err)
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("the line has ended with the child, after %v", took)
	}
}

// shellRunner runs workers that are shell scripts.
func shellRunner(t *testing.T, script string, c Config, serve func(*Process, net.Conn)) *runner {
	t.Helper()
	c.Workers, c.Path, c.Args = 1, "/bin/sh", []string{"sh", "-c", script}
	c.Grace = cmp.Or(c.Grace, 20*time.Second)
	s := newRunner(c, serve)
	s.backoff = func(int) time.Duration { return time.Millisecond }
	return s
}

// The hub ends the line of a worker that was stopped within a frame. Nobody
// watches such a worker any more.
func TestWorkerWithoutALineIsKilledAfterItsGracePeriod(t *testing.T) {
	s := shellRunner(t, "exec sleep 60", Config{Grace: 50 * time.Millisecond}, func(p *Process, conn net.Conn) {
		p.Ready()
		_ = conn.Close()
	})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	until(t, "another process", func() bool { return s.slots[0].replaced() > 0 })
	cancel()
	<-over
}

// A terminal sends SIGINT to all processes. One that has just been started does
// not catch it yet, and the supervisor may catch it after the worker's death.
func TestInterruptedStartIsNotCutOff(t *testing.T) {
	caught := make(chan os.Signal, 3) // a supervisor catches them, so that its children do not inherit that they are ignored
	signal.Notify(caught, syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM)
	defer signal.Stop(caught)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(sig, " ", late), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var s *runner
				s = shellRunner(t, "exec sleep 60", Config{}, func(p *Process, conn net.Conn) {
					if !late {
						cancel()
						<-s.stopping.Done()
					}
					err := p.cmd.Process.Signal(sig)
					if ended := errors.Is(err, os.ErrProcessDone) && !late; err != nil && !ended { // of the supervisor's SIGTERM
						t.Error(err)
					}
					until(t, "the end of the process", p.hasEnded)
					cancel()
					<-s.stopping.Done()
					_ = conn.Close()
				})
				if err := s.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The signal to a process group may reach a worker that starts before it reaches the
// supervisor.
func TestInterruptedStartIsNotLoggedAsADeath(t *testing.T) {
	for script, want := range map[string]bool{"exit 0": false, "kill -TERM $$": false, "exit 7": true} {
		t.Run(script, func(t *testing.T) {
			var log output.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := shellRunner(t, script, Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(p *Process, conn net.Conn) {
				_ = conn.Close()
				if !want {
					go func() {
						<-p.over
						cancel()
					}()
				}
			})
			s.skew = time.Minute
			if err := s.Run(ctx); (err != nil) != want {
				t.Errorf("got %v", err)
			}
			if text := log.String(); strings.Contains(text, "exited before it was ready") != want {
				t.Errorf("got\n%s", text)
			}
		})
	}
}

// restarting starts a runner of one worker, whose process old is ready and is being
// replaced. starts receives each further process, and restarted the outcome. The
// runner ends with the test.
func restarting(t *testing.T, log *slog.Logger) (old *Process, starts <-chan *Process, restarted <-chan error) {
	t.Helper()
	started := make(chan *Process, 1+maxDeaths)
	s := shellRunner(t, "exec sleep 60", Config{Log: log}, func(p *Process, conn net.Conn) {
		started <- p
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	old = <-started
	old.Ready()
	outcome := make(chan error, 1)
	go func() { outcome <- s.Restart(ctx) }()
	return old, started, outcome
}

// The log explains each death, also while the worker is being replaced.
func TestDeathOfAWorkerDuringItsReplacementIsLogged(t *testing.T) {
	var log output.Buffer
	old, starts, restarted := restarting(t, slog.New(slog.NewTextHandler(&log, nil)))
	next := <-starts
	if err := redistest.Signal(old.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-old.over
	next.Ready()
	if err := <-restarted; err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Count(text, `msg="worker exited"`) != 1 || !strings.Contains(text, `ended="signal: killed"`) {
		t.Errorf("the log has no record of the death:\n%s", text)
	}
}

func TestRestartDoesNotClaimThatADeadProcessServes(t *testing.T) {
	old, starts, restarted := restarting(t, nil)
	for i := range maxDeaths {
		next := <-starts
		if i == 0 {
			_ = redistest.Signal(old.PID(), syscall.SIGKILL)
			<-old.over
		}
		_ = redistest.Signal(next.PID(), syscall.SIGKILL)
	}
	if err := <-restarted; err == nil || strings.Contains(err.Error(), "old process") {
		t.Errorf("got %v", err)
	}
}

// A second signal may come while workers are being started.
func TestAbortEndsAWorkerThatIsBeingStarted(t *testing.T) {
	for i := range 50 {
		var aborted, late atomic.Bool
		s := shellRunner(t, "exec sleep 60", Config{}, func(_ *Process, conn net.Conn) {
			late.Store(late.Load() || aborted.Load())
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		})
		over := make(chan error, 1)
		go func() { over <- s.Run(t.Context()) }()
		time.Sleep(time.Duration(i) * 20 * time.Microsecond)
		s.Abort()
		aborted.Store(true)
		if <-over; late.Load() {
			t.Fatal("a worker was started after the end of all")
		}
	}
}

// The fn of a lease may still run while its worker ends, cut off: until the
// process has ended, the lease is left to its TTL (L17).
func TestClosedLineReleasesNoLease(t *testing.T) {
	hub := cluster.NewHub(cluster.HubConfig{})
	var clients []*cluster.Client
	join := func() *Line {
		ours, theirs, err := cluster.Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = theirs.Close() }()
		clients = append(clients, hub.Join(ours, "worker"))
		conn, err := net.FileConn(theirs)
		if err != nil {
			t.Fatal(err)
		}
		node, err := cluster.Dial(t.Context(), cluster.Config{Conn: conn})
		if err != nil {
			t.Fatal(err)
		}
		return &Line{inherited: &Inherited{Line: conn}, node: node}
	}
	locks := func(l *Line) *lock.Locker {
		locker, err := lock.New(l.Node().Lock(), lock.Config{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return locker
	}
	ends, other := join(), join()
	mine, others := locks(ends), locks(other)
	if _, err := mine.Acquire(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = mine.Close(ended) // the shutdown cuts off the holder
	if err := ends.Close(t.Context()); err != nil {
		t.Error(err)
	}
	<-clients[0].Done()
	if lease, err := others.TryAcquire(t.Context(), "k"); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("got %v, want ErrNotAcquired", err)
		_ = lease.Release()
	}
	if err := errors.Join(others.Close(t.Context()), other.Close(t.Context()), hub.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
