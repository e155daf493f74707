package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func TestAStateShowsItsLastRun(t *testing.T) {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	run := &lock.Run{Every: 24 * time.Hour, Start: start, End: start.Add(90 * time.Second), Outcome: driver.Done, By: lock.Holder{App: "web", Host: "node-1", PID: 7}}
	for outcome, want := range map[driver.Outcome]string{
		driver.Done: "  last run: 2026-03-01T00:00:00Z, by web@node-1:7, every 24h, done after 1m30s\n  no holder and no waiters\n",
		"":          "  last run: 2026-03-01T00:00:00Z, by web@node-1:7, every 24h, in progress, or its process has ended\n  no holder and no waiters\n",
	} {
		run.Outcome = outcome
		var b strings.Builder
		printState(&b, lock.State{Key: "report", LastRun: run}, 0)
		if b.String() != want {
			t.Errorf("shown:\n%swant:\n%s", b.String(), want)
		}
	}
	var b strings.Builder
	printState(&b, lock.State{Key: "report", LastRun: &lock.Run{Skipped: "the record has format 7"}}, 0)
	if want := "  last run: unknown: the record has format 7\n  no holder and no waiters\n"; b.String() != want {
		t.Errorf("shown:\n%swant:\n%s", b.String(), want)
	}
}
