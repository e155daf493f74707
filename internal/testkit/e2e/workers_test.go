//go:build linux || darwin

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// replaceBoth kills the two workers of a program, one after the other, and waits for those
// in their place. ready is the number of records of ready workers so far; the result is
// the new number.
func (c *child) replaceBoth(t *testing.T, ready int) int {
	t.Helper()
	for range 2 {
		kill(t, c.records("worker ready")[ready-2].PID)
		ready++
		c.await(t, "worker ready", ready)
	}
	return ready
}

// startWorkers starts a program with that many workers, each with locks and
// messages of its own.
func startWorkers(t *testing.T, name, n string, environ ...string) *child {
	t.Helper()
	return startChild(t, name, workersEnviron(n, environ...)...)
}

// workersEnviron returns the environment of a child with n workers.
func workersEnviron(n string, environ ...string) []string {
	return append([]string{
		"MEGA_CLUSTER_WORKERS=" + n, "MEGA_LOCK_DRIVER=memory", "MEGA_BUS_DRIVER=memory", "GORACE=atexit_sleep_ms=0",
	}, environ...)
}

// record is a line of the log.
type record struct {
	Msg    string
	Worker int
	PID    int
	Key    string
	Report struct {
		PID  int
		Ops  string
		Apps []struct{ URL string }
	}
}

// records are the lines of the log so far that say msg.
func (c *child) records(msg string) (all []record) {
	for line := range strings.Lines(c.String()) {
		var r record
		if json.Unmarshal([]byte(line), &r) == nil && r.Msg == msg {
			all = append(all, r)
		}
	}
	return all
}

// hasExited reports whether the log has the death of a worker.
func (c *child) hasExited(pid int) bool {
	all := append(c.records("worker exited"), c.records("worker exited with work cut off")...)
	return slices.ContainsFunc(all, func(r record) bool { return r.PID == pid })
}

// await waits until the log says msg n times in all.
func (c *child) await(t *testing.T, msg string, n int) []record {
	t.Helper()
	for len(c.records(msg)) < n {
		if _, ok := <-c.lines; !ok {
			t.Fatalf("the child did not say %q %d times:\n%s", msg, n, c)
		}
	}
	return c.records(msg)
}

// follow reads what the child says without waiting for it.
func (c *child) follow() {
	go func() {
		for range c.lines {
		}
	}()
}

func (c *child) eventually(t *testing.T, msg string, n int) []record {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(c.records(msg)) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the child did not say %q %d times:\n%s", msg, n, lastLines(c.String(), 40))
		}
	}
	return c.records(msg)
}

func (r record) address() string { return strings.TrimPrefix(r.Report.Apps[0].URL, "http://") }

