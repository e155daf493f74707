//go:build linux || darwin

package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/megaframework/mega/lock"
)

// held reports how many holders the key k has.
func (p *place) held(l *lock.Locker) int {
	p.t.Helper()
	s, err := l.Inspect(p.t.Context(), "k")
	if err != nil {
		p.t.Fatal(err)
	}
	return len(s.Holders)
}

func TestAcquirePrintsAHandleAndReleaseEndsIt(t *testing.T) { // X6
	p := newPlace(t)
	out, status := p.start("acquire k --max 1h --json").rest() // to the end of the pipe, as $(…)
	var h Handle
	if err := json.Unmarshal([]byte(out), &h); err != nil || status != 0 || h.Key != "k" || h.Fence == 0 || !IsHandle(h.Handle) {
		t.Fatalf("exit status %d: %s", status, out)
	}
	file := filepath.Join(p.dir, "mega", "leases", h.Handle)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the lease: %v, %v", info, err)
	}
	l := p.locks()
	if n := p.held(l); n != 1 {
		t.Errorf("%d holders", n)
	}
	if out, status := p.start("renew " + h.Handle).rest(); status != 0 || out != "" {
		t.Errorf("renew: exit status %d: %s", status, out)
	}
	if out, status := p.start("release " + h.Handle).rest(); status != 0 || out != "" {
		t.Errorf("release: exit status %d: %s", status, out)
	}
	p.unused(l, "k")
	for _, verb := range []string{"renew ", "release "} {
		if out, status := p.start(verb + h.Handle).rest(); status != ExitLost || !strings.Contains(out, "is over") {
			t.Errorf("%safter the release: exit status %d: %s", verb, status, out)
		}
	}
	p.until("the folder is empty", func() bool {
		left, err := os.ReadDir(filepath.Dir(file))
		return err == nil && len(left) == 0
	})
}

func TestLeaseEndsWithItsProcess(t *testing.T) { // X6
	p := newPlace(t)
	owner := p.start("exec other -- "+os.Args[0]+" work", p.dir, "1h")
	owner.runs()
	out, status := p.start("acquire k --for " + itoa(owner.PID())).rest()
	if status != 0 || !IsHandle(strings.TrimSpace(out)) {
		t.Fatalf("exit status %d: %s", status, out)
	}
	l := p.locks()
	if n := p.held(l); n != 1 {
		t.Errorf("%d holders", n)
	}
	if err := owner.Kill(); err != nil {
		t.Fatal(err)
	}
	p.unused(l, "k")
}

// The process may end before the backend has answered that the key is busy, or while it
// does not answer.
func TestEndOfTheProcessForIsNotAnUnavailableBackend(t *testing.T) { // X2
	for _, cause := range []error{context.Canceled, lock.ErrUnavailable} {
		err := fmt.Errorf("acquire %q: %w: %w", "k", cause, errForGone)
		if e := Explain(&Backend{Socket: "/hub.sock"}, err); e.Exit != ExitNotAcquired || e.Code != "lock.not_acquired" || !strings.Contains(e.Text, "the process --for has ended") {
			t.Errorf("%v: got %+v", cause, e)
		}
	}
}

// A process that starts later may get the number of the one that has ended.
func TestAcquireForAProcessThatHasEndedStopsWaiting(t *testing.T) { // X6
	p := newPlace(t)
	holder := p.start("exec k -- "+os.Args[0]+" work", p.dir, "1h")
	holder.runs()
	owner := p.start("exec other -- "+os.Args[0]+" work", p.dir, "1h")
	owner.runs()
	acquire := p.start("acquire k --wait 1h --for " + itoa(owner.PID()))
	l := p.locks()
	p.until("the acquire waits", func() bool {
		s, err := l.Inspect(t.Context(), "k")
		return err == nil && len(s.Waiters) == 1
	})
	if err := owner.Kill(); err != nil {
		t.Fatal(err)
	}
	if out, status := acquire.rest(); status != ExitNotAcquired || !strings.Contains(out, "the process --for has ended") {
		t.Errorf("exit status %d: %s", status, out)
	}
	if s, err := l.Inspect(t.Context(), "k"); err != nil || len(s.Waiters) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestLeaseEndsAfterItsTime(t *testing.T) { // X6
	p := newPlace(t)
	if out, status := p.start("acquire k --max 10ms").rest(); status != 0 {
		t.Fatalf("exit status %d: %s", status, out)
	}
	p.unused(p.locks(), "k")
}

func TestLostLeaseIsReported(t *testing.T) { // X6
	p := newPlace(t)
	out, status := p.start("acquire k --max 1h").rest()
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, out)
	}
	if n, err := p.locks().ForceRelease(t.Context(), "k", "for a test"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if out, status := p.start("renew " + strings.TrimSpace(out)).rest(); status != ExitLost {
		t.Errorf("exit status %d: %s", status, out)
	}
}

// A keeper that ends does not accept the connections in its queue.
func TestLeaseOfAKeeperThatEndsIsOver(t *testing.T) { // X6
	p := newPlace(t)
	t.Setenv("XDG_RUNTIME_DIR", p.dir)
	if err := os.MkdirAll(leasesFolder(), 0o700); err != nil {
		t.Fatal(err)
	}
	handle := handlePrefix + "abc"
	l, err := net.Listen("unix", filepath.Join(leasesFolder(), handle)+socketSuffix)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if conn, err := l.Accept(); err == nil {
			_ = l.Close() // removes the socket
			_ = conn.Close()
		}
	}()
	e, ok := errors.AsType[*Error](ask(handle, request{Renew: true}))
	if !ok || e.Code != "lock.lost" || e.Exit != ExitLost {
		t.Errorf("got %v", e)
	}
}

