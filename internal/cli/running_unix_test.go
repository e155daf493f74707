//go:build unix

package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
)

// verb runs a verb of the program's own binary, in a process of its own.
func verb(t *testing.T, kind string, environ []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), program+"="+kind, "GORACE=atexit_sleep_ms=0"), environ...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// configured writes the file of configuration of a site's programs.
func (s site) configured(t *testing.T, yaml string) []string {
	t.Helper()
	dir := s.environ[0][strings.IndexByte(s.environ[0], '=')+1:]
	if err := os.WriteFile(filepath.Join(dir, "mega.config.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{folder + "=" + dir, "MEGA_ENV=production"}, s.environ...)
}

// holds reads until a holder serves and holds, whichever comes first.
func (c *child) holds(t *testing.T) {
	t.Helper()
	for serves, holds := false, false; !serves || !holds; {
		line := c.until(t, "o") // as both have
		serves = serves || strings.Contains(line, "boot.report")
		holds = holds || strings.Contains(line, "holding")
	}
}

func TestLocksInTheMemoryOfARunningProcessAreListedAndForced(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	c := startChild(t, "holder", environ...)
	c.holds(t)
	pid := c.cmd.Process.Pid

	status, stdout, stderr := verb(t, "holder", environ, "lock", "ls")
	head := fmt.Sprintf("shop, pid %d: memory, scope process\n", pid)
	if status != failure.ExitOK || !strings.HasPrefix(stdout, head) || !strings.Contains(stdout, fmt.Sprintf(":%d ", pid)) {
		t.Errorf("ls: exit status %d\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr = verb(t, "holder", environ, "lock", "release", "product:lamp", "--reason", "the till is stuck")
	if want := fmt.Sprintf("product:lamp: released from 1 holder  (shop, pid %d)\n", pid); status != failure.ExitOK || stdout != want {
		t.Errorf("release: exit status %d: %s%s", status, stdout, stderr)
	}
	c.until(t, "the till is stuck") // the holder is told
	if _, stdout, _ := verb(t, "holder", environ, "lock", "show", "product:lamp"); !strings.Contains(stdout, "no holder and no waiters") {
		t.Errorf("show: %s", stdout)
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.end(t)
}

// kill -9 leaves a socket behind, which does not speak for anybody.
func TestKilledProcessIsNoLongerThere(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	first, second := startChild(t, "holder", environ...), startChild(t, "holder", environ...)
	first.holds(t)
	second.holds(t)
	if _, stdout, _ := verb(t, "holder", environ, "lock", "ls"); strings.Count(stdout, "product:lamp") != 2 {
		t.Errorf("of two:\n%s", stdout)
	}
	kill := func(c *child) {
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.end(t)
	}
	kill(first)
	if left, err := filepath.Glob(filepath.Join(admin.Folders(s.environ)[0], fmt.Sprintf("*.%d*.sock", first.cmd.Process.Pid))); err != nil || len(left) != 1 {
		t.Errorf("it left %q, %v", left, err)
	}
	status, stdout, stderr := verb(t, "holder", environ, "lock", "ls")
	if status != failure.ExitOK || strings.Count(stdout, "product:lamp") != 1 || stderr != "" {
		t.Errorf("of the other: exit status %d\n%s%s", status, stdout, stderr)
	}
	kill(second)
	status, stdout, stderr = verb(t, "holder", environ, "lock", "ls")
	if status != failure.ExitUnavailable || stdout != "" || !strings.Contains(stderr, "cli.no_process") || !strings.Contains(stderr, "memory") {
		t.Errorf("of none: exit status %d\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr = verb(t, "holder", environ, "worker", "ls") // which is not about locks
	if status != failure.ExitUnavailable || !strings.Contains(stderr, "cli.no_process") || strings.Contains(stderr, "memory") {
		t.Errorf("the workers of none: exit status %d\n%s%s", status, stdout, stderr)
	}
}

func TestHangUpReadsTheConfigurationAgain(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	c := startChild(t, "polite", environ...)
	c.until(t, "boot.report")
	s.configured(t, "log:\n  level: debug\nlock:\n  ttl: 20s\nname: shop\n")
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.until(t, `"key":"log.level"`)

	s.configured(t, "log:\n  level: warn\nname: shop\n")
	status, stdout, stderr := verb(t, "polite", environ, "config", "reload", "--json")
	var all []struct {
		PID     int
		Changes []struct {
			Key, Old, New string
			Live          bool
		}
	}
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || status != failure.ExitOK || len(all) != 1 || all[0].PID != c.cmd.Process.Pid {
		t.Fatalf("exit status %d, %v: %s%s", status, err, stdout, stderr)
	}
	if got := all[0].Changes; len(got) != 1 || got[0].Key != "log.level" || got[0].Old != "debug" || got[0].New != "warn" || !got[0].Live {
		t.Errorf("got %+v", got)
	}
	s.configured(t, "name: shop\nlock:\n  ttl: 20s\n")
	if _, stdout, _ := verb(t, "polite", environ, "config", "reload"); !strings.Contains(squeezed(stdout), "lock.ttl  10s -> 20s  after a restart") {
		t.Errorf("got %s", stdout)
	}
	s.configured(t, "name: shop\nlog:\n  level: loud\n")
	// The verb itself reads the configuration, to know whom to ask.
	if status, _, stderr := verb(t, "polite", environ, "config", "reload"); status != failure.ExitConfig || !strings.Contains(stderr, "config.invalid") {
		t.Errorf("of a wrong configuration: exit status %d: %s", status, stderr)
	}
	c.signal(t)
	if rest, status := c.end(t); status != failure.ExitOK {
		t.Errorf("exit status %d:\n%s", status, rest)
	}
}

// What a process refuses ends the verb as it would end a boot.
func TestRefusedReloadHasTheStatusOfItsReason(t *testing.T) {
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "mega.config.yaml")
	if err := os.WriteFile(file, []byte("log:\n  level: info\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := append([]string{"MEGA_ENV=production", "MEGA_NAME=shop"}, s.environ...)
	c := startChild(t, "polite", append(environ, "MEGA_CONFIG="+file)...)
	c.until(t, "boot.report")
	if err := os.WriteFile(file, []byte("log:\n  level: loud\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := verb(t, "polite", environ, "config", "reload")
	if status != failure.ExitConfig || !strings.Contains(stderr, "(config.invalid)") || !strings.Contains(stderr, "loud") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
	c.signal(t)
	c.end(t)
}

// In dev it is a terminal that was closed.
func TestHangUpInDevEndsTheProgram(t *testing.T) {
	s := newSite(t)
	c := startChild(t, "polite", append(s.environ, "MEGA_ENV=dev")...)
	c.until(t, "boot.report")
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if rest, status := c.end(t); status != failure.ExitOK || !strings.Contains(rest, `"stopped"`) {
		t.Errorf("exit status %d:\n%s", status, rest)
	}
}

func TestServeReportsItsFailureInJSON(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "lock:\n  require: fleet\n")
	status, stdout, stderr := verb(t, "polite", environ, "--json", "serve")
	var f struct {
		Code string
		Exit int
	}
	if err := json.Unmarshal([]byte(stderr), &f); err != nil || status != failure.ExitConfig || f.Exit != status || f.Code != "lock.scope_too_small" || stdout != "" {
		t.Errorf("exit status %d, %v: %s%s", status, err, stdout, stderr)
	}
	if status, _, stderr := verb(t, "polite", environ, "serve"); status != failure.ExitConfig || !strings.Contains(stderr, "could not start") {
		t.Errorf("for people: exit status %d: %s", status, stderr)
	}
}

// Routes that depend on a value are known to the running program alone.
func TestRunningProcessListsRoutesThatNeedAValue(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	status, stdout, stderr := verb(t, "deciding", environ, "routes")
	if status != failure.ExitUnavailable || stdout != "" || !strings.Contains(stderr, "boot.routes_unknown") {
		t.Errorf("while none runs: exit status %d: %s%s", status, stdout, stderr)
	}
	c := startChild(t, "deciding", environ...)
	c.until(t, "boot.report")
	want := fmt.Sprintf("reported by shop, pid %d\n", c.cmd.Process.Pid)
	status, stdout, stderr = verb(t, "deciding", environ, "routes")
	if status != failure.ExitOK || !strings.Contains(squeezed(stdout), "\nmain  GET  /decided") || !strings.HasSuffix(stdout, want) {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	c.signal(t)
	c.end(t)
}

// info returns what the process says about itself.
func (c *child) info(t *testing.T) admin.Info {
	t.Helper()
	all, err := admin.Find(t.Context(), admin.Folders(c.cmd.Env), "")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(f admin.Found) bool { return f.Info.PID == c.cmd.Process.Pid })
	if i < 0 {
		t.Fatalf("process %d is not among %v", c.cmd.Process.Pid, all)
	}
	return all[i].Info
}

// The addresses of a running program are not in use by another one.
func TestDoctorKnowsTheAddressesOfTheRunningProgram(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	for _, workers := range []string{"1", "2"} {
		c := startChild(t, "polite", append([]string{"MEGA_CLUSTER_WORKERS=" + workers}, environ...)...)
		var line struct{ Report plan.Report }
		if err := json.Unmarshal([]byte(c.until(t, "boot.report")), &line); err != nil {
			t.Fatal(err)
		}
		app, ops := strings.TrimPrefix(line.Report.Apps[0].URL, "http://"), strings.TrimPrefix(c.info(t).Ops, "http://")
		now := append([]string{"MEGA_APPS_MAIN_ADDR=" + app, "MEGA_OPS_ADDR=" + ops}, environ...)
		for _, host := range []string{"localhost", "127.0.0.1"} { // a listener has the address of a name
			app, ops := strings.Replace(app, "127.0.0.1", host, 1), strings.Replace(ops, "127.0.0.1", host, 1)
			status, stdout, stderr := verb(t, "polite", append([]string{"MEGA_APPS_MAIN_ADDR=" + app, "MEGA_OPS_ADDR=" + ops}, environ...), "doctor")
			for name, addr := range map[string]string{"main": app, "ops": ops} {
				used := fmt.Sprintf("ok  address of %s  %s is in use by this program, which runs already, pid %d\n", name, addr, c.cmd.Process.Pid)
				if status != failure.ExitOK || !strings.Contains(squeezed(stdout), used) {
					t.Errorf("%s workers: exit status %d, want %s: %s%s", workers, status, used, stdout, stderr)
				}
			}
		}
		if status, stdout, _ := verb(t, "polite", append(now, "MEGA_NAME=other"), "doctor"); status != failure.ExitCut || !strings.Contains(stdout, "address already in use") {
			t.Errorf("another program: exit status %d: %s", status, stdout)
		}
		c.signal(t)
		c.end(t)
	}
}
