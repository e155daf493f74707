package table_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// The state of a key shows a run for as long as it lasts, and its outcome
// afterwards, also if it lasts for many intervals (O4).
func TestALongRunKeepsItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Minute
		c := table.New(table.Config{})
		defer c.Close()
		g, _, err := c.Request(&driver.Request{Key: "k", Token: "a", TTL: 8 * every, Slots: 1, Fences: 1})
		if err != nil {
			t.Fatal(err)
		}
		run, _, err := c.Begin(&g, every, true)
		if err != nil || !run.Due {
			t.Fatal(run.Due, err)
		}
		time.Sleep(5 * every)
		if s, err := c.Inspect("k"); err != nil || s.LastRun == nil || s.LastRun.Outcome != "" {
			t.Errorf("during the run: %+v, %v", s.LastRun, err)
		}
		run.Outcome = driver.Done
		if r, err := c.End(&g, &run); err != nil || r == nil {
			t.Errorf("the end is not recorded: %v", err)
		}
		if err := c.Release(&g); err != nil {
			t.Fatal(err)
		}
		s, err := c.Inspect("k")
		if err != nil || s.LastRun == nil || s.LastRun.Outcome != driver.Done {
			t.Errorf("after the run: %+v, %v", s.LastRun, err)
		}
		time.Sleep(5 * every)
		if keys, _, timers := c.Size(); keys != 0 || timers != 0 || len(c.Runs()) != 0 {
			t.Errorf("%d keys, %d timers, %d runs are left", keys, timers, len(c.Runs()))
		}
	})
}
