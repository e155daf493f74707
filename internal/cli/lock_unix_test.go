//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/failure"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

// site is a machine of its own, as far as processes find each other.
type site struct{ environ []string }

func newSite(t *testing.T) site {
	t.Helper()
	dir := shortdir.New(t)
	return site{[]string{"XDG_RUNTIME_DIR=" + dir, "TMPDIR=" + dir}}
}

// run opens the door of a process with locks in its memory. It reports that it is
// that process, though it is this one.
func (s site) run(t *testing.T, name string, pid int) *lock.Locker {
	t.Helper()
	l, err := lock.New(memory.NewLock(), lock.Config{Identify: func(ctx context.Context, h *lock.Holder) {
		h.App, h.Host, h.PID, h.Request = "web", "host", pid, "r1"
		admin.Identify(ctx, h)
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.open(t, admin.Info{Name: name, PID: pid, Driver: "memory", Scope: "process"}, l)
	return l
}

func (s site) open(t *testing.T, i admin.Info, l *lock.Locker) {
	t.Helper()
	server, err := admin.Open(admin.Process{Info: i, Locks: l, Log: slog.New(slog.DiscardHandler)}, admin.Folders(s.environ))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Close(context.Background())
		_ = l.Close(context.Background())
	})
}

// tool runs cmd/mega without its own verbs.
func (s site) tool(t *testing.T, line string, extra ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	p := cli.Process{Args: append(append([]string{"mega"}, strings.Fields(line)...), extra...), Environ: s.environ, Stdout: &out, Stderr: &err}
	status = cli.RunTool(p, cli.Tool{})
	return status, out.String(), err.String()
}

// hold takes a lock until the test is over.
func hold(t *testing.T, l *lock.Locker, key string, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release() })
	return lease
}

