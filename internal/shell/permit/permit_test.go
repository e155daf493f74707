//go:build linux || darwin

package permit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/shell"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/limit"
)

// role makes the test binary the program.
const role = "MEGA_TEST_PERMIT"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	p := shell.Process{Name: "mega", Verbs: []string{"lock"}, Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
	switch os.Args[1] {
	case "now": // a command
		fmt.Println(time.Now().UnixNano())
		os.Exit(0)
	case "lock": // the keeper
		os.Exit(shell.Main(p, os.Args[2:]))
	}
	os.Exit(shell.Run(p, Verb("limit"), os.Args[2:]))
}

// place is a folder for the socket of scripts.
type place struct {
	t   *testing.T
	dir string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "mega") //nolint:usetesting // a path with the test's name in it is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "mega"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &place{t, dir}
}

// script is a running program with its output.
type script struct {
	*redistest.Process
	out bytes.Buffer
}

// start starts `mega limit`. Words in args are split at blanks.
func (p *place) start(args string, more ...string) *script {
	p.t.Helper()
	s := &script{}
	cmd := exec.Command(os.Args[0], append(append([]string{"limit"}, strings.Fields(args)...), more...)...)
	cmd.Env = append(os.Environ(), role+"=program", "XDG_RUNTIME_DIR="+p.dir)
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	var err error
	if s.Process, err = redistest.StartProcess(cmd); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = s.Kill() })
	return s
}

// end waits for the end, and returns the output and the exit status.
func (s *script) end() (string, int) {
	exit, ok := errors.AsType[*exec.ExitError](s.Wait())
	switch {
	case !ok:
		return s.out.String(), 0
	case exit.ExitCode() < 0:
		return s.out.String(), 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
	}
	return s.out.String(), exit.ExitCode()
}

// limits returns a client at the place's socket, which is the hub if it comes
// first: what was granted then lasts as long as the test.
func (p *place) limits() *limit.Limiter {
	p.t.Helper()
	n, err := cluster.Dial(p.t.Context(), cluster.Config{Socket: filepath.Join(p.dir, "mega", "cluster.sock")})
	if err != nil {
		p.t.Fatal(err)
	}
	l, err := limit.New(n.Limits(""), limit.Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := errors.Join(l.Close(context.Background()), n.Close(context.Background())); err != nil {
			p.t.Error(err)
		}
	})
	return l
}

// waiters waits until n processes wait for key.
func (p *place) waiters(l *limit.Limiter, key string, n int) {
	p.t.Helper()
	for bound := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s, err := l.Inspect(p.t.Context(), key)
		if err == nil && len(s.Waiters) == n {
			return
		}
		if time.Now().After(bound) {
			p.t.Fatalf("%d processes wait for %s, want %d: %v", len(s.Waiters), key, n, err)
		}
	}
}

func TestExitStatusIsTheCommands(t *testing.T) {
	p := newPlace(t)
	p.limits()
	t.Setenv("LIMITS_URL", redistest.Start(t, redistest.Options{}).URL())
	for _, x := range []struct {
		args   string
		cmd    []string
		status int
		says   string
	}{
		{"k --rate 100/1s --", []string{"sh", "-c", "echo out; exit 3"}, 3, "out"},
		{"k --rate 100/1s --rate 1000/24h --cost 2 --", []string{"sh", "-c", "kill -KILL $$"}, 137, ""},
		{"k --rate 100/1s -- no-such-command", nil, shell.ExitNotFound, "no-such-command does not exist"},
		{"k --rate 100/1s -- /", nil, shell.ExitNotRunnable, "Cannot run /"},
		{"once --rate 1/24h --allow -- true", nil, 0, ""},
		{"once --rate 1/24h --allow -- true", nil, shell.ExitNotAcquired, "rate 1 per 24h0m0s, retry after"},
		{"once --rate 1/24h -- true", nil, shell.ExitNotAcquired, "(limit.limited)"}, // known to be too late: no wait
		{"once --rate 1/24h --allow --url-env LIMITS_URL -- true", nil, 0, ""},
		{"once --rate 1/24h --allow --url-env LIMITS_URL -- true", nil, shell.ExitNotAcquired, "rate 1 per 24h0m0s, retry after"},
		{"k --rate 1/1s --url redis://127.0.0.1:1/0 -- true", nil, shell.ExitUnavailable, "127.0.0.1:1"},
	} {
		out, status := p.start(x.args, x.cmd...).end()
		if status != x.status || !strings.Contains(out, x.says) {
			t.Errorf("%s %q: exit status %d, want %d: %s", x.args, x.cmd, status, x.status, out)
		}
	}
}

