//go:build linux || darwin

package e2e_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

func pause(t *testing.T, pid int) {
	t.Helper()
	if err := redistest.Signal(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// A stopped worker stands for one that hangs: it does not answer on its line.
func TestWorkerThatHangsIsKilledAndReplaced(t *testing.T) {
	c := startWorkers(t, "settings", "2", "MEGA_CLUSTER_HANG_TIMEOUT=3s")
	hangs := c.await(t, "worker ready", 2)[0]
	c.await(t, "boot.report", 1)
	pause(t, hangs.PID)
	if again := c.await(t, "worker ready", 3)[2]; again.Worker != hangs.Worker || running(hangs.PID) {
		t.Errorf("worker %d, pid %d, was replaced by %+v", hangs.Worker, hangs.PID, again)
	}
	if hung := c.records("worker hung, killed"); len(hung) != 1 || hung[0].PID != hangs.PID {
		t.Errorf("logged: %+v", hung)
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// Time in which the supervisor itself stood still is nobody's silence.
func TestSupervisorThatStoodStillKillsNoWorker(t *testing.T) {
	c := startWorkers(t, "settings", "2", "MEGA_CLUSTER_HANG_TIMEOUT=3s")
	report := c.await(t, "boot.report", 1)[0]
	defer http.DefaultClient.CloseIdleConnections()
	pause(t, c.cmd.Process.Pid)
	time.Sleep(5 * time.Second)
	c.signal(t, syscall.SIGCONT)
	for range 20 {
		w, err := http.Get(report.Report.Ops + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Body.Close()
		if w.StatusCode != http.StatusOK {
			t.Errorf("/readyz: %s", w.Status)
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 || len(c.records("worker hung, killed")) > 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}