func running(pid int) bool { return redistest.Signal(pid, 0) == nil }

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := redistest.Signal(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// The promise of workers: new ones take the place of the old ones, and whole
// generations go by, while nobody who connects is refused, or connects and is
// not answered.
func TestRollingRestartUnderLoadRefusesAndLosesNoConnection(t *testing.T) {
	const workers = 2
	c := startWorkers(t, "counter", "2", "MEGA_LOG_LEVEL=info")
	l := startLoad(c.await(t, "boot.report", 1)[0].address())
	c.follow()
	generations := max(suite.Scaled(10), 3)
	for i := range generations {
		time.Sleep(20 * time.Millisecond) // for the load to be on the new ones, too
		c.signal(t, syscall.SIGUSR2)
		c.eventually(t, "worker restart finished", i+1)
	}
	if n := l.refused.Load(); n > 0 {
		t.Errorf("%d connections were refused", n)
	}
	ended := len(c.records("stopped"))
	c.signal(t, syscall.SIGTERM)
	status := c.end(t)
	l.end()
	if status != 0 {
		t.Errorf("exit status %d:\n%s", status, lastLines(c.String(), 20))
	}
	if err := l.lost(); err != nil || l.answered.Load() == 0 {
		t.Errorf("%d answered, %d raced with the end of an idle connection; lost: %v", l.answered.Load(), l.raced.Load(), err)
	}
	if ready := len(c.records("worker ready")); ready != workers*(generations+1) || ended != workers*generations {
		t.Errorf("%d workers were ready, %d stopped, in %d generations", ready, ended, generations+1)
	}
}

// Whoever ends a group of processes, as systemd does, tells workers and
// supervisor in any order.
func TestNothingIsLostWhenAllProcessesShutDown(t *testing.T) {
	for round := range max(suite.Scaled(10), 2) {
		c := startWorkers(t, "counter", "2", "MEGA_LOG_LEVEL=info")
		l := startLoad(c.await(t, "boot.report", 1)[0].address())
		told := []int{c.cmd.Process.Pid}
		for _, w := range c.await(t, "worker ready", 2) {
			told = append(told, w.PID)
		}
		rand.Shuffle(len(told), func(i, k int) { told[i], told[k] = told[k], told[i] })
		c.follow()
		l.serves(t)
		for _, pid := range told {
			_ = redistest.Signal(pid, syscall.SIGTERM)
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		}
		status := c.end(t)
		l.end()
		if err := l.lost(); err != nil || status != 0 || l.answered.Load() == 0 {
			t.Errorf("round %d: exit status %d, %d answered; lost: %v\n%s", round, status, l.answered.Load(), err, lastLines(c.String(), 12))
		}
	}
}

func TestKilledWorkerIsReplacedAndTheOthersServe(t *testing.T) {
	c := startWorkers(t, "settings", "2")
	report := c.await(t, "boot.report", 1)[0]
	defer http.DefaultClient.CloseIdleConnections()
	if report.Report.PID != c.cmd.Process.Pid {
		t.Errorf("the report is of %d, not of the supervisor", report.Report.PID)
	}
	kill(t, c.await(t, "worker ready", 2)[0].PID)
	w, err := http.Get("http://" + report.address())
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Body.Close()
	if again := c.await(t, "worker ready", 3); again[2].Worker != again[0].Worker || again[2].PID == again[0].PID {
		t.Errorf("got %+v", again)
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// Connections wait in the shared queue for whoever comes next: they are lost
// with a worker that is killed, but never refused.
func TestNobodyIsRefusedWhileWorkersAreKilledAndReplaced(t *testing.T) {
	c := startWorkers(t, "counter", "2", "MEGA_LOG_LEVEL=info")
	l := startLoad(c.await(t, "boot.report", 1)[0].address())
	c.await(t, "worker ready", 2)
	c.follow()
	var killed []int
	for round := range max(suite.Scaled(30), 6) {
		ready := c.records("worker ready")
		switch victim := ready[len(ready)-1-rand.IntN(2)].PID; round % 3 {
		case 0:
			if redistest.Signal(victim, syscall.SIGKILL) == nil { // it may be gone already
				killed = append(killed, victim)
			}
		case 1:
			c.signal(t, syscall.SIGUSR2)
		default:
			_ = redistest.Signal(victim, syscall.SIGTERM)
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
	}
	if n := l.refused.Load(); n > 0 || l.answered.Load() == 0 {
		t.Errorf("%d were refused, %d answered", n, l.answered.Load())
	}
	// The death of a worker that is noticed after the SIGTERM is work that is cut off.
	// One that had ended before its SIGKILL may have no record.
	for _, pid := range killed {
		for began := time.Now(); !c.hasExited(pid) && time.Since(began) < 5*time.Second; {
			time.Sleep(time.Millisecond)
		}
	}
	c.signal(t, syscall.SIGTERM)
	status := c.end(t)
	l.end()
	if status != 0 {
		t.Errorf("exit status %d:\n%s", status, lastLines(c.String(), 20))
	}
	for _, w := range c.records("worker ready") {
		if running(w.PID) {
			t.Errorf("worker %d, pid %d, is left", w.Worker, w.PID)
		}
	}
}

// The delay is for those who send requests to the program. As long as others
// serve, they need not know that a worker ends.
func TestDelayOfTheShutdownIsForTheWholeProgram(t *testing.T) {
	c := startWorkers(t, "settings", "2", "MEGA_SHUTDOWN_DELAY=1s")
	c.await(t, "boot.report", 1)
	began := time.Now()
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 1)
	if n := len(c.records("shutdown delayed")); n > 0 {
		t.Errorf("%d of those that were replaced waited, %v in all", n, time.Since(began))
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 || len(c.records("shutdown delayed")) != 2 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// What a worker was asked before its supervisor died, it answers.
func TestWorkersFinishAndEndWhenTheSupervisorIsKilled(t *testing.T) {
	c := startWorkers(t, "slow", "2", "MEGA_LOCK_DRIVER=cluster", "MEGA_BUS_DRIVER=cluster")
	report, workers := c.await(t, "boot.report", 1)[0], c.await(t, "worker ready", 2)
	answered := make(chan error, 1)
	go func() {
		w, err := http.Get("http://" + report.address())
		if err == nil {
			err = w.Body.Close()
		}
		answered <- err
	}()
	defer http.DefaultClient.CloseIdleConnections()
	c.until(t, "in request")
	kill(t, c.cmd.Process.Pid)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	c.follow()
	for deadline := time.Now().Add(20 * time.Second); running(workers[0].PID) || running(workers[1].PID); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a worker is left:\n%s", c)
		}
	}
	c.eventually(t, "stopped", 2) // in order
	_ = c.cmd.Wait()
}

func TestWorkersThatCannotStartEndTheProgramWithAPanel(t *testing.T) {
	c := startWorkers(t, "broken", "2")
	status := c.end(t)
	text := c.String()
	if status != 70 || !strings.Contains(text, "(cluster.worker_died)") || !strings.Contains(text, "exit status 70") ||
		!strings.Contains(text, "5 times in a row") || !strings.Contains(text, "MEGA_CLUSTER_WORKERS") {
		t.Errorf("exit status %d:\n%s", status, text)
	}
}

func TestProgramThatAWorkerStartsIsNoWorker(t *testing.T) {
	c := startWorkers(t, "nesting", "2")
	c.await(t, "boot.report", 1)
	c.signal(t, syscall.SIGTERM)
	if status, text := c.end(t), c.String(); status != 0 || !strings.Contains(text, `nested "" memory`) {
		t.Errorf("exit status %d:\n%s", status, text)
	}
}

func TestSignalWhileWorkersStartEndsThem(t *testing.T) {
	for _, phase := range []string{"primary", "start", "run"} {
		t.Run(phase, func(t *testing.T) {
			c := startWorkers(t, phase, "2")
			c.until(t, "in "+phase)
			began := time.Now()
			c.signal(t, syscall.SIGTERM)
			if status := c.end(t); status != 0 || strings.Contains(c.String(), "it went on") || !strings.Contains(c.String(), "out of "+phase) {
				t.Errorf("exit status %d:\n%s", status, c)
			}
			if took := time.Since(began); took > 25*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestHangupIsCheckedOnceAndPassedOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mega.config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {level: info}\n")
	c := startWorkers(t, "settings", "2", "MEGA_CONFIG="+file)
	c.await(t, "boot.report", 1)
	write("log: {level: loud}\n")
	c.signal(t, syscall.SIGHUP)
	refused := c.await(t, "configuration reload refused", 1)
	write("log: {level: debug}\n")
	c.signal(t, syscall.SIGHUP)
	changed := c.await(t, "configuration changed", 2)
	if changed[0].Worker+changed[1].Worker != 1+2 {
		t.Errorf("got %+v", changed)
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
	if refused = c.records(refused[0].Msg); len(refused) != 1 || refused[0].Worker != 0 {
		t.Errorf("who refused: %+v", refused)
	}
}

func TestWhatThePrimaryDoesIsTakenOverByAnotherWorker(t *testing.T) {
	dir := t.TempDir()
	c := startWorkers(t, "migrating", "2", "MIGRATIONS="+dir)
	begun := c.await(t, "migrating", 1)[0]
	kill(t, begun.PID)
	if again := c.await(t, "migrating", 2)[1]; again.PID == begun.PID {
		t.Errorf("again by the dead: %+v", again)
	}
	if served := c.records("worker ready"); len(served) > 0 {
		t.Errorf("before it was done, %+v", served)
	}
	if err := os.WriteFile(filepath.Join(dir, "done"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.await(t, "boot.report", 1)
	if n := len(c.records("migrating")); n != 2 {
		t.Errorf("it was done %d times", n)
	}
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 1)
	if n := len(c.records("migrating")); n != 3 {
		t.Errorf("by the next generation, %d times", n-2)
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// A new process may take minutes to start.
func TestDeathOfAWorkerDuringItsRestartIsLoggedAtOnce(t *testing.T) {
	dir := t.TempDir()
	done := filepath.Join(dir, "done")
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := startWorkers(t, "migrating", "2", "MIGRATIONS="+dir)
	c.await(t, "boot.report", 1)
	if err := os.Remove(done); err != nil {
		t.Fatal(err)
	}
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "migrating", 2)
	old := slices.IndexFunc(c.records("worker ready"), func(r record) bool { return r.Worker == 1 })
	kill(t, c.records("worker ready")[old].PID)
	c.await(t, "worker exited", 1)
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.await(t, "worker restart finished", 1)
	if n := len(c.records("worker exited")); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

func TestProgramWhoseWorkerCutsARequestOffEndsWithAnError(t *testing.T) {
	c := startWorkers(t, "stuck", "2", "MEGA_SHUTDOWN_TIMEOUT=1s")
	url := "http://" + c.await(t, "boot.report", 1)[0].address()
	go func() {
		if w, err := http.Get(url); err == nil {
			_ = w.Body.Close()
		}
	}()
	defer http.DefaultClient.CloseIdleConnections()
	c.until(t, "in request")
	c.signal(t, syscall.SIGTERM)
	status := c.end(t)
	if all := c.records("stopped with errors"); status != 1 || !slices.ContainsFunc(all, func(r record) bool { return r.Worker == 0 }) {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

func TestSecondSignalEndsWorkersAtOnceWithTheirStacks(t *testing.T) {
	c := startWorkers(t, "stuck", "2")
	report, workers := c.await(t, "boot.report", 1)[0], c.await(t, "worker ready", 2)
	go func() {
		if w, err := http.Get("http://" + report.address()); err == nil {
			_ = w.Body.Close()
		}
	}()
	defer http.DefaultClient.CloseIdleConnections()
	c.until(t, "in request")
	c.signal(t, syscall.SIGTERM)
	c.until(t, `"stopping"`)
	time.Sleep(300 * time.Millisecond) // two that come together are one request
	began := time.Now()
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 128+int(syscall.SIGTERM) || !strings.Contains(c.String(), "stuckHandler") {
		t.Errorf("exit status %d:\n%s", status, lastLines(c.String(), 50))
	}
	if took := time.Since(began); took > 25*time.Second || running(workers[0].PID) || running(workers[1].PID) {
		t.Errorf("after %v: %v, %v", took, running(workers[0].PID), running(workers[1].PID))
	}
}

// A worker that read another place for locks from a file would hold what others
// hold, too.
func TestWorkerDoesNotStartWithOtherLocksThanTheRest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mega.config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cluster: {workers: 2}\n")
	c := startChild(t, "settings", "MEGA_CONFIG="+file)
	before := c.await(t, "worker ready", 2)
	c.await(t, "boot.report", 1)
	write("cluster: {workers: 2}\nlock: {driver: memory}\n")
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart failed", 1)
	text := c.String()
	for _, want := range []string{"(cluster.changed)", "locks would use the driver memory, but the other workers use cluster", "lock.driver = memory  (", filepath.Base(file) + ":2)", "stop the whole program"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	for _, w := range before {
		if !running(w.PID) {
			t.Errorf("worker %d does not go on", w.Worker)
		}
	}
	write("cluster: {workers: 2}\nname: other\n") // is in the lock of a leader
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart failed", 2)
	if want := "name = other  ("; !strings.Contains(c.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, c)
	}
	write("cluster: {workers: 2}\nlog: {level: warn}\n")
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 1)
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// A restart of the workers does not apply the supervisor's keys, although the new workers
// have read them.
func TestReloadReportsTheKeysThatOnlyARestartOfTheProgramApplies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mega.config.yaml")
	write := func(hang, format, ttl string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("cluster: {hang_timeout: "+hang+"}\nlog: {format: "+format+"}\nlock: {ttl: "+ttl+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("30s", "json", "10s")
	c := startWorkers(t, "settings", "2", "MEGA_CONFIG="+file, "MEGA_LOG_LEVEL=info", "MEGA_LOG_FORMAT=")
	c.await(t, "boot.report", 1)
	write("40s", "auto", "20s") // auto is json without a terminal
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 1)
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration reloaded without changes", 2) // in the workers
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
	all := c.records("configuration changed; restart the program to apply it")
	if len(all) != 2 || all[0].Key != "cluster.hang_timeout" || all[1].Key != "log.format" || all[0].Worker+all[1].Worker != 0 {
		t.Errorf("logged %+v:\n%s", all, c)
	}
}

// The workers cannot move: their supervisor has opened the address.
func TestNewWorkersReportAChangedAddress(t *testing.T) {
	addr := redistest.FreeAddr(t)
	file := filepath.Join(t.TempDir(), "mega.config.yaml")
	write := func(addr string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("apps: {main: {addr: \""+addr+"\"}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(addr)
	c := startWorkers(t, "settings", "2", "MEGA_CONFIG="+file, "MEGA_APPS_MAIN_ADDR=")
	c.await(t, "boot.report", 1)
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 1)
	const changed = "listen address changed; restart the program to apply it"
	if all := c.records(changed); len(all) > 0 {
		t.Errorf("without a change: %+v", all)
	}
	write(strings.Replace(addr, "127.0.0.1", "0.0.0.0", 1))
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 2)
	if n := strings.Count(c.String(), changed); n != 2 || !strings.Contains(c.String(), `"listening":"`+addr+`"`) {
		t.Errorf("%d workers report it:\n%s", n, c)
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// The signal may arrive while the worker waits for the answer to its report.
func TestStopOfOneWorkerLogsNoErrorAndReadinessPrecedesTheReport(t *testing.T) {
	c := startWorkers(t, "settings", "2")
	c.await(t, "boot.report", 1)
	ready := c.records("worker ready")
	if len(ready) != 2 {
		t.Fatalf("%d workers were said to be ready before the report:\n%s", len(ready), c)
	}
	if err := redistest.Signal(ready[0].PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.await(t, "worker ready", 3)
	if !strings.Contains(c.String(), "worker exited") || strings.Contains(c.String(), `"ERROR"`) {
		t.Errorf("logged:\n%s", c)
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// Some of the workers may have been replaced by the build before the signal.
func TestRestartThatIsWantedDuringAnotherComesAfterIt(t *testing.T) {
	c := startWorkers(t, "settings", "2")
	c.await(t, "boot.report", 1)
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart started", 1)
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 2)
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 || len(c.records("worker restart failed")) > 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// A worker that is ended needs no new configuration: the shutdown is no error.
func TestShutdownDuringAReloadIsNoError(t *testing.T) {
	c := startWorkers(t, "settings", "2", "MEGA_LOG_LEVEL=info")
	c.await(t, "boot.report", 1)
	stopped := c.await(t, "worker ready", 2)[0].PID
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := redistest.Signal(stopped, s); err != nil {
			t.Fatal(err)
		}
		if s == syscall.SIGSTOP {
			c.signal(t, syscall.SIGHUP)
			c.await(t, "configuration reloaded without changes", 1) // by the other worker
			c.signal(t, syscall.SIGTERM)
			c.await(t, "stopping", 1)
			time.Sleep(50 * time.Millisecond)
		}
	}
	if status := c.end(t); status != 0 || strings.Contains(c.String(), `"level":"ERROR"`) {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// Only SIGHUP and SIGUSR2 read files: a worker that replaces a dead one has the
// configuration of the others, whatever is in the file by then.
func TestReplacedWorkerHasTheConfigurationInForce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mega.config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cluster: {workers: 2}\nlog: {level: info}\nlock: {ttl: 20s}\n")
	c := startChild(t, "settings", "MEGA_CONFIG="+file)
	report := c.await(t, "boot.report", 1)[0]
	defer http.DefaultClient.CloseIdleConnections()
	ready := 2
	inForce := func(when, level, ttl string) {
		t.Helper()
		for _, w := range c.await(t, "worker ready", ready)[ready-2:] {
			if got := c.setting(t, report, w.Worker); got["log.level"] != level || got["lock.ttl"] != ttl {
				t.Errorf("%s: worker %d has %v, want %s and %s", when, w.Worker, got, level, ttl)
			}
		}
	}
	write("cluster: {workers: 2}\nlog: {level: debug}\nlock: {ttl: 30s}\n")
	ready = c.replaceBoth(t, ready)
	inForce("after crashes", "info", "20s")
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration changed", 2)
	inForce("after SIGHUP", "debug", "20s")
	write("cluster: {workers: [\n")
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration reload refused", 1)
	ready = c.replaceBoth(t, ready)
	ready = c.replaceBoth(t, ready)
	inForce("after a file that SIGHUP has refused, and crashes", "debug", "20s")
	write("cluster: {workers: 2}\nlog: {level: warn}\nlock: {ttl: 40s}\n")
	c.signal(t, syscall.SIGUSR2)
	ready += 2
	c.await(t, "worker restart finished", 1)
	inForce("after SIGUSR2", "warn", "40s")
	write("cluster: {workers: [\n")
	ready = c.replaceBoth(t, ready)
	inForce("after crashes of the new generation", "warn", "40s")
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 || len(c.records("worker exited before it was ready")) > 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// A restart may last for minutes. A reload meanwhile applies to all processes.
func TestReloadReachesAWorkerThatStarts(t *testing.T) {
	dir := t.TempDir()
	file, done := filepath.Join(dir, "mega.config.yaml"), filepath.Join(dir, "done")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(done, "")
	write(file, "cluster: {workers: 2}\nlog: {level: info}\nlock: {ttl: 20s}\n")
	c := startChild(t, "migrating", "MEGA_CONFIG="+file, "MIGRATIONS="+dir)
	report := c.await(t, "boot.report", 1)[0]
	defer http.DefaultClient.CloseIdleConnections()
	if err := os.Remove(done); err != nil {
		t.Fatal(err)
	}
	write(file, "cluster: {workers: 2}\nlog: {level: info}\nlock: {ttl: 30s}\n")
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "migrating", 2)
	write(file, "cluster: {workers: 2}\nlog: {level: debug}\nlock: {ttl: 40s}\n")
	c.signal(t, syscall.SIGHUP)
	c.await(t, "configuration changed", 2) // in the old workers
	write(done, "")
	c.await(t, "worker restart finished", 1)
	for _, w := range c.records("worker ready")[2:] {
		if got := c.setting(t, report, w.Worker); got["log.level"] != "debug" || got["lock.ttl"] != "30s" {
			t.Errorf("worker %d has %v", w.Worker, got)
		}
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// The folder of a release is often replaced as a whole. SIGHUP and SIGUSR2 read the
// same files then.
func TestNewWorkersReadTheFolderThatHasReplacedTheirs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "release")
	write := func(text string) {
		t.Helper()
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "mega.config.yaml"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("lock: {ttl: 20s}\n")
	t.Chdir(dir)
	c := startWorkers(t, "settings", "2")
	report, ready := c.await(t, "boot.report", 1)[0], c.records("worker ready")
	defer http.DefaultClient.CloseIdleConnections()
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	write("lock: {ttl: 30s}\n")
	c.signal(t, syscall.SIGUSR2)
	c.await(t, "worker restart finished", 1)
	if got := c.setting(t, report, 1)["lock.ttl"]; got != "30s" {
		t.Errorf("a new worker has %s", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	kill(t, c.records("worker ready")[len(ready)].PID)
	c.await(t, "worker ready", 5) // without a folder
	if got := c.setting(t, report, 1)["lock.ttl"]; got != "30s" {
		t.Errorf("its replacement has %s", got)
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// setting asks a worker for its configuration.
func (c *child) setting(t *testing.T, report record, worker int) map[string]string {
	t.Helper()
	w, err := http.Get(fmt.Sprintf("%s/ops/config?worker=%d", report.Report.Ops, worker))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	var all []struct{ Key, Value string }
	if err := json.NewDecoder(w.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, s := range all {
		values[s.Key] = s.Value
	}
	return values
}

// A worker that cannot start is no reason to end those that serve.
func TestWorkerThatCannotStartDoesNotEndThoseThatServe(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	c := startChild(t, "fragile", "MEGA_CLUSTER_WORKERS=3", "FRAGILE="+broken)
	before, report := c.await(t, "worker ready", 3), c.await(t, "boot.report", 1)[0]
	defer http.DefaultClient.CloseIdleConnections()
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, before[1].PID)
	c.await(t, "worker failing", 1)
	if !running(before[0].PID) || !running(before[2].PID) || !strings.Contains(c.String(), `"ended":"exit status 70"`) {
		t.Fatalf("the others do not go on:\n%s", c)
	}
	w, err := http.Get(report.Report.Ops + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	var is struct{ Degraded []string }
	if err := json.NewDecoder(w.Body).Decode(&is); err != nil || w.StatusCode != http.StatusOK || !slices.Contains(is.Degraded, fmt.Sprintf("worker %d: failing: exit status 70", before[1].Worker)) {
		t.Errorf("%s, %v: %+v", w.Status, err, is)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	c.signal(t, syscall.SIGHUP)
	c.await(t, "worker ready", 4)
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}
