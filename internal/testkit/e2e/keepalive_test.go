//go:build linux || darwin

package e2e_test

import (
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// startBusy starts clients that reuse their connections for as long as the
// server lets them and that do not retry: half of them send the next request at
// once, half of them within think.
func startBusy(addr string, think time.Duration) []*load {
	atOnce, thinking := &load{addr: addr}, &load{addr: addr, think: think}
	for _, l := range []*load{atOnce, thinking} {
		for range 8 {
			l.clients.Go(func() { l.buy(math.MaxInt) })
		}
	}
	return []*load{atOnce, thinking}
}

// thinkTime leaves connections idle for most of the time, and is far below the
// time for which a server that shuts down waits for the next request.
const thinkTime = 40 * time.Millisecond

// serve waits until clients of each kind have been answered, and connections are idle
// between requests.
func serve(t *testing.T, loads []*load) {
	t.Helper()
	for _, l := range loads {
		l.serves(t)
	}
	time.Sleep(2 * thinkTime)
}

func endBusy(t *testing.T, loads []*load) {
	t.Helper()
	for _, l := range loads {
		l.end()
		if err := l.lost(); err != nil || l.answered.Load() == 0 {
			t.Errorf("%d requests answered, %d sent late; lost: %v", l.answered.Load(), l.raced.Load(), err)
		}
	}
}

// Restarts replace every worker. A busy connection that ends with its worker is
// told so by its last answer, and never by a lost request.
func TestRollingRestartLosesNoRequestOnBusyConnections(t *testing.T) {
	c := startWorkers(t, "counter", "2", "MEGA_LOG_LEVEL=info")
	loads := startBusy(c.await(t, "boot.report", 1)[0].address(), thinkTime)
	c.follow()
	for i := range max(suite.Scaled(6), 3) {
		time.Sleep(2 * thinkTime) // for connections to the new workers
		c.signal(t, syscall.SIGUSR2)
		c.eventually(t, "worker restart finished", i+1)
	}
	for _, l := range loads {
		if n := l.refused.Load(); n > 0 {
			t.Errorf("%d connections were refused", n)
		}
	}
	c.signal(t, syscall.SIGTERM)
	status := c.end(t)
	endBusy(t, loads)
	if status != 0 {
		t.Errorf("exit status %d:\n%s", status, lastLines(c.String(), 20))
	}
}

func TestStopLosesNoRequestOnBusyConnections(t *testing.T) {
	for _, workers := range []string{"1", "2"} {
		for round := range max(suite.Scaled(10), 2) {
			c := startWorkers(t, "counter", workers, "MEGA_LOG_LEVEL=info")
			loads := startBusy(c.await(t, "boot.report", 1)[0].address(), thinkTime)
			c.follow()
			serve(t, loads)
			c.signal(t, syscall.SIGTERM)
			status := c.end(t)
			endBusy(t, loads)
			if status != 0 {
				t.Errorf("%s workers, round %d: exit status %d:\n%s", workers, round, status, lastLines(c.String(), 20))
			}
		}
	}
}

// The end comes in the middle of a restart: some workers are new, one starts, one
// has been told to end.
func TestStopDuringARestartLosesNoRequestOnBusyConnections(t *testing.T) {
	for round := range max(suite.Scaled(10), 3) {
		c := startWorkers(t, "counter", "2", "MEGA_LOG_LEVEL=info")
		loads := startBusy(c.await(t, "boot.report", 1)[0].address(), thinkTime)
		c.follow()
		serve(t, loads)
		c.signal(t, syscall.SIGUSR2)
		time.Sleep(rand.N(300 * time.Millisecond))
		c.signal(t, syscall.SIGUSR2)
		time.Sleep(rand.N(300 * time.Millisecond))
		c.signal(t, syscall.SIGTERM)
		status := c.end(t)
		endBusy(t, loads)
		if status != 0 {
			t.Errorf("round %d: exit status %d:\n%s", round, status, lastLines(c.String(), 20))
		}
	}
}

// Workers that lose their supervisor end as if they were told to.
func TestDeathOfTheSupervisorLosesNoRequestOnBusyConnections(t *testing.T) {
	for range max(suite.Scaled(5), 2) {
		c := startWorkers(t, "counter", "2", "MEGA_LOG_LEVEL=info")
		loads := startBusy(c.await(t, "boot.report", 1)[0].address(), thinkTime)
		c.follow()
		serve(t, loads)
		kill(t, c.cmd.Process.Pid)
		endBusy(t, loads)
		_ = c.cmd.Wait()
	}
}

// A worker that is told to end while its supervisor is stopped does not know
// whether others go on accepting.
func TestWorkerThatEndsWhileTheSupervisorIsStoppedLosesNoRequest(t *testing.T) {
	c := startWorkers(t, "counter", "2", "MEGA_LOG_LEVEL=info")
	loads := startBusy(c.await(t, "boot.report", 1)[0].address(), thinkTime)
	worker := c.await(t, "worker ready", 2)[0]
	c.follow()
	serve(t, loads)
	pause(t, c.cmd.Process.Pid)
	if err := redistest.Signal(worker.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, "stopped", 1)
	c.signal(t, syscall.SIGCONT)
	c.eventually(t, "worker ready", 3)
	c.signal(t, syscall.SIGTERM)
	status := c.end(t)
	endBusy(t, loads)
	if status != 0 {
		t.Errorf("exit status %d:\n%s", status, lastLines(c.String(), 20))
	}
}
