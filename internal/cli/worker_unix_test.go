//go:build linux || darwin

package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/failure"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// withWorkers is a program with two workers, each with locks and messages of its own.
func (s site) withWorkers(t *testing.T, kind string) (c *child, environ []string) {
	t.Helper()
	return s.sharing(t, kind, "MEGA_LOCK_DRIVER=memory", "MEGA_BUS_DRIVER=memory")
}

// sharing is a program with two workers, which share their locks and messages.
func (s site) sharing(t *testing.T, kind string, more ...string) (c *child, environ []string) {
	t.Helper()
	environ = append(s.configured(t, "name: shop\n"), more...)
	c = startChild(t, kind, append(environ, "MEGA_CLUSTER_WORKERS=2")...)
	c.until(t, "boot.report")
	return c, environ
}

// quits ends a program whose output nobody reads any more.
func (c *child) quits(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, status := c.end(t); status != failure.ExitOK {
		t.Errorf("exit status %d:\n%s", status, rest)
	}
}

// workersOf are those that worker ls --json lists.
func workersOf(t *testing.T, environ []string, kind string) (all []worker) {
	t.Helper()
	status, stdout, stderr := verb(t, kind, environ, "worker", "ls", "--json")
	var programs []struct{ Workers []worker }
	if err := json.Unmarshal([]byte(stdout), &programs); err != nil || status != failure.ExitOK || len(programs) != 1 {
		t.Fatalf("exit status %d, %v: %s%s", status, err, stdout, stderr)
	}
	return programs[0].Workers
}

// readyWorkers are the workers once all are ready: the function of a Run begins
// before.
func readyWorkers(t *testing.T, environ []string, kind string) (all []worker) {
	t.Helper()
	for {
		all = workersOf(t, environ, kind)
		if !slices.ContainsFunc(all, func(w worker) bool { return w.State != "ready" }) {
			return all
		}
		time.Sleep(5 * time.Millisecond) // the workers are other processes
	}
}

type worker struct {
	ID, PID, Generation, Restarts int
	State                         string
}

