//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/failure"
)

func TestLimitsOfARunningProcessAreListedPausedAndReset(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	c := startChild(t, "caller", environ...)
	c.until(t, "called at")
	c.until(t, "called at")
	pid := c.cmd.Process.Pid

	status, stdout, stderr := verb(t, "caller", environ, "limit", "ls", "partner:")
	head := fmt.Sprintf("shop, pid %d: memory, scope process\n", pid)
	if status != failure.ExitOK || !strings.HasPrefix(stdout, head) || !strings.Contains(stdout, "2 per 1h ") || !strings.Contains(stdout, "100 per 24h ") {
		t.Errorf("ls: exit status %d\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr = verb(t, "caller", environ, "limit", "pause", "partner:acme", "--for", "30s", "--reason", "they asked for it")
	if want := fmt.Sprintf("partner:acme: paused for 30s  (shop, pid %d)\n", pid); status != failure.ExitOK || stdout != want {
		t.Errorf("pause: exit status %d: %s%s", status, stdout, stderr)
	}
	c.until(t, "limit paused") // the log has it
	if _, stdout, _ := verb(t, "caller", environ, "limit", "show", "partner:acme"); !strings.Contains(stdout, "paused for") || !strings.Contains(stdout, "they asked for it") {
		t.Errorf("show: %s", stdout)
	}
	var all []struct {
		Key   string
		Rates []struct{ N, Used, Remaining int }
	}
	if _, stdout, _ = verb(t, "caller", environ, "limit", "show", "partner:acme", "--json"); json.Unmarshal([]byte(stdout), &all) != nil || len(all) != 1 || all[0].Rates[0].Used != 2 || all[0].Rates[1].Remaining != 98 {
		t.Errorf("show --json: %s", stdout)
	}
	if status, stdout, stderr = verb(t, "caller", environ, "limit", "reset", "partner:acme"); status != failure.ExitOK || !strings.HasPrefix(stdout, "partner:acme: reset") {
		t.Errorf("reset: exit status %d: %s%s", status, stdout, stderr)
	}
	c.until(t, "called at") // the waiting call had to wait for an hour before
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.end(t)
	status, _, stderr = verb(t, "caller", environ, "limit", "ls")
	if status != failure.ExitUnavailable || !strings.Contains(stderr, "cli.no_process") || !strings.Contains(stderr, "limits") || strings.Contains(stderr, "no lock") {
		t.Errorf("without a process: exit status %d: %s", status, stderr)
	}
}

func TestVerbsOfLimitsRefuseWhatTheyCannotDo(t *testing.T) {
	for line, says := range map[string]string{
		"limit pause partner:acme --for 30s":              "cli.no_reason",
		"limit pause partner:acme --reason x":             "cli.missing_argument",
		"limit pause partner:acme --for -1s --reason x":   "cli.wrong_flag",
		"limit pause partner:acme --for 9999h --reason x": "cli.wrong_flag",
		"limit ls --limit 0":                              "cli.wrong_flag",
		"limit show":                                      "cli.",
		"limit exec k --rate 1/1s true":                   "shop limit exec k --rate 1/1s -- true",
	} {
		if status, _, stderr := shop(t, strings.Fields(line)...); status != failure.ExitUsage || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit status %d: %s", line, status, stderr)
		}
	}
}

// Both workers ask for the two units of an hour: together they get two.
func TestWorkersShareTheirLimits(t *testing.T) {
	s := newSite(t)
	c, environ := s.sharing(t, "caller")
	readyWorkers(t, environ, "caller")
	var all []struct {
		Driver, Scope string
		Rates         []struct{ Used, Remaining int }
		Waiters       []struct{ Worker int }
	}
	for len(all) == 0 || len(all[0].Waiters) < 2 { // until both wait
		status, stdout, stderr := verb(t, "caller", environ, "limit", "show", "partner:acme", "--json")
		if err := json.Unmarshal([]byte(stdout), &all); status != failure.ExitOK || err != nil || len(all) != 1 {
			t.Fatalf("exit status %d, %v: %s%s", status, err, stdout, stderr)
		}
	}
	x := all[0]
	if x.Driver != "cluster" || x.Scope != "node" || x.Rates[0].Used != 2 || x.Rates[0].Remaining != 0 || x.Waiters[0].Worker+x.Waiters[1].Worker != 3 {
		t.Errorf("got %+v", x)
	}
	c.quits(t)
}
