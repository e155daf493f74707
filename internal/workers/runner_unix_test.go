//go:build linux || darwin

package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// until waits until something is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// serving waits until all processes are n ready workers, and returns them.
func (c *testRunner) serving(t *testing.T, n int) (all []Worker) {
	t.Helper()
	until(t, fmt.Sprintf("%d ready workers", n), func() bool {
		all = slices.DeleteFunc(c.Workers(), func(w Worker) bool { return w.State == Down })
		for _, w := range all {
			if w.State != Ready {
				return false
			}
		}
		return len(all) == n
	})
	return all
}

// has reports whether a worker has a ready process other than pid.
func (c *testRunner) has(id, pid int) bool {
	return slices.ContainsFunc(c.alive(), func(p *Process) bool {
		w := p.Worker()
		return w.ID == id && w.PID != pid && w.State == Ready
	})
}

// ask asks on a connection of its own.
func (c *testRunner) ask(t *testing.T, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	r, err := client.Get("http://" + c.addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// stop ends the workers and returns what Run did.
func (c *testRunner) stop() error {
	c.end()
	<-c.over
	return c.err
}

func alive(pid int) bool { return redistest.Signal(pid, 0) == nil }

func TestWorkersServeFromOneListenerAndAreNumbered(t *testing.T) {
	c := startRunner(t, 3)
	workers := c.serving(t, 3)
	served := map[string]bool{}
	until(t, "an answer of each worker", func() bool {
		served[c.ask(t, "/")] = true
		return len(served) == 3
	})
	for i, w := range workers {
		if w.ID != i+1 || w.Generation != 1 || w.Restarts != 0 || !served[fmt.Sprintf("%d 1 %d", w.ID, w.PID)] {
			t.Errorf("worker %+v; answers %v", w, served)
		}
	}
	if err := c.stop(); err != nil {
		t.Error(err)
	}
	for _, w := range workers {
		if alive(w.PID) {
			t.Errorf("%d is left", w.PID)
		}
	}
}

func TestChildOfAWorkerInheritsNeitherLineNorListener(t *testing.T) {
	c := startRunner(t, 1)
	c.serving(t, 1)
	if got := c.ask(t, "/files"); got != "0 <nil>" {
		t.Errorf("sockets of the child: %s", got)
	}
}

func TestDeadWorkerIsReplacedUnderItsNumber(t *testing.T) {
	c := startRunner(t, 2)
	for round := range 3 {
		before := c.serving(t, 2)
		if err := redistest.Signal(before[1].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, "another process", func() bool { return c.has(2, before[1].PID) })
		after := c.serving(t, 2)
		if after[0].PID != before[0].PID || after[1].ID != 2 || after[1].Generation != 1 || after[1].Restarts != round+1 {
			t.Errorf("before %+v, after %+v", before, after)
		}
	}
}

// The pause before the next attempt has an end, which operators see.
func TestWorkerInItsPauseHasTheTimeOfTheNextStart(t *testing.T) {
	c := startRunner(t, 2, "hesitant")
	victim := c.serving(t, 2)[1]
	write(t, c.folder, "crash")
	if err := redistest.Signal(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "a worker that rests", func() bool { return !c.slots[1].absent().Next.IsZero() })
	if w := c.slots[1].absent(); w.ID != 2 || w.State != Down || time.Until(w.Next).Round(time.Minute) != time.Hour {
		t.Errorf("got %+v", w)
	}
	if err := os.Remove(filepath.Join(c.folder, "crash")); err != nil {
		t.Fatal(err)
	}
	if err := c.RestartOne(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	c.serving(t, 2)
	if w := c.slots[1].absent(); !w.Next.IsZero() {
		t.Errorf("after the pause: %+v", w)
	}
}

// A counter that is missing in each pause hides a worker that dies again and again.
func TestWorkerInItsPauseKeepsItsRestarts(t *testing.T) {
	c := startRunner(t, 2, "hesitant")
	c.serving(t, 2)
	if err := c.RestartOne(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	write(t, c.folder, "crash")
	if err := redistest.Signal(c.serving(t, 2)[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "a worker that rests", func() bool { return !c.slots[1].absent().Next.IsZero() })
	if w := c.slots[1].absent(); w.State != Down || w.Restarts < 1 || w.Generation != 1 {
		t.Errorf("got %+v", w)
	}
}

// failing waits until worker 2 fails beside two that serve.
func (c *testRunner) failing(t *testing.T) []Worker {
	t.Helper()
	until(t, "a worker that fails", func() bool {
		all := c.Workers()
		return len(all) == 3 && all[1].State == Failing && all[1].Ended == "exit status 7" && all[1].PID == 0
	})
	return c.Workers()
}

// A request ends the pause of a failing worker.
func TestFailingWorkerLeavesTheOthersAloneAndIsTriedOnRequest(t *testing.T) {
	for name, again := range map[string]func(c *testRunner) error{
		"when asked":     func(c *testRunner) error { c.Again(); return nil },
		"by a restart":   func(c *testRunner) error { return c.Restart(t.Context()) },
		"by its own":     func(c *testRunner) error { return c.RestartOne(t.Context(), 2) },
		"after a failed": func(c *testRunner) error { c.Again(); return c.RestartOne(t.Context(), 2) },
	} {
		t.Run(name, func(t *testing.T) {
			c := startRunner(t, 3, "patient")
			before := c.serving(t, 3)
			write(t, c.folder, "crash")
			if err := redistest.Signal(before[1].PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if now := c.failing(t); now[0] != before[0] || now[2] != before[2] {
				t.Errorf("before %+v, after %+v", before, now)
			}
			if err := c.RestartOne(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "exit status 7") || strings.Contains(err.Error(), "old process") {
				t.Errorf("got %v", err)
			}
			c.failing(t)
			if err := os.Remove(filepath.Join(c.folder, "crash")); err != nil {
				t.Fatal(err)
			}
			if err := again(c); err != nil {
				t.Error(err)
			}
			c.serving(t, 3)
		})
	}
}

func TestFailingWorkerIsTriedAgainAfterAPause(t *testing.T) {
	c := startRunner(t, 3)
	before := c.serving(t, 3)
	write(t, c.folder, "crash")
	if err := redistest.Signal(before[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.failing(t)
	if err := os.Remove(filepath.Join(c.folder, "crash")); err != nil {
		t.Fatal(err)
	}
	if after := c.serving(t, 3); after[0] != before[0] || after[2] != before[2] {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestFiveDeathsInARowBeforeAWorkerIsReadyEndEverything(t *testing.T) {
	c := startRunner(t, 3)
	workers := c.serving(t, 3)
	write(t, c.folder, "crash")
	for _, w := range workers {
		if err := redistest.Signal(w.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	<-c.over
	var spent *SpentError
	if !errors.As(c.err, &spent) {
		t.Fatalf("got %v", c.err)
	}
	// More than 5 if the death of the others was not noticed yet.
	if spent.Deaths < 5 || spent.Status != 7 || !strings.Contains(spent.Error(), "exit status 7") {
		t.Errorf("got %+v", spent)
	}
	for _, w := range workers {
		if alive(w.PID) {
			t.Errorf("worker %d is left", w.ID)
		}
	}
}

// Four deaths, then it is ready, and twice over: the second row begins anew.
func TestWorkerThatWasReadyResetsTheBudget(t *testing.T) {
	c := startRunner(t, 1, "crash-gently")
	first := c.serving(t, 1)
	if err := redistest.Signal(first[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another process", func() bool { return c.has(1, first[0].PID) })
	if err := c.stop(); err != nil {
		t.Error(err)
	}
}

func TestPermanentFailureOfTheFirstStartIsNotRetried(t *testing.T) {
	c := startRunner(t, 2, "crash-2", "slow") // as long as none has been ready
	<-c.over
	var spent *SpentError
	if !errors.As(c.err, &spent) || spent.Deaths != 1 || spent.Status != 78 || spent.Worker != 2 {
		t.Errorf("got %v", c.err)
	}
}

// A worker that dies before it has taken its listener leaves it as it was: one
// that blocks would block the others, who share it.
func TestSharedListenerNeverBlocks(t *testing.T) {
	c := startRunner(t, 2, "crash")
	<-c.over
	c.listener.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("flags %x, %v", flags, err)
		}
	})
}

func TestNoDescriptorIsLeftOfADeadWorker(t *testing.T) {
	c := startRunner(t, 2)
	c.serving(t, 2)
	before := openFiles()
	for range 5 {
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.serving(t, 2)
	until(t, "as many open files as before", func() bool { return openFiles() <= before })
}

// openFiles is how many descriptors this process has.
func openFiles() (n int) {
	for fd := range uintptr(1024) {
		if _, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err == nil {
			n++
		}
	}
	return n
}

func TestPausesBetweenFailuresGrow(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond, 9: 25600 * time.Millisecond, 10: 30 * time.Second, 99: 30 * time.Second} {
		if got := backoff(failures); got != want {
			t.Errorf("after %d: %v, want %v", failures, got, want)
		}
	}
}

func TestRollingRestartReplacesOneAfterTheOther(t *testing.T) {
	c := startRunner(t, 3)
	before := c.serving(t, 3)
	most, over := 0, make(chan error, 1)
	go func() { over <- c.Restart(t.Context()) }()
	for done := false; !done; time.Sleep(time.Millisecond) {
		ready := 0
		all := c.Workers()
		for _, w := range all {
			if w.State == Ready {
				ready++
			}
		}
		if most = max(most, len(all)); ready < 3 {
			t.Fatalf("only %d are ready: %+v", ready, all)
		}
		select {
		case err := <-over:
			if done = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	after := c.serving(t, 3)
	for i, w := range after {
		if w.ID != i+1 || w.Generation != 2 || w.PID == before[i].PID || w.Restarts != 1 {
			t.Errorf("before %+v, after %+v", before[i], w)
		}
	}
	if most > 4 {
		t.Errorf("%d at a time", most)
	}
}

func TestOneWorkerIsRestartedInItsGeneration(t *testing.T) {
	c := startRunner(t, 2)
	before := c.serving(t, 2)
	if err := c.RestartOne(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	after := c.serving(t, 2)
	if after[0].PID != before[0].PID || after[1].PID == before[1].PID || after[1].Generation != 1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if err := c.RestartOne(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "no worker 3") {
		t.Errorf("got %v", err)
	}
}

func TestReplacementThatIsNeverReadyLeavesTheOldOne(t *testing.T) {
	c := startRunner(t, 2)
	before := c.serving(t, 2)
	write(t, c.folder, "crash")
	err := c.Restart(t.Context())
	var spent *SpentError
	if !errors.As(err, &spent) || !strings.Contains(err.Error(), "the old process continues to serve") {
		t.Fatalf("got %v", err)
	}
	if after := c.serving(t, 2); after[0] != before[0] || after[1] != before[1] {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// Another attempt would read the same files, and exit with the same status.
func TestRestartThatFailsForGoodIsNotRetried(t *testing.T) {
	c := startRunner(t, 2)
	before := c.serving(t, 2)
	write(t, c.folder, "crash-2")
	err := c.Restart(t.Context())
	var spent *SpentError
	if !errors.As(err, &spent) || spent.Deaths != 1 || spent.Status != 78 || !strings.Contains(err.Error(), "the old process continues to serve") {
		t.Fatalf("got %v", err)
	}
	if after := c.serving(t, 2); after[1] != before[1] {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// rests waits until worker id waits for its next attempt.
func (c *testRunner) rests(t *testing.T, id int) {
	t.Helper()
	until(t, "a worker that rests", func() bool { return !c.slots[id-1].absent().Next.IsZero() })
}

// An attempt in a new generation reads files. A later one, which nobody has
// requested, must not.
func TestFailedRestartLeavesAWorkerWithoutAProcessInItsGeneration(t *testing.T) {
	c := startRunner(t, 2, "hesitant")
	victim := c.serving(t, 2)[0]
	write(t, c.folder, "crash")
	if err := redistest.Signal(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.rests(t, 1)
	if err := c.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Fatalf("got %v", err)
	}
	c.rests(t, 1)
	if err := os.Remove(filepath.Join(c.folder, "crash")); err != nil {
		t.Fatal(err)
	}
	if err := c.RestartOne(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if now := c.serving(t, 2)[0]; now.Generation != 1 {
		t.Errorf("got %+v", now)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range c.serving(t, 2) {
		if w.Generation != 3 {
			t.Errorf("after a restart: %+v", w)
		}
	}
}

// A new generation that cannot start would end a program whose first generation
// can.
func TestRestartDuringTheFirstStartWaitsForItsEnd(t *testing.T) {
	c := startRunner(t, 2, "hesitant", "slow")
	until(t, "two processes", func() bool { return len(c.alive()) == 2 })
	for _, p := range c.alive() {
		if err := redistest.Signal(p.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	c.rests(t, 1)
	c.rests(t, 2)
	if err := os.Remove(filepath.Join(c.folder, "slow")); err != nil {
		t.Fatal(err)
	}
	restarted := make(chan error, 1)
	go func() { restarted <- c.RestartNext(t.Context()) }()
	for id := range 2 {
		if err := c.RestartOne(t.Context(), id+1); err != nil {
			t.Fatal(err)
		}
		if w := c.serving(t, id+1)[0]; id == 0 && w.Generation != 1 {
			t.Errorf("got %+v", w)
		}
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	for _, w := range c.serving(t, 2) {
		if w.Generation != 2 {
			t.Errorf("after the start: %+v", w)
		}
	}
}

func TestOnlyOneRestartAtATime(t *testing.T) {
	c := startRunner(t, 1)
	c.serving(t, 1)
	write(t, c.folder, "slow")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan error, 1)
	go func() { first <- c.Restart(ctx) }()
	until(t, "a replacement", func() bool { return len(c.Workers()) == 2 })
	if err := c.RestartOne(t.Context(), 1); !errors.Is(err, ErrRestarting) {
		t.Errorf("got %v", err)
	}
	if err := c.stop(); err != nil {
		t.Error(err)
	}
	if err := <-first; err == nil || !strings.Contains(err.Error(), "all workers are ending") || strings.Contains(err.Error(), "old process") {
		t.Errorf("of a restart that was cut off: %v", err)
	}
}

// A process that starts may need all of its grace period to end.
func TestStopDuringARestartEndsTheOldProcessAtOnce(t *testing.T) {
	c := startRunner(t, 1)
	old := c.serving(t, 1)[0]
	write(t, c.folder, "slow")
	write(t, c.folder, "stubborn")
	restarted := make(chan error, 1)
	go func() { restarted <- c.Restart(t.Context()) }()
	until(t, "a process beside the old one", func() bool {
		_, err := os.Stat(filepath.Join(c.folder, "waits"))
		return err == nil
	})
	c.end()
	isOld := func(p *Process) bool { return p.PID() == old.PID }
	until(t, "the end of the old process", func() bool { return !slices.ContainsFunc(c.alive(), isOld) })
	if len(c.alive()) != 1 {
		t.Errorf("the old process has ended after the new one; left: %v", c.Workers())
	}
	if err := c.stop(); err == nil || !strings.Contains(err.Error(), "no exit within 2s") || len(c.alive()) > 0 {
		t.Errorf("got %v", err)
	}
	if err := <-restarted; err == nil || !strings.Contains(err.Error(), "all workers are ending") {
		t.Errorf("of the restart: %v", err)
	}
}

// Its number would have no process until the restart is given up.
func TestWorkerThatDiesDuringItsRestartIsReplacedAtOnce(t *testing.T) {
	c := startRunner(t, 1)
	old := c.serving(t, 1)[0]
	write(t, c.folder, "hesitant")
	write(t, c.folder, "crash")
	restarted := make(chan error, 1)
	go func() { restarted <- c.Restart(t.Context()) }()
	until(t, "the pause after a failed attempt", func() bool {
		_, err := os.Stat(filepath.Join(c.folder, "crashed"))
		return err == nil && len(c.alive()) == 1
	})
	if err := os.Remove(filepath.Join(c.folder, "crash")); err != nil {
		t.Fatal(err)
	}
	// An earlier death is followed by a pause, too. The supervisor counts from when it has
	// noticed the readiness, which a busy machine delays.
	time.Sleep(time.Until(old.Since.Add(2 * stableTime)))
	if err := redistest.Signal(old.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another process", func() bool { return c.has(1, old.PID) })
	if now := c.serving(t, 1)[0]; now.Generation != 1 || now.Restarts != 1 {
		t.Errorf("it was replaced by %+v", now)
	}
	if err := <-restarted; err == nil || !strings.Contains(err.Error(), "exit status 7") || strings.Contains(err.Error(), "old process") {
		t.Errorf("of the restart: %v", err)
	}
}

func TestStopBeforeAnyWorkerIsReadyEndsThemAll(t *testing.T) {
	c := startRunner(t, 3, "slow")
	until(t, "three processes", func() bool { return len(c.Workers()) == 3 })
	started := c.Workers()
	if err := c.stop(); err != nil {
		t.Error(err)
	}
	for _, w := range started {
		if alive(w.PID) {
			t.Errorf("%d is left", w.PID)
		}
	}
}

func TestWorkerThatCutsSomethingOffIsNamed(t *testing.T) {
	c := startRunner(t, 2, "cut")
	c.serving(t, 2)
	if err := c.stop(); err == nil || !strings.Contains(err.Error(), "worker 1 (pid") || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("got %v", err)
	}
}

func TestWorkerThatDoesNotEndIsKilled(t *testing.T) {
	c := startRunner(t, 1, "stubborn")
	w := c.serving(t, 1)
	began := time.Now()
	err := c.stop()
	if err == nil || !strings.Contains(err.Error(), "no exit within 2s") || alive(w[0].PID) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took < 2*time.Second || took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestWorkerHasTheTimeToEndThatItWasGiven(t *testing.T) {
	c := startRunner(t, 1, "stubborn")
	w := c.serving(t, 1)
	c.alive()[0].SetGrace(300 * time.Millisecond)
	if err := c.stop(); err == nil || !strings.Contains(err.Error(), "no exit within 300ms") || alive(w[0].PID) {
		t.Errorf("got %v", err)
	}
}

func TestAbortEndsAtOnce(t *testing.T) {
	c := startRunner(t, 2, "stubborn")
	workers := c.serving(t, 2)
	for _, p := range c.alive() {
		p.SetGrace(time.Hour)
	}
	began := time.Now()
	c.Abort()
	<-c.over
	if took := time.Since(began); took > time.Minute || alive(workers[0].PID) || alive(workers[1].PID) {
		t.Errorf("it took %v", took)
	}
}

// supervisorApart is a supervisor in a process of its own, with its two workers.
func supervisorApart(t *testing.T) (cmd *exec.Cmd, a, b int) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFolder+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, &a, &b); err != nil {
		t.Fatal(err)
	}
	return cmd, a, b
}

func TestWorkersEndWhenTheirSupervisorIsKilled(t *testing.T) {
	cmd, a, b := supervisorApart(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, "the end of both workers", func() bool { return !alive(a) && !alive(b) })
}

func TestWhatIsDoneOnceIsTakenOverFromTheDead(t *testing.T) {
	c := startRunner(t, 3, "primary")
	c.serving(t, 3)
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.serving(t, 3)
	text, err := os.ReadFile(filepath.Join(c.folder, "primary"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "begun in 1\nbegun in 1\ndone in 1\nbegun in 2\ndone in 2\n"
	if !bytes.Equal(text, []byte(want)) {
		t.Errorf("got:\n%swant:\n%s", text, want)
	}
}

func TestEnvironmentThatIsNotOfASupervisorIsRefused(t *testing.T) {
	for environ, want := range map[string]string{
		"MEGA_WORKER_FD=98":           "98 is not a line to a supervisor: descriptor 98 was not inherited",
		"MEGA_WORKER_FD=x":            "not a number",
		"MEGA_WORKER_ID=0":            "not a number",
		"MEGA_WORKER_LISTENERS=web":   "not name=descriptor",
		"MEGA_WORKER_LISTENERS=web=1": "not name=descriptor",
		"MEGA_WORKER_LISTENERS=a=97":  "97 of the a was not inherited",
	} {
		if _, err := Inherit([]string{environ}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", environ, err, want)
		}
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	fd, err := unix.Dup(int(file.Fd())) // Inherit closes it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Inherit([]string{fmt.Sprint("MEGA_WORKER_FD=", fd)}); err == nil || !strings.Contains(err.Error(), "is not a line to a supervisor") {
		t.Errorf("a file: %v", err)
	}
	if in, err := Inherit([]string{"HOME=/"}); in != nil || err != nil {
		t.Errorf("got %v, %v", in, err)
	}
	in, err := Inherit([]string{"MEGA_WORKER_ID=3"})
	if err != nil || in.ID != 3 || in.Line != nil {
		t.Errorf("got %+v, %v", in, err)
	}
	if _, err := in.Listen("web"); err == nil {
		t.Error("a listener came from nowhere")
	}
}