// A wrong command line starts no keeper, and says what is wrong.
func TestWrongCommandLine(t *testing.T) {
	for args, says := range map[string]string{
		"k -- true":                                         "--rate is missing",
		"--rate 1/1s -- true":                               "KEY is missing",
		"a b --rate 1/1s -- true":                           `"b"`,
		"k --rate 1/1s true":                                `"--" in front of the command`,
		"k --rate 1/1s --":                                  `command after "--"`,
		"k --rate 5 -- true":                                `no "/"`,
		"k --rate x/1s -- true":                             `"x" is not a number`,
		"k --rate 5/soon -- true":                           `"soon" is not a time`,
		"k --rate 0/1s -- true":                             "N is 0, want 1 to",
		"k --rate 1/1ms -- true":                            "Per is 1ms, want 10ms",
		"k --rate 1/1s --rate 2/1000ms -- true":             "two rates",
		"k --rate 5/1s --cost 6 -- true":                    "Cost is 6",
		"k --rate 5/1s --cost 0 -- true":                    "--cost 0",
		"k --rate 5/1s --wait -1s -- true":                  "--wait -1s is negative",
		"k --rate 5/1s --wait 1s --allow -- true":           "exclude",
		"k --rate 5/1s --url redis://a:b@localhost -- true": "--url-env",
		"k\u200b --rate 5/1s -- true":                       "limit.invalid_key",
		"k" + strings.Repeat(" --rate 1/1s", limit.MaxRates+1) + " -- true": "9 rates",
	} {
		var out bytes.Buffer
		p := shell.Process{Name: "mega", Stdout: &out, Stderr: &out}
		if status := shell.Run(p, Verb("limit"), strings.Fields(args)); status != shell.ExitUsage || !strings.Contains(out.String(), says) {
			t.Errorf("%s: exit status %d, want %q: %s", args, status, says, &out)
		}
	}
}

func TestProcessBecomesTheCommand(t *testing.T) {
	p := newPlace(t)
	s := p.start("k --rate 1/1s --", "sh", "-c", "echo $$")
	if out, _ := s.end(); strings.TrimSpace(out) != strconv.Itoa(s.PID()) {
		t.Errorf("the command is process %q, want %d", out, s.PID())
	}
}

// The limiter keeps the window at the hub's clock, and each command begins after
// its grant; so of the times that the commands see, the i-th is never before the
// earliest time of its grant.
func TestShellsKeepTheWindow(t *testing.T) {
	const n, per, shells = 3, 400 * time.Millisecond, 12
	p := newPlace(t)
	start := time.Now()
	all := make([]*script, shells)
	for i := range all {
		all[i] = p.start("k --rate 3/400ms --wait 1m --", os.Args[0], "now")
	}
	var began []int64
	for _, s := range all {
		out, status := s.end()
		at, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if status != 0 || err != nil {
			t.Fatalf("exit status %d: %s", status, out)
		}
		began = append(began, at)
	}
	slices.Sort(began)
	for i, at := range began {
		if early := start.Add(time.Duration(i/n) * per).UnixNano(); at < early {
			t.Errorf("command %d began %v too early", i, time.Duration(early-at))
		}
	}
}

func TestSignalWhileWaitingLeavesNoTicket(t *testing.T) {
	p := newPlace(t)
	l := p.limits()
	if out, status := p.start("k --rate 1/24h -- true").end(); status != 0 {
		t.Fatalf("exit status %d: %s", status, out)
	}
	waits := p.start("k --rate 1/24h --wait 48h -- true")
	p.waiters(l, "k", 1)
	if err := redistest.Signal(waits.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if out, status := waits.end(); status != 130 {
		t.Errorf("exit status %d: %s", status, out)
	}
	if s, err := l.Inspect(t.Context(), "k"); err != nil || len(s.Waiters) != 0 { // it is withdrawn before the end
		t.Errorf("%d tickets are left: %v", len(s.Waiters), err)
	}
}
