//go:build linux || darwin

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
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
	for range 1000 {
		status, _, body := w.see(t, path)
		if page = body; status == http.StatusOK && missing() == "" {
			return page
		}
	}
	t.Fatalf("%s: %q is missing in\n%s", path, missing(), page)
	return ""
}

func TestConsoleOfASupervisorShowsItsWorkers(t *testing.T) {
	for _, driver := range []string{"cluster", "memory"} {
		t.Run(driver, func(t *testing.T) {
			w := startWatched(t, "consoled", "2", "MEGA_OPS_CONSOLE=true", "MEGA_LOCK_DRIVER="+driver)
			w.shows(t, "/console/locks", "held:1", "held:2", "worker 1, pid", "worker 2, pid")
			pids := w.pids(t)
			one, two := fmt.Sprint(pids[1]), fmt.Sprint(pids[2])
			w.shows(t, "/console", "Ready", "1: ready", "2: ready", driver+", scope")
			w.shows(t, "/console/workers", one, two)
			w.shows(t, "/console/errors", "Supervisor", "Worker 1, pid "+one)
			w.shows(t, "/console/boot", "chosen", "lock.driver")
			w.shows(t, "/console/config", "MEGA_OPS_CONSOLE")
			w.shows(t, "/console/bus", "Subscriptions")
			w.quits(t)
		})
	}
}
