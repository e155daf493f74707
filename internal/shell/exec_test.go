//go:build linux || darwin

package shell

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

func TestCommandHasTheLeaseInItsEnvironment(t *testing.T) { // X1
	p := newPlace(t)
	t.Setenv("MEGA_RUN_KEY", "outer")
	out, status := p.start("exec k --slots 3 --", "sh", "-c", "echo $MEGA_RUN_KEY:$MEGA_RUN_SLOT:${#MEGA_RUN_TOKEN}:$MEGA_RUN_FENCE; ps -o pgid= -p $$ | tr -d ' '; echo $$").rest()
	lines := strings.Fields(out)
	if status != 0 || len(lines) != 3 || !strings.HasPrefix(lines[0], "k:0:") || strings.HasSuffix(lines[0], ":") || strings.Contains(lines[0], ":0:0:") {
		t.Fatalf("exit status %d: %s", status, out)
	}
	if lines[1] != lines[2] {
		t.Errorf("process %s is in the group %s, want its own", lines[2], lines[1])
	}
}

func TestExitStatusIsTheCommands(t *testing.T) { // X2
	p := newPlace(t)
	for _, x := range []struct {
		args   string
		cmd    []string
		status int
		says   string
	}{
		{"exec k --", []string{"sh", "-c", "exit 3"}, 3, ""},
		{"exec k --", []string{"sh", "-c", "kill -KILL $$"}, 137, ""},
		{"exec k -- no-such-command", nil, ExitNotFound, "no-such-command does not exist"},
		{"exec k -- /", nil, ExitNotRunnable, "Cannot run /"},
		{"exec k", nil, ExitUsage, "• mega-lock exec k -- CMD"},
		{"exec k true", nil, ExitUsage, "• mega-lock exec k -- true"},
		{"exec -- true", nil, ExitUsage, "mega-lock exec KEY -- CMD"},
		{"exec a b -- true", nil, ExitUsage, `"b"`},
		{"exec k --", nil, ExitUsage, "command"},
		{"exec k --", []string{""}, ExitUsage, "is empty"},
		{"limit k --rate 5/1s --", []string{""}, ExitUsage, "is empty"},
		{"exec k --ttl 10s -- true", nil, ExitUsage, "--ttl 10s is too short for --grace 5s; it must be at least 11s"},
		{"exec k --grace 2000000h -- true", nil, ExitUsage, "--grace 2000000h0m0s is too long; it must be at most 11h59m59.5s"},
		{"exec k --slots -1 -- true", nil, ExitUsage, "--slots -1"},
		{"exec k --slots 0 -- true", nil, ExitUsage, "--slots 0 is not valid; it must be 1 to"},
		{"exec k --nothing -- true", nil, ExitUsage, "--nothing"},
		{"exec k --url redis://a:b@localhost -- true", nil, ExitUsage, "--url-env"},
		{"exec k --url redis://localhost --socket auto -- true", nil, ExitUsage, "exclude"},
		{"exec k --engine queue -- true", nil, ExitUsage, "need --url"},
		{"exec k --url http://localhost -- true", nil, ExitUsage, "http"},
		{"exec k --url redis://127.0.0.1:1/0 -- true", nil, ExitUnavailable, "127.0.0.1:1"},
		{"exec k --url redis://127.0.0.1:1/0 -- true", nil, ExitUnavailable, "Cannot use the locks: open redis lock at redis://127.0.0.1:1/0: "},
		{"exec k --socket / -- true", nil, ExitUnavailable, "Cannot use the locks: connect to the hub: socket /: "},
		{"exec k --url redis://127.0.0.1:1/x -- true", nil, ExitUsage, "Cannot use the locks: open redis lock at redis://127.0.0.1:1/x: "},
		{"limit k --rate 5/1s --url redis://127.0.0.1:1/0 -- true", nil, ExitUnavailable, "Cannot use the limits: open redis limit at redis://127.0.0.1:1/0: "},
		{"ls --url redis://127.0.0.1:1/0", nil, ExitUnavailable, "127.0.0.1:1"},
		{"nothing", nil, ExitUsage, "nothing"},
		{"exec k redis://u:secret@h", nil, ExitUsage, "• mega-lock exec k -- redis://***@h"},
		{"renew redis://u:secret@h", nil, ExitUsage, `"redis://***@h" is not a handle`},
		{"exec", []string{"a b", "--", "true"}, ExitUsage, "The key \"a b\" contains ' '"},
		{"exec", []string{"", "--", "true"}, ExitUsage, "The key is empty."},
		{"limit --rate 1/1s", []string{"a b", "--", "true"}, ExitUsage, "The key \"a b\" contains ' '"},
		{"version", nil, ExitOK, " go1."},
		{"--version", nil, ExitOK, " go1."},
		{"version --json", nil, ExitOK, `"mega": "`},
		{"version exec", nil, ExitUsage, `"exec"`},
		{"help version", nil, ExitOK, "mega-lock version [flags]"},
		{"help", nil, ExitOK, "mega-lock VERB [flags]"},
		{"help exec", nil, ExitOK, "(default: the command)"},
		{"help acquire", nil, ExitOK, "(default: acquire)"},
		{"help exec", nil, ExitOK, "--cleanup CMD"},
		{"help nothing", nil, ExitUsage, "Unknown verb \"nothing\""},
		{"help --json", nil, ExitOK, "mega-lock VERB [flags]"},
		{"help --json exec", nil, ExitOK, "--cleanup CMD"},
		{"help nothing --json", nil, ExitUsage, `"code": "cli.unknown_verb"`},
		{"acquire k --max 0", nil, ExitUsage, "--max TIME, above 0"},
		{"acquire k --for 0", nil, ExitUsage, "--for PID or --max TIME, above 0"},
		{"exce", nil, ExitUsage, "• did you mean: mega-lock exec"},
		{"ls --sokcet auto", nil, ExitUsage, "• did you mean: --socket"},
		{"exec k --slots 2 --init= -- true", nil, ExitUsage, "it is empty"},
		{"exec k --slots 2 --cleanup= -- true", nil, ExitUsage, "it is empty"},
		{"exec k --namespace a,b -- true", nil, ExitUsage, `--namespace "a,b" is not valid`},
		{"limit k --rate 5/1s --namespace a,b -- true", nil, ExitUsage, `--namespace "a,b" is not valid`},
		{"exec k --url= -- true", nil, ExitUsage, "it is empty"}, // a variable that is not set is not this machine
		{"exec k --url-env= -- true", nil, ExitUsage, "it is empty"},
		{"exec k --socket= -- true", nil, ExitUsage, "it is empty"},
		{"exec k --wait abc -- true", nil, ExitUsage, "it must be a time such as 500ms, 10s or 1m30s"},
		{"exec k --wait 5 -- true", nil, ExitUsage, "it must be a time such as 500ms, 10s or 1m30s"},
		{"acquire k --max 1m --ttl 1ms", nil, ExitUsage, "--ttl 1ms is too short; it must be at least 1s."},
		{"acquire k --for abc", nil, ExitUsage, `"abc" for "--for" flag: it must be a whole number`},
		{"acquire k --for 99999999999999999999", nil, ExitUsage, "the number is too large"},
		{"limit k -- true", nil, ExitUsage, "--rate 5/800ms"},
		{"limit k", nil, ExitUsage, "• mega-lock limit k --rate 5/800ms -- CMD"},
		{"limit show k", nil, ExitUsage, "limit show is a verb of an application"},
		{"limit pause k", nil, ExitUsage, "• show the limits of scripts: mega-lock limit ls"},
		{"limit show k --rate 5/1s", nil, ExitUsage, "• mega-lock limit show --rate 5/1s -- k"},
		{"limit -- true", nil, ExitUsage, "• name one: mega-lock limit KEY --rate 5/800ms -- CMD"},
		{"limit k --rate 2/1s --rate 9/1h --", nil, ExitUsage, "• mega-lock limit k --rate 2/1s --rate 9/1h -- CMD"},
		{"limit k --rate 0/1s -- true", nil, ExitUsage, "--rate 0/1s is not valid: N is 0, want 1 to"},
		{"limit k --rate 5/1s --cost 6 -- true", nil, ExitUsage, "--cost 6 is not valid; it must be 1 to 5"},
		{"limit k --rate 5/1s --url= -- true", nil, ExitUsage, "it is empty"},
	} {
		out, status := p.start(x.args, x.cmd...).rest()
		if status != x.status || !strings.Contains(out, x.says) || strings.Contains(out, "connection pool") { // of the client's own log
			t.Errorf("%s %q: exit status %d, want %d: %s", x.args, x.cmd, status, x.status, out)
		}
	}
}

