//go:build linux || darwin

package boot_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

// dialAdmin finds the one process that p is.
func dialAdmin(t *testing.T, p boot.Process) *admin.Client {
	t.Helper()
	found, err := admin.Find(t.Context(), admin.Folders(p.Environ)[:1], "shop")
	if err != nil || len(found) != 1 || found[0].Err != nil {
		t.Fatalf("found %+v, %v; want one", found, err)
	}
	return admin.Dial(found[0].Path)
}

func TestRunningProcessIsOperated(t *testing.T) {
	p, stderr := process("XDG_RUNTIME_DIR=" + shortdir.New(t))
	begun, lost := make(chan struct{}), make(chan error, 1)
	r := start(t, p, mega.App("main", mega.Routes(hello), mega.Run("hold", func(c *megactx.Ctx) error {
		_ = c.Lock.With("held:1", func(c *megactx.Ctx) error {
			close(begun)
			<-c.Done()
			lost <- context.Cause(c)
			return nil
		})
		return nil
	})))
	<-begun
	client, ctx := dialAdmin(t, p), t.Context()
	info, err := client.Process(ctx)
	if err != nil || info.PID != os.Getpid() || info.Driver != "memory" || info.Scope != "process" || len(info.Apps) != 1 || info.Env != "test" {
		t.Errorf("it says that it is %+v, %v", info, err)
	}
	entry, err := client.Lock(ctx, "held:1")
	if err != nil || len(entry.Holders) != 1 || entry.Holders[0].App != "main" {
		t.Errorf("the lock is %+v, %v", entry, err)
	}
	for _, want := range []int{1, 0} { // the second one finds no lease
		if n, err := client.Release(ctx, "held:1", "stuck since noon", admin.Only{}); n != want || err != nil {
			t.Errorf("released %d, %v, want %d", n, err, want)
		}
	}
	if cause, ok := errors.AsType[*lock.LostError](<-lost); !ok || cause.Reason != "stuck since noon" || !strings.Contains(cause.By.Label, "by the admin socket") {
		t.Errorf("the holder was told %+v", cause)
	}
	var report plan.Report
	if err := client.Get(ctx, "/boot", &report); err != nil || report.Admin == "" || report.Admin != r.Report().Admin {
		t.Errorf("the report says %q, %v", report.Admin, err)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(r.Report().Admin); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	for _, line := range []string{"admin: lock released by force", "admin: no lease found to release by force"} {
		if strings.Count(stderr.String(), line) != 1 {
			t.Errorf("%q is not logged once:\n%s", line, stderr)
		}
	}
}

func TestLevelOfAnAppChangesWhileItRuns(t *testing.T) {
	p, stderr := process("XDG_RUNTIME_DIR="+shortdir.New(t), "MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	talk := mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error { c.Log.Debug("said by " + c.App.Name); return c.Text(200, "") })
	})
	r := start(t, p, mega.App("main", talk), mega.App("admin", talk))
	client := dialAdmin(t, p)
	say := func() {
		for _, a := range r.Report().Apps {
			_, _ = get(t, a.URL)
		}
	}
	say()
	if err := client.SetLevel(t.Context(), "main", "debug"); err != nil {
		t.Fatal(err)
	}
	say()
	if text := stderr.String(); strings.Count(text, "said by main") != 1 || strings.Contains(text, "said by admin") {
		t.Errorf("after the level of one app:\n%s", text)
	}
	if err := client.SetLevel(t.Context(), "", "debug"); err != nil {
		t.Fatal(err)
	}
	say()
	if text := stderr.String(); strings.Count(text, "said by admin") != 1 {
		t.Errorf("after the level of all:\n%s", text)
	}
	for app, level := range map[string]string{"nobody": "debug", "main": "loud"} {
		if err := client.SetLevel(t.Context(), app, level); err == nil {
			t.Errorf("the level %s of %s was set", level, app)
		}
	}
}

func TestProcessWithoutAnAdminSocketServesAndSaysSo(t *testing.T) {
	dir := shortdir.New(t)
	if err := os.Chmod(dir, 0o777); err != nil { // others could replace what is in it
		t.Fatal(err)
	}
	p, stderr := process("XDG_RUNTIME_DIR="+dir, "TMPDIR="+filepath.Join(dir, "missing"))
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	if status, _ := get(t, r.Report().Apps[0].URL); status != 200 {
		t.Errorf("got %d", status)
	}
	if !strings.Contains(stderr.String(), "no admin socket") || !strings.Contains(stderr.String(), "could replace what is in it") || r.Report().Admin != "" {
		t.Errorf("it is not told:\n%s", stderr)
	}
}

func TestFailedBootLeavesNoSocketBehind(t *testing.T) {
	p, _ := process("XDG_RUNTIME_DIR=" + shortdir.New(t))
	_ = fail(t, p, mega.App("main", mega.OnStart("warm up", func(context.Context) error { return errors.New("cold") })))
	found, err := admin.Find(t.Context(), admin.Folders(p.Environ)[:1], "")
	if err != nil || len(found) != 0 {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestRunningProcessHasTheRoutesThatAreListedWithoutStarting(t *testing.T) {
	options := []mega.Option{
		mega.App("main", mega.Routes(func(r megactx.Router) { r.Get("/about", func(*megactx.Ctx) error { return nil }) })),
		mega.App("admin", mega.Routes(func(r megactx.Router) { r.Delete("/shelf/{id}", func(*megactx.Ctx) error { return nil }) })),
	}
	p, _ := process("MEGA_APPS_ADMIN_PREFIX=/admin", "XDG_RUNTIME_DIR="+shortdir.New(t))
	all, err := listed(p, options...)
	if err != nil || len(all) != 2 {
		t.Fatalf("listed: %v, %v", all, err)
	}
	start(t, p, options...)
	var running []plan.Route
	if err := dialAdmin(t, p).Get(t.Context(), "/routes", &running); err != nil || !slices.Equal(running, all) {
		t.Errorf("running, they are %v, %v, want %v", running, err, all)
	}
}
