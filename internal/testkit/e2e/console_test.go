//go:build linux || darwin

package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// shows gets a page of the console until it has all texts: what a worker does at
// its start may follow its readiness.
func (w watched) shows(t *testing.T, path string, texts ...string) (page string) {
	t.Helper()
	missing := func() string {
		for _, text := range texts {
			if !strings.Contains(page, text) {
				return text
			}
		}
		return ""
	}
	for late := time.Now().Add(time.Minute); time.Now().Before(late); {
		status, _, body := w.see(t, path)
		if page = body; status == http.StatusOK && missing() == "" {
			return page
		}
	}
	t.Fatalf("%s: %q is missing in\n%s", path, missing(), page)
	return ""
}

// fence returns the fence that the form of a lock's page names.
func (w watched) fence(t *testing.T, key, worker string) string {
	t.Helper()
	page := w.shows(t, "/console/lock?"+url.Values{"key": {key}, "worker": {worker}}.Encode(), `name="fence"`)
	_, rest, _ := strings.Cut(page, `name="fence" value="`)
	fence, _, _ := strings.Cut(rest, `"`)
	return fence
}

// releases releases a lease by the form of the console, whose answer has a text.
func (w watched) releases(t *testing.T, key, worker, fence, text string) {
	t.Helper()
	form := url.Values{"key": {key}, "worker": {worker}, "fence": {fence}, "reason": {"it is stuck"}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.ops+"/console/release", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", w.ops)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	page, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != http.StatusOK || !strings.Contains(string(page), text) {
		t.Errorf("%d, %v\n%s", a.StatusCode, err, page)
	}
}

func TestConsoleOfASupervisorShowsItsWorkers(t *testing.T) {
	for _, driver := range []string{"cluster", "memory"} {
		t.Run(driver, func(t *testing.T) {
			w := startWatched(t, "consoled", "2", "MEGA_OPS_CONSOLE=true", "MEGA_OPS_ACTIONS=true", "MEGA_LOCK_DRIVER="+driver)
			w.shows(t, "/console/locks", "held:1", "held:2", "worker 1, pid", "worker 2, pid")
			pids := w.pids(t)
			one, two := fmt.Sprint(pids[1]), fmt.Sprint(pids[2])
			w.shows(t, "/console", "Ready", "1: ready", "2: ready", driver+", scope")
			w.shows(t, "/console/workers", one, two)
			w.shows(t, "/console/errors", "Supervisor", "Worker 1, pid "+one)
			w.shows(t, "/console/boot", "chosen", "lock.driver")
			w.shows(t, "/console/config", "MEGA_OPS_CONSOLE")
			w.shows(t, "/console/bus", "Subscriptions")
			fence := w.fence(t, "held:2", "2")
			w.releases(t, "held:2", "2", fence, "Released by force: 1 lease.")
			w.releases(t, "held:2", "2", fence, "Nothing was released") // by another operator, on the same page
			w.shows(t, "/console/errors", "lock lost", "held:2", "by the console")
			w.quits(t)
		})
	}
}
