//go:build linux || darwin

package boot_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/internal/doctor"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

// A stopped hub degrades the processes that depend on it, and makes those unready
// that require it, as long as it is stopped.
func TestStoppedHubDegrades(t *testing.T) {
	t.Parallel()
	for _, require := range []string{"", "node"} {
		t.Run("require "+require, func(t *testing.T) { t.Parallel(); testStoppedHub(t, require) })
	}
}

func testStoppedHub(t *testing.T, require string) {
	t.Helper()
	at := with("MEGA_CLUSTER_SOCKET="+filepath.Join(shortdir.New(t), "s"), "MEGA_LOCK_REQUIRE="+require, "MEGA_BUS_REQUIRE="+require)
	want := map[string]int{"": 200, "node": 503}[require]
	hub := at.start(t)
	hub.report(t)
	other := at.start(t)
	ops := other.report(t).Ops
	ask := func(path string) (int, string) {
		t.Helper()
		response, err := http.Get(ops + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	if status, body := ask("/readyz"); status != 200 {
		t.Errorf("while the hub runs: %d %s", status, body)
	}
	pid := hub.cmd.Process.Pid
	if err := redistest.Signal(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	says := fmt.Sprintf("the hub (process %d) does not answer (is it stopped?)", pid)
	status, body := ask("/readyz")
	for end := time.Now().Add(20 * time.Second); strings.Count(body, says) < 2 && time.Now().Before(end); { // for locks and for messages
		status, body = ask("/readyz") // the signal may be on its way
	}
	if status != want || strings.Count(body, says) != 2 || strings.Contains(body, `"degraded":[`) != (want == 200) {
		t.Errorf("while the hub stands still: %d %s", status, body)
	}
	if status, body := ask("/livez"); status != 200 {
		t.Errorf("it calls itself dead: %d %s", status, body)
	}
	if err := redistest.Signal(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if status, body := ask("/readyz"); status != 200 {
		t.Errorf("when the hub goes on: %d %s", status, body)
	}
	for _, s := range []*started{other, hub} {
		if status := s.stop(t); status != 0 {
			t.Errorf("exit status %d:\n%s", status, s.stderr)
		}
	}
}

func rehearsed(p boot.Process) (plan.Report, error) {
	made, err := boot.Plan(p, mega.App("main"))
	if err != nil {
		return plan.Report{}, err
	}
	return doctor.Rehearse(made)
}

// What can be known of the socket's place is found out before anything is opened,
// and nobody is told to close a folder that is for all.
func TestPlaceOfTheSocketIsRehearsed(t *testing.T) {
	dir := shortdir.New(t)
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { //nolint:gosec // that is what is refused
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		filepath.Join(dir, "s"):              "choose one below it",
		dir:                                  "it is a folder",
		dir + "/" + strings.Repeat("x", 200): "choose a shorter one",
	} {
		p, _ := process("MEGA_CLUSTER_SOCKET=" + path)
		_, err := rehearsed(p)
		f := refused(t, err, "cluster.place_refused")
		if text := f.Error() + strings.Join(f.Actions, ""); !strings.Contains(text, says) || strings.Contains(text, "chmod") {
			t.Errorf("%s: %q, %q", path, f, f.Actions)
		}
	}
	p, _ := process("MEGA_CLUSTER_SOCKET=" + filepath.Join(dir, "new", "s"))
	if _, err := rehearsed(p); err != nil {
		t.Errorf("a folder that would be made: %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("a rehearsal has made %v, %v", left, err)
	}
}

func refused(t *testing.T, err error, code string) *boot.Failure {
	t.Helper()
	f, ok := errors.AsType[*boot.Failure](err)
	if !ok || f.Code != code || f.Exit != failure.ExitConfig {
		t.Fatalf("got %v, want %s with status %d", err, code, failure.ExitConfig)
	}
	return f
}