// wait has somebody wait for a lock until the test is over, and returns when it
// does.
func wait(t *testing.T, l *lock.Locker, key string, opts ...lock.Option) {
	t.Helper()
	before := l.Stats().Waiting
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		lease, err := l.Acquire(ctx, key, append(opts, lock.Wait(lock.Forever))...)
		if err == nil {
			_ = lease.Release()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	for l.Stats().Waiting == before || !isQueued(t, l, key) {
		time.Sleep(time.Millisecond)
	}
}

// isQueued reports whether the driver knows of a waiter: the process counts one
// before it asks.
func isQueued(t *testing.T, l *lock.Locker, key string) bool {
	t.Helper()
	s, err := l.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return len(s.Waiters) > 0
}

var times = regexp.MustCompile(`\b\d+(\.\d+)?(µs|ms|s)\b`)

// stable is a page without what differs from run to run.
func stable(page string) string {
	page = regexp.MustCompile(`\b\d{16}\b`).ReplaceAllString(page, "<fence>")
	page = times.ReplaceAllString(page, "<t>")
	return regexp.MustCompile(` {2,}(\S)`).ReplaceAllString(page, "  $1")
}

func TestLocksAreListedWithHoldersAndWaiters(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	hold(t, l, "product:lamp", lock.Label("checkout"))
	wait(t, l, "product:lamp")
	hold(t, l, "sandbox", lock.Slots(3))
	hold(t, l, "sandbox", lock.Slots(3))
	hold(t, l, "상품:1")

	status, stdout, stderr := s.tool(t, "lock ls")
	const want = `shop, pid 4121: memory, scope process
  KEY  SLOT  HOLDER  AGE  LEFT  WAITING  LABEL
  product:lamp  -  web@host:4121  <t>  <t>  1  checkout
  sandbox  0 of 3  web@host:4121  <t>  <t>  0
  1 of 3  web@host:4121  <t>  <t>
  상품:1  -  web@host:4121  <t>  <t>  0
  POOL  SIZE  HELD  FREE  DIRTY  RESTING  WITHDRAWN
  sandbox  3  2  1  0  0  0
`
	if status != failure.ExitOK || stable(stdout) != want || stderr != "" {
		t.Errorf("exit status %d\n%s%s\nwant\n%s", status, stable(stdout), stderr, want)
	}
	if _, stdout, _ := s.tool(t, "lock ls sand"); strings.Contains(stdout, "product") || !strings.Contains(stdout, "sandbox") {
		t.Errorf("with a prefix:\n%s", stdout)
	}
	if _, stdout, _ := s.tool(t, "lock ls --limit 1"); !strings.Contains(stdout, "1 of 3: --limit shows more") {
		t.Errorf("with a limit:\n%s", stdout)
	}
}

func TestWorkerThatHoldsIsNamed(t *testing.T) {
	s := newSite(t)
	l, err := lock.New(memory.NewLock(), lock.Config{Identify: func(_ context.Context, h *lock.Holder) {
		h.App, h.Host, h.PID, h.Worker = "web", "host", 4123, 2
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.open(t, admin.Info{Name: "shop", PID: 4121, Driver: "cluster", Scope: "node"}, l)
	hold(t, l, "product:lamp")
	if _, stdout, _ := s.tool(t, "lock ls"); !strings.Contains(stable(stdout), "  web@host:4123 worker 2  ") {
		t.Errorf("ls:\n%s", stdout)
	}
	if _, stdout, _ := s.tool(t, "lock show product:lamp"); !strings.Contains(stable(stdout), "  web@host:4123 worker 2  ") {
		t.Errorf("show:\n%s", stdout)
	}
	if _, stdout, _ := s.tool(t, "lock ls --json"); !strings.Contains(stdout, `"worker": 2`) {
		t.Errorf("as a document:\n%s", stdout)
	}
}

func TestLockIsShownWithItsQueue(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	hold(t, l, "product:lamp", lock.Label("checkout"))
	wait(t, l, "product:lamp")
	wait(t, l, "product:lamp", lock.Label("refund"))
	const want = `shop, pid 4121: memory, scope process
  WHO  AGE  LEFT  FENCE  REQUEST  LABEL
  holds  web@host:4121  <t>  <t>  <fence>  r1  checkout
  waits 1  web@host:4121  <t>  -  -  r1
  waits 2  web@host:4121  <t>  -  -  r1  refund
`
	if status, stdout, stderr := s.tool(t, "lock show product:lamp"); status != failure.ExitOK || stable(stdout) != want {
		t.Errorf("exit status %d\n%s%s\nwant\n%s", status, stable(stdout), stderr, want)
	}
	if _, stdout, _ := s.tool(t, "lock show product:chair"); !strings.Contains(stdout, "no holder and no waiters") {
		t.Errorf("of a free lock:\n%s", stdout)
	}
}

func TestForcedReleaseNeedsAReason(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	lease := hold(t, l, "product:lamp")
	if status, _, stderr := s.tool(t, "lock release product:lamp"); status != failure.ExitUsage || !strings.Contains(stderr, "cli.no_reason") {
		t.Errorf("without a reason: exit status %d: %s", status, stderr)
	}
	if err := lease.Context().Err(); err != nil {
		t.Fatal("it was taken away without a reason")
	}
	status, stdout, stderr := s.tool(t, "lock release product:lamp --reason", "the till is stuck")
	if status != failure.ExitOK || stdout != "product:lamp: released from 1 holder  (shop, pid 4121)\n" {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	<-lease.Context().Done()
	if err := context.Cause(lease.Context()); !strings.Contains(err.Error(), "the till is stuck") {
		t.Errorf("the holder is told %v", err)
	}
	if _, stdout, _ := s.tool(t, "lock release product:lamp --reason again"); stdout != "product:lamp: no holder  (shop, pid 4121)\n" {
		t.Errorf("again: %s", stdout)
	}
}

func TestSlotsOfAPoolAreShownForcedAndHealed(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	p := &lock.Pool{Key: "boxes", Size: 3, Cleanup: func(_ context.Context, s *lock.Slot) error {
		if s.Number() == 0 {
			return errors.New("disk full")
		}
		return nil
	}}
	slot, err := l.AcquireSlot(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer slot.Release()
	status, stdout, stderr := s.tool(t, "lock show boxes")
	if status != failure.ExitOK || !strings.Contains(stdout, "  0 of 3 free, 1 dirty\n  slot 0 is withdrawn: cleanup of slot 0 of \"boxes\": disk full\n") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	for _, c := range []struct {
		verb   string
		status int
		want   string
	}{
		{"lock heal boxes 0", failure.ExitUsage, "cli.no_reason"},
		{"lock heal boxes x --reason repaired", failure.ExitUsage, "cli.invalid_argument"},
		{"lock heal boxes 0 --reason repaired", failure.ExitOK, "boxes: slot 0 is in circulation  (shop, pid 4121)\n"},
		{"lock heal boxes 0 --reason again", failure.ExitOK, "boxes: slot 0 is not withdrawn: it is dirty  (shop, pid 4121)\n"},
		{"lock heal boxes 1 --reason mistyped", failure.ExitOK, "boxes: slot 1 is not withdrawn: it is held  (shop, pid 4121)\n"},
		{"lock heal boxes 7 --reason mistyped", failure.ExitUsage, "boxes: there is no slot 7: the pool has the slots 0 to 2  (shop, pid 4121)\nmega: There is no slot 7 of boxes.  (cli.invalid_argument)\n"},
		{"lock heal box 0 --reason mistyped", failure.ExitUsage, "box: there is no slot 0: the key is not a pool that is in use  (shop, pid 4121)\nmega: There is no slot 0 of box.  (cli.invalid_argument)\n"},
		{"lock release boxes --slot 2 --reason stuck", failure.ExitOK, "boxes: no holder  (shop, pid 4121)\n"},
		{"lock release boxes --fence 1 --reason stuck", failure.ExitOK, "boxes: no holder with fence 1  (shop, pid 4121)\n"},
		{"lock release boxes --slot 1 --fence 1 --reason stuck", failure.ExitUsage, "exclude each other"},
		{"lock release boxes --slot 1 --reason stuck", failure.ExitOK, "boxes: released from 1 holder  (shop, pid 4121)\n"},
	} {
		if status, stdout, stderr := s.tool(t, c.verb); status != c.status || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s: exit status %d: %s%s", c.verb, status, stdout, stderr)
		}
	}
	<-slot.Context().Done()
	if status, stdout, stderr = s.tool(t, "lock show boxes"); !strings.Contains(stdout, "  0 of 3 free, 3 dirty\n  slot 0 is dirty: healed\n  slot 1 is dirty: forced\n") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
}

// Two processes with a memory of their own have two locks of one name.
func TestEachProcessWithItsOwnMemoryIsCalled(t *testing.T) {
	s := newSite(t)
	first, second := s.run(t, "shop", 11), s.run(t, "shop", 22)
	other := s.run(t, "bank", 33)
	for _, l := range []*lock.Locker{first, second, other} {
		hold(t, l, "product:lamp")
	}
	_, stdout, _ := s.tool(t, "lock ls --name shop")
	if strings.Count(stdout, "product:lamp") != 2 || !strings.Contains(stdout, "shop, pid 11:") || !strings.Contains(stdout, "shop, pid 22:") {
		t.Errorf("of one program:\n%s", stdout)
	}
	if _, stdout, _ := s.tool(t, "lock ls"); !strings.Contains(stdout, "bank, pid 33:") {
		t.Errorf("of all programs:\n%s", stdout)
	}
	_, stdout, _ = s.tool(t, "lock release --name shop --reason x product:lamp")
	const want = "product:lamp: released from 1 holder  (shop, pid 11)\nproduct:lamp: released from 1 holder  (shop, pid 22)\n"
	if stdout != want || other.Stats().Active != 1 {
		t.Errorf("got\n%swant\n%sand the other program has %d", stdout, want, other.Stats().Active)
	}
}

func TestOneProcessIsCalledForSharedLocks(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "bank", 1) // it has a Locker
	for pid := 11; pid <= 13; pid++ {
		s.open(t, admin.Info{Name: "shop", PID: pid, Driver: "redis", Scope: "fleet"}, l)
	}
	hold(t, l, "product:lamp")
	_, stdout, _ := s.tool(t, "lock ls --name shop")
	if !strings.HasPrefix(stdout, "shop, pid 11, 12 and 13: redis, scope fleet\n") || strings.Count(stdout, "product:lamp") != 1 {
		t.Errorf("got\n%s", stdout)
	}
}

// Two supervisors have a cluster each, unless all of them meet at one socket.
func TestClustersAreDistinguished(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "bank", 1)
	for pid := 11; pid <= 12; pid++ {
		s.open(t, admin.Info{Name: "shop", PID: pid, Driver: "cluster", Scope: "node"}, l)
	}
	for pid := 21; pid <= 22; pid++ {
		s.open(t, admin.Info{Name: "shop", PID: pid, Driver: "cluster", Scope: "node", Meets: "auto"}, l)
	}
	_, stdout, _ := s.tool(t, "lock ls --name shop")
	for _, head := range []string{"shop, pid 11: cluster", "shop, pid 12: cluster", "shop, pid 21 and 22: cluster"} {
		if !strings.Contains(stdout, head) {
			t.Errorf("no %q in\n%s", head, stdout)
		}
	}
}

func TestDocumentsOfLocks(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	hold(t, l, "product:lamp")
	wait(t, l, "product:lamp")
	about := map[string]any{"name": "shop", "pid": 4121.0, "driver": "memory", "scope": "process"}
	for _, x := range []struct {
		line string
		keys []string
	}{
		{"lock ls --json", []string{"total", "truncated", "locks"}},
		{"lock show product:lamp --json", []string{"key", "slots", "holders", "waiters", "waiting"}},
		{"lock show product:chair --json", []string{"key", "slots", "holders", "waiters", "waiting"}},
		{"lock release product:lamp --reason late --json", []string{"released"}},
	} {
		line, keys := x.line, x.keys
		status, stdout, stderr := s.tool(t, line)
		var all []map[string]any
		if err := json.Unmarshal([]byte(stdout), &all); err != nil || status != failure.ExitOK || len(all) != 1 {
			t.Fatalf("%s: exit status %d, %v: %s%s", line, status, err, stdout, stderr)
		}
		for k, v := range about {
			if all[0][k] != v {
				t.Errorf("%s: %s is %v, want %v", line, k, all[0][k], v)
			}
		}
		if len(all[0]) != len(about)+len(keys) {
			t.Errorf("%s: want %q beside %v, got %s", line, keys, about, stdout)
		}
		for _, k := range keys {
			if all[0][k] == nil {
				t.Errorf("%s: %s is missing: %s", line, k, stdout)
			}
		}
	}
}

func TestMissingProcessIsReportedWithAlternatives(t *testing.T) {
	s := newSite(t)
	s.run(t, "bank", 1)
	for _, line := range []string{"lock ls", "lock show x", "lock release x --reason y"} {
		status, stdout, stderr := s.tool(t, line+" --name shop")
		if status != failure.ExitUnavailable || stdout != "" || !strings.Contains(stderr, `"shop"`) || !strings.Contains(stderr, "--url redis://") {
			t.Errorf("%s: exit status %d: %s%s", line, status, stdout, stderr)
		}
	}
}

// What a process left that was killed is nobody's.
func TestSocketOfADeadProcessIsPassedOver(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	hold(t, l, "product:lamp")
	folder := admin.Folders(s.environ)[0]
	leave(t, filepath.Join(folder, "shop.1.sock"))
	status, stdout, stderr := s.tool(t, "lock ls")
	if status != failure.ExitOK || !strings.HasPrefix(stdout, "shop, pid 4121:") || stderr != "" {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
}

// A process that does not answer is named, and the others are shown.
func TestProcessThatDoesNotAnswerIsNamed(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	hold(t, l, "product:lamp")
	path := filepath.Join(admin.Folders(s.environ)[0], "shop.1.sock")
	deaf(t, path)
	status, stdout, stderr := s.tool(t, "lock ls --name shop")
	if status != failure.ExitUnavailable || !strings.Contains(stdout, "product:lamp") || !strings.Contains(stderr, path) || !strings.Contains(stderr, "cli.unanswered") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
}

// A process whose server is gone has answered, and so has one that refuses.
func TestOnlyASilentProcessGaveNoAnswer(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	d, err := redis.OpenLock(t.Context(), redis.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := lock.New(d, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.open(t, admin.Info{Name: "shop", PID: 4121, Driver: "redis", Scope: "fleet"}, l)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ line, says string }{
		{"lock ls", "Failed at shop, pid 4121.  (lock.unavailable)"},
		{"lock show a", "Failed at shop, pid 4121.  (lock.unavailable)"},
		{"lock release a --reason x", "Failed at shop, pid 4121.  (lock.unavailable)"},
		{"lock ls --worker 2", "Without workers: shop, pid 4121.  (cli.no_workers)"},
	} {
		if status, _, stderr := s.tool(t, x.line); status != failure.ExitUnavailable || !strings.Contains(stderr, x.says) {
			t.Errorf("%s: exit status %d: %s", x.line, status, stderr)
		}
	}
	path := filepath.Join(admin.Folders(s.environ)[0], "shop.1.sock")
	deaf(t, path)
	status, _, stderr := s.tool(t, "lock ls --name shop")
	if want := "No answer from socket " + path + ". Failed at shop, pid 4121.  (cli.unanswered)"; status != failure.ExitUnavailable || !strings.Contains(stderr, want) {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}

func TestWrongLockCommandLines(t *testing.T) {
	s := newSite(t)
	s.environ = append(s.environ, "REDIS_URL=redis://:geheim@localhost:1/0")
	s.run(t, "shop", 4121)
	for _, x := range []struct{ line, code, says string }{
		{"lock", "cli.no_verb", "acquire, exec, heal, ls, release, renew, show"},
		{"lock hsow", "cli.unknown_verb", "did you mean: mega lock show"},
		{"lock show", "cli.missing_argument", "the key of a lock"},
		{"lock show a b", "cli.extra_argument", `"b"`},
		{"lock release a --reson x", "cli.unknown_flag", "did you mean: --reason"},
		{"lock ls --limit many", "cli.wrong_flag", "--limit"},
		{"lock release a --reason x --slot -1", "cli.wrong_flag", "--slot -1 is not valid"},
		{"lock ls --limit 0", "cli.wrong_flag", "1 to 1000"},
		{"lock show " + strings.Repeat("x", 600), "cli.refused", "600"},
		{"lock ls --url redis://:geheim@localhost/0", "cli.wrong_flag", "--url-env REDIS_URL"},
		{"lock ls --url-env NOTHING", "cli.wrong_flag", "NOTHING"},
		{"lock ls --url redis://x --url-env REDIS_URL", "cli.wrong_flag", "exclude each other"},
		{"lock ls --name shop --url redis://x", "cli.wrong_flag", "--name"},
		{"lock ls --engine queue", "cli.wrong_flag", "--url"},
	} {
		status, stdout, stderr := s.tool(t, x.line)
		if status != failure.ExitUsage || !strings.Contains(stderr, "("+x.code+")") || !strings.Contains(stderr, x.says) || strings.Contains(stderr, "geheim") {
			t.Errorf("%s: exit status %d, want %s that says %q:\n%s%s", x.line, status, x.code, x.says, stdout, stderr)
		}
	}
}

// A look a second, until a signal ends it; that the process has gone meanwhile
// is told, and does not end it.
func TestLocksAreWatched(t *testing.T) {
	s := newSite(t)
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	server, err := admin.Open(admin.Process{Info: admin.Info{Name: "shop", PID: 1, Driver: "memory", Scope: "process"}, Locks: l, Log: slog.New(slog.DiscardHandler)}, admin.Folders(s.environ))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "lock", "ls", "-w", "--json")
	cmd.Env = append(append(os.Environ(), s.environ...), program+"=tool")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()

	looks := json.NewDecoder(stdout)
	look := func() (all []struct{ Total int }) {
		if err := looks.Decode(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := look(); len(all) != 1 || all[0].Total != 0 {
		t.Errorf("at first there is %v", all)
	}
	hold(t, l, "product:lamp")
	if all := look(); len(all) != 1 || all[0].Total != 1 {
		t.Errorf("then there is %v", all)
	}
	if err := server.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if all := look(); len(all) != 0 {
		t.Errorf("in the end there is %v", all)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("a signal ended it with %v", err)
	}
}

func TestKeysInUseAreCompleted(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	hold(t, l, "product:lamp")
	hold(t, l, "order:1")
	for _, verb := range []string{"show", "release"} {
		_, stdout, _ := s.tool(t, "__complete lock "+verb, "prod")
		if !strings.HasPrefix(stdout, "product:lamp\n:") {
			t.Errorf("%s: got %s", verb, stdout)
		}
	}
}

func TestResultThatCannotBeWrittenIsAFailure(t *testing.T) {
	s := newSite(t)
	s.run(t, "shop", 4121)
	var stderr bytes.Buffer
	full := fmt.Errorf("the disk is full")
	status := cli.RunTool(cli.Process{Args: []string{"mega", "lock", "ls"}, Environ: s.environ, Stdout: failing{full}, Stderr: &stderr}, cli.Tool{})
	if status != failure.ExitUnavailable || !strings.Contains(stderr.String(), full.Error()) {
		t.Errorf("exit status %d: %s", status, &stderr)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// leave leaves a socket that nobody listens on any more.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// deaf listens at path, and never answers.
func deaf(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

func TestFolderThatASearchLeavesOutIsNamed(t *testing.T) {
	s := newSite(t)
	folder := admin.Folders(s.environ)[0]
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "left out  " + folder + " is not a folder (-rw-------): remove it"
	for _, tool := range []bool{true, false} {
		var stderr bytes.Buffer
		p := cli.Process{Args: []string{"shop", "lock", "ls"}, Environ: s.environ, Stdout: io.Discard, Stderr: &stderr}
		run := func() int { return cli.Run(p, programs["polite"]) }
		if tool {
			run = func() int { return cli.RunTool(p, cli.Tool{}) }
		}
		if status := run(); status != failure.ExitUnavailable || !strings.Contains(stderr.String(), want) || strings.Contains(stderr.String(), "no lock is held") {
			t.Errorf("exit status %d, want %q in\n%s", status, want, &stderr)
		}
	}
}
