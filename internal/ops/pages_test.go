package ops_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// newProcess returns a process with everything in memory, and one unit used of
// the limit "partner".
func newProcess(t *testing.T) admin.Process {
	t.Helper()
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _, _ = messages.Drain(ctx), limits.Close(ctx), locks.Close(ctx)
	})
	if _, err := limits.Allow(t.Context(), "partner", limit.Limit{Rates: []limit.Rate{limit.PerHour(5)}}); err != nil {
		t.Fatal(err)
	}
	see := func() any { return []string{} }
	return admin.Process{
		Info: admin.Info{Name: "shop", PID: os.Getpid(), Worker: 1}, Locks: locks, Limits: limits, Bus: messages,
		Boot: see, Config: see, Routes: see, Errors: see, Log: slog.New(slog.DiscardHandler),
	}
}

func newPages(p admin.Process) http.Handler {
	pages := ops.NewPages(ops.NewProbes(func(text string) string { return text }), metrics.New(metrics.Build{}), ops.Build{}, false)
	pages.Publish(admin.Views(p))
	return pages.Handler()
}

func look(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil))
	return w.Code, w.Body.String()
}

func TestListOfThePagesHasTheirPaths(t *testing.T) {
	h := newPages(newProcess(t))
	for line := range strings.Lines(ops.Paths) {
		path := strings.Fields(line)[0]
		if status, body := look(t, h, path); strings.HasPrefix(path, "/ops/") && status == http.StatusNotFound {
			t.Errorf("%s answers %d %s", path, status, body)
		}
	}
}

// The pages of limits are those of the process, and the supervisor passes them on.
func TestLimitsAreSeenAtTheProcessAndThroughItsSupervisor(t *testing.T) {
	p := newProcess(t)
	s, err := admin.OpenWorker(p, newPages(p), admin.Folders([]string{"XDG_RUNTIME_DIR=" + shortdir.New(t)})[:1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	workers := []admin.Worker{{ID: 1, PID: p.Info.PID, State: "ready", Path: s.Path()}}
	for name, h := range map[string]http.Handler{
		"process":    newPages(p),
		"supervisor": admin.Forward(func() []admin.Worker { return workers }, p.Log),
	} {
		for path, want := range map[string]string{
			"/ops/none":                     "request.not_found",
			"/none?worker=1":                "request.not_found",
			"/ops/limits":                   `"key":"partner"`,
			"/ops/limits?prefix=none":       `"total":0`,
			"/ops/limit?key=partner":        `"remaining":4`,
			"/ops/limit/stats":              `"allowed":1`,
			"/ops/limits?limit=-1&worker=1": "request.invalid",
		} {
			if _, body := look(t, h, path); !strings.Contains(strings.ReplaceAll(body, " ", ""), want) {
				t.Errorf("%s: %s has no %s:\n%s", name, path, want, body)
			}
		}
	}
	w := httptest.NewRecorder()
	w.Header().Set("X-Content-Type-Options", "nosniff") // by the ops listener
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/none?worker=1", nil)
	admin.Forward(func() []admin.Worker { return workers }, p.Log).ServeHTTP(w, r)
	if got := w.Header().Values("X-Content-Type-Options"); len(got) != 1 {
		t.Errorf("a forwarded refusal has X-Content-Type-Options: %q", got)
	}
}
