//go:build linux || darwin

package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/drivers/memory"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
)

// limits returns a client at the place's socket, which is the hub if it comes
// first: what was granted then lasts as long as the test.
func (p *place) limits() *limit.Limiter {
	p.t.Helper()
	n, err := cluster.Dial(p.t.Context(), cluster.Config{Socket: p.socket()})
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

// permits waits until n processes wait for units of key.
func (p *place) permits(l *limit.Limiter, key string, n int) {
	p.t.Helper()
	p.until(itoa(n)+" processes wait for "+key, func() bool {
		s, err := l.Inspect(p.t.Context(), key)
		return err == nil && len(s.Waiters) == n
	})
}

func TestExitStatusUnderALimitIsTheCommands(t *testing.T) {
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
		{"k --rate 100/1s -- no-such-command", nil, ExitNotFound, "no-such-command does not exist"},
		{"k --rate 100/1s -- /", nil, ExitNotRunnable, "Cannot run /"},
		{"once --rate 1/24h --allow -- true", nil, 0, ""},
		{"once --rate 1/24h --allow -- true", nil, ExitNotAcquired, "rate 1 per 24h, retry after"},
		{"once --rate 1/24h -- true", nil, ExitNotAcquired, "(limit.limited)"}, // known to be too late: no wait
		{"once --rate 1/24h --allow --url-env LIMITS_URL -- true", nil, 0, ""},
		{"once --rate 1/24h --allow --url-env LIMITS_URL -- true", nil, ExitNotAcquired, "rate 1 per 24h, retry after"},
		{"k --rate 1/1s --url redis://127.0.0.1:1/0 -- true", nil, ExitUnavailable, "127.0.0.1:1"},
	} {
		out, status := p.start("limit "+x.args, x.cmd...).rest()
		if status != x.status || !strings.Contains(out, x.says) {
			t.Errorf("%s %q: exit status %d, want %d: %s", x.args, x.cmd, status, x.status, out)
		}
	}
}

func TestLimitsInUseAreListed(t *testing.T) {
	p := newPlace(t)
	if out, status := p.start("limit ls").rest(); status != 0 || !strings.Contains(out, "  no limit is in use\n") {
		t.Errorf("without a keeper: exit status %d: %s", status, out)
	}
	p.limits()
	for _, key := range []string{"partner:acme", "other"} {
		if out, status := p.start("limit " + key + " --rate 5/24h --cost 2 -- true").rest(); status != 0 {
			t.Fatalf("exit status %d: %s", status, out)
		}
	}
	if out, status := p.start("limit ls partner").rest(); status != 0 || !strings.Contains(out, "  KEY           RATE       USED  LEFT  NEXT FREE  WAITING  PAUSED\n  partner:acme  5 per 24h  2     3     now        0        -\n") || strings.Contains(out, "other") {
		t.Errorf("exit status %d: %s", status, out)
	}
	var all []LimitListing
	out, status := p.start("limit ls --json").rest()
	if err := json.Unmarshal([]byte(out), &all); err != nil || status != 0 || len(all) != 1 || all[0].Total != 2 || all[0].Socket != p.socket() {
		t.Errorf("exit status %d, %v: %s", status, err, out)
	}
	for _, flag := range []string{"--wait 1s", "--allow", "--cost 2"} {
		if out, status := p.start("limit ls " + flag).rest(); status != ExitUsage || !strings.Contains(out, "cli.wrong_flag") {
			t.Errorf("limit ls %s: status %d: %s", flag, status, out)
		}
	}
	if out, status := p.start("limit ls --rate 5/24h -- echo a key, too").rest(); status != 0 || out != "a key, too\n" {
		t.Errorf("exit status %d: %s", status, out)
	}
}