func TestTextThatAHolderCannotReceiveIsRefusedBeforeAnythingStarts(t *testing.T) { // L14
	p := newPlace(t)
	for _, args := range [][]string{
		{"exec", "a\xff", "--", "true"},
		{"exec", "a b", "--", "true"},
		{"exec", "k", "--label", "a\xff", "--", "true"},
		{"exec", "k", "--slots", "2", "--init", "touch \xff", "--", "true"},
		{"exec", "k", "--slots", "2", "--cleanup", "touch \xff", "--", "true"},
		{"acquire", "a\xff", "--max", "1s"},
	} {
		if out, status := p.start("", args...).rest(); status != ExitUsage {
			t.Errorf("%q: exit status %d: %s", args, status, out)
		}
	}
	if _, err := os.Stat(p.socket()); err == nil {
		t.Error("a keeper was started")
	}
}

func TestCommandThatCannotBeStartedFreesTheLockAtOnce(t *testing.T) {
	p := newPlace(t)
	script := filepath.Join(p.dir, "script")
	if err := os.WriteFile(script, []byte("echo no interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, status := p.start("exec k --", script).rest()
	if status != ExitNotRunnable || !strings.Contains(out, "exec format error") {
		t.Errorf("exit status %d: %s", status, out)
	}
	l := memoryLocks(t)
	lease, err := l.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release() }()
	h := &holder{messages: make(chan message, 1), order: Order{TTL: longTime}}
	h.messages <- message{Done: true}
	close(h.messages)
	if group, err := h.awaitStart(lease); group != 0 || err != nil {
		t.Errorf("the holder has the group %d, %v", group, err)
	}
}

func TestStepsOfASlotDoNotSeeTheSlotAround(t *testing.T) { // X9
	p := newPlace(t)
	t.Setenv("MEGA_RUN_LEFT", "outer")
	if out, status := p.start("exec k --slots 1 --init", "true", "--", "true").rest(); status != 0 { // from now on it is clean
		t.Fatalf("exit status %d: %s", status, out)
	}
	if out, status := p.start("exec k --slots 1 --init", "echo left:$MEGA_RUN_LEFT", "--", "true").rest(); status != 0 || out != "left:\n" {
		t.Errorf("exit status %d: %s", status, out)
	}
}

func TestBusyLockIsNotAcquired(t *testing.T) { // X2
	p := newPlace(t)
	first := p.start("exec k -- "+os.Args[0]+" work", p.dir, "1h")
	first.runs()
	out, status := p.start("exec k --wait 0 -- true").rest()
	if status != ExitNotAcquired || !strings.Contains(out, "held by") {
		t.Errorf("exit status %d: %s", status, out)
	}
	next := p.start("exec k --wait 1h --", "echo", "next")
	l := p.locks()
	p.waiters(l, 1)
	if err := redistest.Signal(first.PID(), syscall.SIGINT); err != nil { // X3: to the group
		t.Fatal(err)
	}
	if out, status := first.rest(); status != 130 || !strings.Contains(out, "signal interrupt") {
		t.Errorf("exit status %d: %s", status, out)
	}
	if out, status := next.rest(); status != 0 || out != "next\n" {
		t.Errorf("exit status %d: %s", status, out)
	}
	p.unused(l, "k")
}

// waiters waits until n scripts wait for the key k.
func (p *place) waiters(l *lock.Locker, n int) {
	p.t.Helper()
	p.until(itoa(n)+" wait", func() bool {
		s, err := l.Inspect(p.t.Context(), "k")
		return err == nil && len(s.Waiters) == n
	})
}

func TestSignalWhileWaitingLeavesNothing(t *testing.T) { // X8
	p := newPlace(t)
	p.start("exec k -- "+os.Args[0]+" work", p.dir, "1h").runs()
	l := p.locks()
	waits := p.start("exec k --wait 1h -- true")
	p.waiters(l, 1)
	if err := redistest.Signal(waits.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if out, status := waits.rest(); status != 130 {
		t.Errorf("exit status %d: %s", status, out)
	}
	p.waiters(l, 0)
}

// A cleanup may take as long as its pool allows. A person who does not wait for it does
// not cut it.
func TestInterruptLeavesTheCleanupToTheHolder(t *testing.T) { // X9
	p := newPlace(t)
	gate := filepath.Join(p.dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, status := p.start("exec k --slots 1 --init true -- true").rest(); status != 0 { // from now on it is clean
		t.Fatalf("exit status %d: %s", status, out)
	}
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		s := p.start("exec k --slots 1 --cleanup", "echo cleans; read line <"+gate+"; echo cleaned", "--", "true")
		s.expect("cleans")
		if err := redistest.Signal(s.PID(), signal); err != nil {
			t.Fatal(err)
		}
		s.expect("continues in the background")
		if exit, ok := errors.AsType[*exec.ExitError](s.Wait()); !ok || exit.ExitCode() != 128+int(signal) {
			t.Errorf("%v: the status is %v", signal, exit)
		}
		if out, status := p.start("exec k --slots 1 --wait 0 -- true").rest(); status != ExitNotAcquired {
			t.Errorf("%v: the slot is free during the cleanup: exit status %d: %s", signal, status, out)
		}
		if err := os.WriteFile(gate, []byte("\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.expect("cleaned")
	}
	p.unused(p.locks(), "k")
}

// The first holder of a slot cleans it before its command.
func TestInterruptBeforeTheCommandLeavesTheCleanupToTheHolder(t *testing.T) { // X9
	p := newPlace(t)
	gate := filepath.Join(p.dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	s := p.start("exec k --slots 1 --cleanup", "echo cleans; read line <"+gate+"; echo cleaned", "--", "echo", "runs")
	s.expect("cleans")
	if err := redistest.Signal(s.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	s.expect("continues in the background")
	if exit, ok := errors.AsType[*exec.ExitError](s.Wait()); !ok || exit.ExitCode() != 130 {
		t.Errorf("the status is %v", exit)
	}
	if err := os.WriteFile(gate, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.expect("cleaned")
	p.unused(p.locks(), "k")
	for line := range s.out {
		if line == "runs" {
			t.Error("the command runs after the interrupt")
		}
	}
}

// X4: a holder that has lost its slot does not clean it, so that no cleanup continues.
func TestInterruptAfterALossLeavesTheStatusOfTheLoss(t *testing.T) {
	l := &launcher{
		p: Process{Name: "mega-lock", Stderr: io.Discard}, order: Order{Cleanup: "true"}, group: 1, lossReason: "forced",
		messages: json.NewEncoder(io.Discard), reports: make(chan report), signals: make(chan os.Signal),
	}
	ended := make(chan error, 1)
	go func() { ended <- l.finish(0) }()
	l.signals <- syscall.SIGINT
	select {
	case err := <-ended:
		t.Fatalf("the interrupt ends the wait: %v", err)
	case l.reports <- report{What: over}:
	}
	if e, ok := errors.AsType[*Error](<-ended); !ok || e.Exit != ExitLost {
		t.Errorf("got %v, want lock.lost", e)
	}
}

func TestCommandDiesWithTheLauncher(t *testing.T) { // X5
	p := newPlace(t)
	s := p.start("exec k --", "sh", "-c", os.Args[0]+" work "+p.dir+" 1h; true")
	pid := s.runs()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	p.until("the child of the shell is dead", func() bool { return !lives(pid) })
	p.unused(p.locks(), "k")
}

// lives reports whether the group of a process has a member that is no zombie.
func lives(pid int) bool {
	group, err := syscall.Getpgid(pid)
	return err == nil && alive(group)
}

func TestForcedReleaseEndsTheCommand(t *testing.T) { // X2
	p := newPlace(t)
	s := p.start("exec k -- "+os.Args[0]+" work", p.dir, "1h")
	s.runs()
	if n, err := p.locks().ForceRelease(t.Context(), "k", "for a test"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if out, status := s.rest(); status != ExitLost || !strings.Contains(out, "for a test") {
		t.Errorf("exit status %d: %s", status, out)
	}
}

// The launcher may see the end of a killed command before the reports of the holder.
func TestReasonOfALossIsNotRepeated(t *testing.T) { // X2
	lost := &lock.LostError{Key: "k", Cause: lock.Expired}
	l := &launcher{group: 1, messages: json.NewEncoder(io.Discard), reports: make(chan report, 2)}
	l.reports <- report{What: stopping, Text: lost.Error()}
	l.reports <- report{What: over, Err: Explain(&Backend{}, lost)}
	const want = `The command was ended because its lease was lost: lock: lost "k": expired.`
	if err := l.finish(0); err == nil || err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

// Of many scripts that start at once, none is the hub, and all share one.
func TestManyScriptsStartOneKeeper(t *testing.T) { // X7
	p := newPlace(t)
	all := make([]*script, max(suite.Scaled(12), 3))
	for i := range all {
		all[i] = p.start("exec k --wait 1h -- "+os.Args[0]+" work", p.dir, "1ms")
	}
	for _, s := range all {
		if out, status := s.rest(); status != 0 {
			t.Errorf("exit status %d: %s", status, out)
		}
	}
	p.whole()
}

// The keeper closes what it inherits: a script's output ends with the script.
func TestKeeperDoesNotHoldTheOutput(t *testing.T) { // X7
	p := newPlace(t)
	start := time.Now()
	out, status := p.start("exec k -- echo done").rest() // to the end of the pipe
	if status != 0 || out != "done\n" || time.Since(start) > idleTime {
		t.Errorf("exit status %d after %v: %s", status, time.Since(start), out)
	}
}