// Their supervisor has the keys of the workers from its own start.
func TestReloadReportsWhatTheWorkersHaveNotApplied(t *testing.T) {
	s := newSite(t)
	c, environ := s.sharing(t, "polite")
	s.configured(t, "name: shop\nlock:\n  ttl: 20s\n")
	if status, stdout, stderr := verb(t, "polite", environ, "worker", "restart"); status != failure.ExitOK {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	if _, stdout, _ := verb(t, "polite", environ, "config", "reload"); !strings.Contains(stdout, ": 0 keys changed") {
		t.Errorf("after a restart of the workers: %s", stdout)
	}
	s.configured(t, "name: shop\nops:\n  console: true\n")
	_, stdout, _ := verb(t, "polite", environ, "config", "reload")
	if got := squeezed(stdout); !strings.Contains(got, "lock.ttl  20s -> 10s  after a restart") || !strings.Contains(got, "ops.console  false -> true  after a restart") {
		t.Errorf("after further changes: %s", stdout)
	}
	c.quits(t)
}

// The process in its place has the configuration.
func TestReloadSucceedsWithoutAWorkerThatIsReplaced(t *testing.T) {
	c, environ := newSite(t).sharing(t, "polite")
	old := workersOf(t, environ, "polite")[0].PID
	if err := redistest.Signal(old, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	reloaded, restarted := make(chan string, 1), make(chan string, 1)
	run := func(done chan<- string, args ...string) {
		status, stdout, stderr := verb(t, "polite", environ, args...)
		done <- fmt.Sprint(status, ": ", stdout, stderr)
	}
	go run(reloaded, "config", "reload")
	c.until(t, "configuration reloaded without changes") // by the other worker
	go run(restarted, "worker", "restart", "1")
	for !slices.ContainsFunc(workersOf(t, environ, "polite"), func(w worker) bool { return w.PID == old && w.State == "stopping" }) {
		time.Sleep(5 * time.Millisecond) // the workers are other processes
	}
	if err := redistest.Signal(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, done := range []chan string{reloaded, restarted} {
		if got := <-done; !strings.HasPrefix(got, "0: ") {
			t.Errorf("exit status %s", got)
		}
	}
	c.quits(t)
}

func TestWorkersAreListedAndRestarted(t *testing.T) {
	s := newSite(t)
	c, environ := s.withWorkers(t, "polite")
	pid := c.cmd.Process.Pid
	status, stdout, stderr := verb(t, "polite", environ, "worker", "ls")
	before := workersOf(t, environ, "polite")
	want := fmt.Sprintf("shop, pid %d: 2 workers\n  ID  PID  STATE  FOR  GENERATION  RESTARTS\n", pid)
	for i, w := range before {
		want += fmt.Sprintf("  %d  %d  ready  <t>  1  0\n", i+1, w.PID)
	}
	if status != failure.ExitOK || stable(stdout) != want || stderr != "" {
		t.Errorf("exit status %d\n%s%s\nwant\n%s", status, stable(stdout), stderr, want)
	}

	status, stdout, stderr = verb(t, "polite", environ, "worker", "restart", "2")
	if want := fmt.Sprintf("shop, pid %d: 1 worker restarted\n", pid); status != failure.ExitOK || stdout != want {
		t.Errorf("restart of one: exit status %d: %s%s", status, stdout, stderr)
	}
	one := workersOf(t, environ, "polite")
	if len(one) != 2 || one[0] != before[0] || one[1].PID == before[1].PID || one[1].Generation != 1 || one[1].Restarts != 1 {
		t.Errorf("there were %+v, and after the restart of 2 there are %+v", before, one)
	}

	status, stdout, stderr = verb(t, "polite", environ, "worker", "restart", "--json")
	if want := fmt.Sprintf(`"pid": %d`, pid); status != failure.ExitOK || !strings.Contains(stdout, want) || !strings.Contains(stdout, `"restarted": 2`) {
		t.Errorf("restart of all: exit status %d: %s%s", status, stdout, stderr)
	}
	all := workersOf(t, environ, "polite")
	if len(all) != 2 || all[0].PID == one[0].PID || all[1].PID == one[1].PID || all[0].Generation != 2 || all[1].Generation != 2 {
		t.Errorf("there were %+v, and after the restart of all there are %+v", one, all)
	}

	for _, x := range []struct {
		args   string
		status int
		says   string
	}{
		{"worker restart 7", failure.ExitUsage, `unknown worker "7"; the workers are 1, 2`},
		{"worker restart two", failure.ExitUsage, "cli.wrong_flag"},
		{"worker restart 0", failure.ExitUsage, "cli.wrong_flag"},
		{"worker ls --pid 1", failure.ExitUnavailable, "cli.no_process"},
		{"lock ls --worker 7", failure.ExitUsage, `unknown worker "7"; the workers are 1, 2`},
	} {
		status, _, stderr := verb(t, "polite", environ, strings.Fields(x.args)...)
		if status != x.status || !strings.Contains(strings.ToLower(stderr), strings.ToLower(x.says)) {
			t.Errorf("%s: exit status %d: %s", x.args, status, stderr)
		}
	}
	c.quits(t)
}

// Where exclusion ends at the process, each worker has locks of its own.
func TestLocksInTheMemoryOfEachWorkerAreListedAndForced(t *testing.T) {
	s := newSite(t)
	c, environ := s.withWorkers(t, "holder")
	pid := c.cmd.Process.Pid
	var stdout string
	for strings.Count(stdout, "product:lamp") < 2 { // until the background has come to it
		_, stdout, _ = verb(t, "holder", environ, "lock", "ls")
	}
	for i, w := range workersOf(t, environ, "holder") {
		for _, line := range []string{
			fmt.Sprintf("shop, pid %d, worker %d: memory, scope process\n", pid, i+1),
			fmt.Sprintf(":%d worker %d ", w.PID, i+1),
		} {
			if !strings.Contains(stdout, line) {
				t.Errorf("%q is not in\n%s", line, stdout)
			}
		}
	}
	status, stdout, stderr := verb(t, "holder", environ, "lock", "release", "product:lamp", "--worker", "2", "--reason", "the till is stuck")
	if want := fmt.Sprintf("product:lamp: released from 1 holder  (shop, pid %d, worker 2)\n", pid); status != failure.ExitOK || stdout != want {
		t.Errorf("release: exit status %d: %s%s", status, stdout, stderr)
	}
	// Who has asked is the verb's process, not the supervisor's.
	line := c.until(t, `"admin: lock released by force"`)
	var record struct {
		Worker int
		By     struct{ PID int }
	}
	if err := json.Unmarshal([]byte(line), &record); err != nil || record.Worker != 2 || record.By.PID == pid || record.By.PID == 0 {
		t.Errorf("%v: logged %s", err, line)
	}
	if _, stdout, _ := verb(t, "holder", environ, "lock", "show", "product:lamp", "--worker", "2"); !strings.Contains(stdout, "no holder and no waiters") {
		t.Errorf("of worker 2: %s", stdout)
	}
	status, stdout, _ = verb(t, "holder", environ, "lock", "ls", "--worker", "1", "--json")
	if status != failure.ExitOK || strings.Count(stdout, "product:lamp") != 1 || strings.Count(stdout, `"worker": 1`) != 2 {
		t.Errorf("of worker 1: exit status %d: %s", status, stdout)
	}
	workers := workersOf(t, environ, "holder")
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, w := range workers { // their work never ends
		_ = redistest.Signal(w.PID, syscall.SIGKILL) // it may be between two processes
	}
	c.end(t)
}

// While the file is broken, nothing is needed more than a look at the process.
func TestRunningProcessIsFoundWhileTheConfigurationIsBroken(t *testing.T) {
	s := newSite(t)
	c, environ := s.sharing(t, "talker", "MEGA_NAME=shop")
	s.configured(t, "name: [\n")
	for _, args := range []string{"worker ls", "lock ls", "bus topics"} {
		status, stdout, stderr := verb(t, "talker", environ, strings.Fields(args)...)
		if status == failure.ExitConfig || stdout == "" || !strings.Contains(stderr, `(config.syntax); calling the process with the name "shop"`) {
			t.Errorf("%s: exit status %d: %s%s", args, status, stdout, stderr)
		}
	}
	s.configured(t, "name: shop\n")
	c.quits(t)
	s.configured(t, "name: [\n")
	if status, _, stderr := verb(t, "talker", environ, "worker", "ls"); status != failure.ExitConfig || !strings.Contains(stderr, "(config.syntax)") {
		t.Errorf("while none runs: exit status %d: %s", status, stderr)
	}
}

// What one worker holds another one waits for, and whoever is asked says so. The
// kill of the one that holds is seen at once.
func TestLockIsListedWithTheWorkerThatHoldsIt(t *testing.T) {
	s := newSite(t)
	c, environ := s.sharing(t, "holder")
	workers := readyWorkers(t, environ, "holder")
	seen := func(args ...string) (holders, waiters []int) {
		t.Helper()
		status, stdout, stderr := verb(t, "holder", environ, append([]string{"lock", "show", "product:lamp", "--json"}, args...)...)
		var all []struct{ Holders, Waiters []struct{ Worker, PID int } }
		if err := json.Unmarshal([]byte(stdout), &all); err != nil || status != failure.ExitOK || len(all) != 1 {
			t.Fatalf("exit status %d, %v: %s%s", status, err, stdout, stderr)
		}
		for _, h := range all[0].Holders {
			holders = append(holders, h.Worker)
			if !slices.ContainsFunc(workers, func(w worker) bool { return w.ID == h.Worker && w.PID == h.PID }) {
				t.Errorf("worker %d holds as process %d, of %+v", h.Worker, h.PID, workers)
			}
		}
		for _, h := range all[0].Waiters {
			waiters = append(waiters, h.Worker)
		}
		return holders, waiters
	}
	var holders, waiters []int
	for len(holders) != 1 || len(waiters) != 1 {
		holders, waiters = seen()
	}
	holds, waits := holders[0], waiters[0]
	if holds == waits {
		t.Errorf("worker %d holds, and worker %d waits", holds, waits)
	}
	for _, asked := range []string{"1", "2"} {
		if holders, waiters := seen("--worker", asked); !slices.Equal(holders, []int{holds}) || !slices.Equal(waiters, []int{waits}) {
			t.Errorf("worker %s says that %v holds, and %v waits", asked, holders, waiters)
		}
	}
	_, stdout, _ := verb(t, "holder", environ, "lock", "ls")
	head := fmt.Sprintf("shop, pid %d: cluster, scope node\n", c.cmd.Process.Pid)
	if row := fmt.Sprintf(":%d worker %d ", workers[holds-1].PID, holds); !strings.HasPrefix(stdout, head) || !strings.Contains(stdout, row) {
		t.Errorf("%q is not in\n%s", row, stdout)
	}

	if err := redistest.Signal(workers[holds-1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); holders[0] != waits; { // before its TTL is over
		if time.Since(began) > 5*time.Second {
			t.Fatalf("worker %v holds", holders)
		}
		workers = workersOf(t, environ, "holder")
		if now, _ := seen("--worker", fmt.Sprint(waits)); len(now) == 1 {
			holders = now
		}
	}
	status, stdout, stderr := verb(t, "holder", environ, "lock", "release", "product:lamp", "--reason", "the till is stuck")
	if status != failure.ExitOK || !strings.Contains(stdout, "released from 1 holder") {
		t.Errorf("release: exit status %d: %s%s", status, stdout, stderr)
	}
	workers = workersOf(t, environ, "holder")
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		_ = redistest.Signal(w.PID, syscall.SIGKILL) // it may be between two processes
	}
	c.end(t)
}

// An event is seen whichever worker has published it.
func TestTailShowsEventsOfAnotherWorker(t *testing.T) {
	s := newSite(t)
	c, environ := s.sharing(t, "talker")
	lines := follow(t, environ)
	for _, from := range []string{"1", "2"} {
		if status, _, stderr := verb(t, "talker", environ, "bus", "pub", "product.sold", "by "+from, "--worker", from); status != failure.ExitOK {
			t.Fatalf("exit status %d: %s", status, stderr)
		}
		next(t, lines, "product.sold  by "+from)
	}
	// The one that is followed is replaced, and then the other.
	if status, _, stderr := verb(t, "talker", environ, "worker", "restart"); status != failure.ExitOK {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	next(t, lines, "events may have been missed")
	if status, stdout, stderr := verb(t, "talker", environ, "bus", "req", "stock.lamp"); status != failure.ExitOK || stdout != "{\"left\":3}\n" {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	if status, _, stderr := verb(t, "talker", environ, "bus", "pub", "product.sold", "after"); status != failure.ExitOK {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	next(t, lines, "product.sold  after")
	c.quits(t)
}

func TestConfigurationIsReadAgainByAllWorkers(t *testing.T) {
	s := newSite(t)
	c, environ := s.withWorkers(t, "polite")
	s.configured(t, "name: shop\nlog:\n  level: debug\n")
	status, stdout, stderr := verb(t, "polite", environ, "config", "reload")
	want := fmt.Sprintf("shop, pid %d: 1 key changed\n  log.level  info -> debug  in force  mega.config.yaml:3\n", c.cmd.Process.Pid)
	if status != failure.ExitOK || stable(stdout) != want {
		t.Errorf("exit status %d: %s%s\nwant %s", status, stable(stdout), stderr, want)
	}
	var told []int
	for len(told) < 2 {
		var record struct{ Worker int }
		if err := json.Unmarshal([]byte(c.until(t, `"configuration changed"`)), &record); err != nil {
			t.Fatal(err)
		}
		told = append(told, record.Worker)
	}
	if slices.Sort(told); !slices.Equal(told, []int{1, 2}) {
		t.Errorf("it was read again by %v", told)
	}
	c.quits(t)
}

func TestProcessWithoutWorkersIsReported(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	c := startChild(t, "polite", environ...)
	c.until(t, "boot.report")
	for _, args := range []string{"worker ls", "worker restart", "worker restart 1", "lock ls --worker 1", "bus topics --worker 1"} {
		status, stdout, stderr := verb(t, "polite", environ, strings.Fields(args)...)
		if status != failure.ExitUnavailable || !strings.Contains(stderr, "cli.no_workers") || !strings.Contains(stderr, fmt.Sprint(c.cmd.Process.Pid)) {
			t.Errorf("%s: exit status %d: %s%s", args, status, stdout, stderr)
		}
	}
	c.quits(t)
}

// follow begins to tail, and returns what it shows, line by line.
func follow(t *testing.T, environ []string, args ...string) *bufio.Scanner {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"bus", "tail", "product.*"}, args...)...)
	cmd.Env = append(append(os.Environ(), program+"=talker"), environ...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if lines := bufio.NewScanner(stderr); !lines.Scan() || !strings.HasPrefix(lines.Text(), "following product.*") {
		t.Fatalf("it says %q", lines.Text())
	}
	return bufio.NewScanner(stdout)
}

// next is the next line that has s in it.
func next(t *testing.T, lines *bufio.Scanner, s string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), s) {
			return
		}
	}
	t.Fatalf("it does not show %q", s)
}

// The worker that is followed is replaced, and its successor is followed.
func TestTailOutlivesTheWorkerThatItFollows(t *testing.T) {
	s := newSite(t)
	c, environ := s.withWorkers(t, "talker")
	lines := follow(t, environ, "--worker", "1")
	publish := func(text string) {
		t.Helper()
		if status, _, stderr := verb(t, "talker", environ, "bus", "pub", "product.sold", text, "--worker", "1"); status != failure.ExitOK {
			t.Fatalf("exit status %d: %s", status, stderr)
		}
	}
	publish("before")
	next(t, lines, "product.sold  before")
	if status, _, stderr := verb(t, "talker", environ, "worker", "restart", "1"); status != failure.ExitOK {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	next(t, lines, "events may have been missed")
	publish("after")
	next(t, lines, "product.sold  after")
	c.quits(t)
	for lines.Scan() { // it ends with the supervisor
		t.Logf("shown: %s", lines.Text())
	}
}

// Each worker has handled messages of its own.
func TestTopicsAreThoseOfEachWorker(t *testing.T) {
	s := newSite(t)
	c, environ := s.withWorkers(t, "talker")
	if status, _, stderr := verb(t, "talker", environ, "bus", "pub", "product.sold", "x"); status != failure.ExitUsage || !strings.Contains(stderr, "--worker 1") {
		t.Errorf("nobody said which worker: exit status %d: %s", status, stderr)
	}
	if status, _, stderr := verb(t, "talker", environ, "bus", "pub", "product.sold", "x", "--worker", "2"); status != failure.ExitOK {
		t.Errorf("exit status %d: %s", status, stderr)
	}
	handled := func(worker int) int {
		_, stdout, _ := verb(t, "talker", environ, "bus", "topics", "--json")
		var all []struct {
			Worker int
			Topics []struct {
				Pattern string
				Handled int
			}
		}
		if err := json.Unmarshal([]byte(stdout), &all); err != nil || len(all) != 2 {
			t.Fatalf("%v: %s", err, stdout)
		}
		for _, topic := range all[worker-1].Topics {
			if topic.Pattern == "product.sold" {
				return topic.Handled
			}
		}
		return -1
	}
	for began := time.Now(); handled(2) < 1; {
		if time.Since(began) > 10*time.Second {
			t.Fatal("worker 2 has not handled it")
		}
	}
	if n := handled(1); n != 0 {
		t.Errorf("worker 1 has handled %d", n)
	}
	_, stdout, _ := verb(t, "talker", environ, "bus", "topics")
	for _, want := range []string{"  WORKER  PATTERN  FOR", "  1  product.sold  events  1  -  0", "  2  product.sold  events  1  -  1"} {
		if strings.Count(squeezed(stdout), want) != 1 {
			t.Errorf("topics lack %q:\n%s", want, stdout)
		}
	}
	c.quits(t)
}