// A wrong command line starts no keeper, and says what is wrong.
func TestWrongCommandLineOfLimit(t *testing.T) {
	for args, says := range map[string]string{
		"k -- true":                                         "--rate is missing",
		"--rate 1/1s -- true":                               "KEY is missing",
		"a b --rate 1/1s -- true":                           `"b"`,
		"k --rate 1/1s true":                                `"--" in front of the command`,
		"k --rate 1/1s --":                                  `command after "--"`,
		"k --rate 5 -- true":                                `no "/"`,
		"k --rate x/1s -- true":                             `"x" is not a number`,
		"k --rate 99999999999999999999/1s -- true":          "N is 9223372036854775807, want 1 to 1000000000",
		"k --rate 5/soon -- true":                           `"soon" is not a time`,
		"k --rate 0/1s -- true":                             "N is 0, want 1 to",
		"k --rate 1/1ms -- true":                            "Per is 1ms, want 10ms",
		"k --rate 1/1s --rate 2/1000ms -- true":             "two rates",
		"k --rate 5/1s --cost 6 -- true":                    "--cost 6 is not valid; it must be 1 to 5",
		"k --rate 5/1s --cost 0 -- true":                    "--cost 0",
		"k --rate 5/1s --wait -1s -- true":                  "--wait -1s is negative",
		"k --rate 5/1s --wait 1s --allow -- true":           "exclude",
		"k --rate 5/1s --url redis://a:b@localhost -- true": "--url-env",
		"k\u200b --rate 5/1s -- true":                       "limit.invalid_key",
		"k" + strings.Repeat(" --rate 1/1s", limit.MaxRates+1) + " -- true": "9 rates",
	} {
		var out bytes.Buffer
		p := Process{Name: "mega", Stdout: &out, Stderr: &out}
		if status := Run(p, LimitVerb("limit"), strings.Fields(args)); status != ExitUsage || !strings.Contains(out.String(), says) {
			t.Errorf("%s: exit status %d, want %q: %s", args, status, says, &out)
		}
	}
}

func TestProcessBecomesTheCommand(t *testing.T) {
	p := newPlace(t)
	s := p.start("limit k --rate 1/1s --", "sh", "-c", "echo $$")
	if out, _ := s.rest(); strings.TrimSpace(out) != strconv.Itoa(s.PID()) {
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
		all[i] = p.start("limit k --rate 3/400ms --wait 1m --", os.Args[0], "now")
	}
	var began []int64
	for _, s := range all {
		out, status := s.rest()
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
	if out, status := p.start("limit k --rate 1/24h -- true").rest(); status != 0 {
		t.Fatalf("exit status %d: %s", status, out)
	}
	waits := p.start("limit k --rate 1/24h --wait 48h -- true")
	p.permits(l, "k", 1)
	if err := redistest.Signal(waits.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if out, status := waits.rest(); status != 130 {
		t.Errorf("exit status %d: %s", status, out)
	}
	if s, err := l.Inspect(t.Context(), "k"); err != nil || len(s.Waiters) != 0 { // it is withdrawn before the end
		t.Errorf("%d tickets are left: %v", len(s.Waiters), err)
	}
}

// A process that ends with its last client would take the windows with it.
func TestKeeperStaysWhileGrantsCount(t *testing.T) { // X7
	const per = 400 * time.Millisecond
	p := newPlace(t)
	n, err := cluster.Dial(t.Context(), cluster.Config{Socket: p.socket()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := limit.New(n.Limits("here"), limit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if r, err := l.Allow(t.Context(), "k", limit.Limit{Rates: []limit.Rate{{N: 1, Per: per}}}); err != nil || !r.Allowed {
		t.Fatalf("not allowed: %v", err)
	}
	stay(t.Context(), n, time.Millisecond, time.Millisecond)
	if stayed := time.Since(start); stayed < per {
		t.Errorf("the keeper has ended after %v, while a grant counts for %v", stayed, per)
	}
	if err := errors.Join(l.Close(context.Background()), n.Close(context.Background())); err != nil {
		t.Error(err)
	}
}

// late is a driver of limits that loses its first request, which arrives later.
type late struct {
	driver.Driver
	first func() (driver.Answer, error)
}

func (l *late) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	if l.first == nil {
		l.first = func() (driver.Answer, error) { return l.Driver.Take(context.Background(), r) }
		return driver.Answer{}, driver.ErrUnavailable
	}
	return l.Driver.Take(ctx, r)
}

// A copy of a request that arrives after its refusal takes no units (W6).
func TestLateCopyOfARefusedPermitConsumesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &late{Driver: memory.NewLimit()}
		o := PermitOrder{Key: "k", Rates: Rates{{N: 1, Per: time.Second}}, Cost: 1}
		unit := driver.Request{Key: o.Key, Rates: o.Rates, Cost: 1}
		if a, err := d.Driver.Take(t.Context(), unit); err != nil || !a.Granted {
			t.Fatal(a, err)
		}
		if err, ok := errors.AsType[*Error](newPermit(&o, d, "test").wait(t.Context())); !ok || err.Exit != ExitNotAcquired {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the window passes
		if a, err := d.first(); err != nil || a.Granted {
			t.Errorf("the copy: got %+v, %v", a, err)
		}
		if a, err := d.Driver.Take(t.Context(), unit); err != nil || !a.Granted {
			t.Errorf("got %+v, %v, want the unit", a, err)
		}
	})
}
