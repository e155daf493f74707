package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/failure"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

func TestLocksOfARedisAreListedAndForced(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	for _, engine := range []string{redis.EngineQueue, redis.EngineRedislock} {
		d, err := redis.OpenLock(t.Context(), redis.Config{URL: server.URL(), Engine: engine, Key: engine + ":{%s}"})
		if err != nil {
			t.Fatal(err)
		}
		l, err := lock.New(d, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := l.Acquire(t.Context(), "product:lamp")
		if err != nil {
			t.Fatal(err)
		}
		at := []string{"--url", server.URL(), "--engine", engine, "--template", engine + ":{%s}"}
		for verb, says := range map[string]string{"ls": "product:lamp  -", "show product:lamp": "holds"} {
			status, stdout, stderr := mega(append(append([]string{"lock"}, strings.Fields(verb)...), at...)...)
			if status != failure.ExitOK || !strings.Contains(stdout, says) || !strings.Contains(stdout, server.URL()) {
				t.Errorf("%s: exit status %d:\n%s%s", verb, status, stdout, stderr)
			}
		}
		status, stdout, stderr := mega(append([]string{"lock", "release", "product:lamp", "--reason", "stuck"}, at...)...)
		if status != failure.ExitOK || !strings.Contains(stdout, "released from 1 holder") {
			t.Errorf("release: exit status %d:\n%s%s", status, stdout, stderr)
		}
		<-lease.Context().Done()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestURLWithAPasswordComesFromAVariable(t *testing.T) {
	server := redistest.Start(t, redistest.Options{Password: "geheim"})
	t.Setenv("SHOP_REDIS", server.URL())
	status, stdout, stderr := mega("lock", "ls", "--url-env", "SHOP_REDIS")
	if status != failure.ExitOK || !strings.Contains(stdout, "no lock is held") || strings.Contains(stdout, "geheim") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	if status, _, stderr := mega("lock", "ls", "--url", server.URL()); status != failure.ExitUsage || strings.Contains(stderr, "geheim") {
		t.Errorf("on the command line: exit status %d: %s", status, stderr)
	}
}

func TestUnreachableRedisIsNamedWithItsAddress(t *testing.T) {
	for url, x := range map[string]struct {
		status int
		says   string
	}{
		"redis://127.0.0.1:1/0":    {failure.ExitUnavailable, "cli.no_server"},
		"http://127.0.0.1:1":       {failure.ExitUsage, "cli.wrong_flag"},
		"redis://127.0.0.1:1/zero": {failure.ExitUsage, "cli.wrong_flag"},
		"no url":                   {failure.ExitUsage, "cli.wrong_flag"},
	} {
		status, stdout, stderr := mega("lock", "ls", "--url", url)
		if status != x.status || !strings.Contains(stderr, x.says) || !strings.Contains(stderr, url) || stdout != "" {
			t.Errorf("%s: exit status %d: %s%s", url, status, stdout, stderr)
		}
	}
}

// The client of Redis logs each attempt to connect, unless it is told not to.
func TestUnreachableRedisIsReportedOnce(t *testing.T) {
	cmd := exec.Command(os.Args[0], "lock", "ls", "--url", "redis://127.0.0.1:1/0")
	cmd.Env = append(os.Environ(), role+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "mega: Cannot read the locks at redis://127.0.0.1:1/0.") || strings.Count(string(out), "refused") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestLimitNeedsARateAndAKnownCommand(t *testing.T) {
	for args, want := range map[string]struct {
		status int
		says   string
	}{
		"limit k -- true":                              {failure.ExitUsage, "--rate is missing"},
		"limit k --rate 5 -- true":                     {failure.ExitUsage, "N/TIME, such as 5/800ms"},
		"limit k --rate 0/1s -- true":                  {failure.ExitUsage, "N is 0, want 1 to 1000000000"},
		"limit k --rate 1/1s -- no-such-command":       {127, "no-such-command does not exist"},
		"limit k --rate 1/1s --url redis://:1 -- true": {failure.ExitUnavailable, "limit."},
	} {
		if status, _, stderr := mega(strings.Fields(args)...); status != want.status || !strings.Contains(stderr, want.says) {
			t.Errorf("%s: exit status %d: %s", args, status, stderr)
		}
	}
}