func TestAcquireThatCannotPrintItsHandleGivesTheLockBack(t *testing.T) { // X6
	closed, err := os.Open(os.DevNull) // it cannot be written
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	p := newPlace(t)
	var says strings.Builder
	cmd := exec.Command(os.Args[0], "acquire", "k", "--max", "1h")
	cmd.Env, cmd.Stdout, cmd.Stderr = p.environ(), closed, &says
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != ExitUnavailable || !strings.Contains(says.String(), "cli.output") {
		t.Errorf("exit status %d: %s", cmd.ProcessState.ExitCode(), says.String())
	}
	p.unused(p.locks(), "k")
}

func TestAcquireThatIsKilledBeforeItsHandleIsReadGivesTheLockBack(t *testing.T) { // X6
	p := newPlace(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_ = r.Close() // the write of the handle is SIGPIPE
	cmd := exec.Command(os.Args[0], "acquire", "k", "--max", "1h")
	cmd.Env, cmd.Stdout = p.environ(), w
	if err := cmd.Run(); err == nil {
		t.Error("the handle was written")
	}
	p.unused(p.locks(), "k")
}

func TestReleaseKeepsTheFilesOfAKeeperThatMayLive(t *testing.T) { // X6
	p := newPlace(t)
	t.Setenv("XDG_RUNTIME_DIR", p.dir)
	path := filepath.Join(leasesFolder(), handlePrefix+"abc")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	// A socket whose queue is full refuses with EAGAIN, not as a dead one does.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path + socketSuffix}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		conn, err := net.Dial("unix", path+socketSuffix)
		if err != nil {
			break
		}
		defer conn.Close()
	}
	failed, ok := errors.AsType[*Error](ask(handlePrefix+"abc", request{Renew: true}))
	if !ok || failed.Exit != ExitUnavailable {
		t.Errorf("%+v", failed)
	}
	if _, err := os.Stat(path + socketSuffix); err != nil {
		t.Error(err)
	}
}

func TestLabelOfACommandIsValid(t *testing.T) {
	for _, name := range []string{strings.Repeat("한", 40), "a\nb", "a\xffb\u009b", "a\u202eb"} {
		label := commandLabel("/bin/" + name)
		if label == "" || len(label) > 64 || !utf8.ValidString(label) || strings.ContainsFunc(label, unicode.IsControl) {
			t.Errorf("%q: %q", name, label)
		}
	}
	p := newPlace(t)
	command := filepath.Join(p.dir, "a\nb")
	if err := os.Symlink("/bin/true", command); err != nil {
		t.Fatal(err)
	}
	if out, status := p.start("exec k --", command).rest(); status != 0 {
		t.Errorf("exit status %d: %s", status, out)
	}
}

func TestAcquireNeedsAnEnd(t *testing.T) { // X6
	p := newPlace(t)
	for args, says := range map[string]string{
		"acquire k":                  "--for PID or --max TIME",
		"acquire k --for 1":          "--for 1 is not",
		"acquire k --for 0 --max 1m": "--for 0 is not",
		"acquire --max 1s":           "KEY is missing",
		"acquire a b --max 1s":       "One KEY",
		"release":                    "HANDLE is missing",
		"release k":                  `"k" is not a handle`,
		"renew ../lease-a":           "is not a handle",
		"acquire k --max 1s --x":     "--x",
		"acquire k --max -1s":        "negative",
		"acquire k --for notapid":    "notapid",
		"acquire k --max 1s -- ls":   "One KEY",
	} {
		if out, status := p.start(args).rest(); status != ExitUsage || !strings.Contains(out, says) {
			t.Errorf("%s: exit status %d: %s", args, status, out)
		}
	}
}

func TestListShowsHoldersAndStartsNothing(t *testing.T) {
	p := newPlace(t)
	if out, status := p.start("ls --json").rest(); status != 0 || !strings.Contains(out, `"locks": []`) || !strings.Contains(out, `"driver": "cluster"`) {
		t.Errorf("exit status %d: %s", status, out)
	}
	if out, status := p.start("ls").rest(); status != 0 || out != "socket "+p.socket()+": cluster, scope node\n"+NoLock+"\n" {
		t.Errorf("exit status %d: %s", status, out)
	}
	if _, err := os.Stat(p.socket()); err == nil {
		t.Error("ls has started a keeper")
	}
	if out, status := p.start("acquire k --max 1h --label mine").rest(); status != 0 {
		t.Fatalf("exit status %d: %s", status, out)
	}
	if out, status := p.start("ls").rest(); status != 0 || !strings.Contains(out, ": cluster, scope node\n  KEY  SLOT  HOLDER") || !strings.Contains(out, "mine") {
		t.Errorf("exit status %d: %s", status, out)
	}
	if out, status := p.start("ls other --json").rest(); status != 0 || !strings.Contains(out, `"total": 0`) {
		t.Errorf("exit status %d: %s", status, out)
	}
}
