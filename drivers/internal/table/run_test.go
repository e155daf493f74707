package table_test

import (
	"errors"
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

// A grant whose fences are handed on has several runs. A late call of an earlier
// one changes nothing (O1, O4).
func TestALateCallOfAnEarlierRunChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Minute
		c := table.New(table.Config{})
		defer c.Close()
		g, _, err := c.Request(&driver.Request{Key: "k", Token: "a", TTL: time.Hour, Slots: 1, Fences: 3})
		if err != nil {
			t.Fatal(err)
		}
		later := g
		later.Fence++
		begin := func(g driver.Grant, due bool) driver.Run {
			t.Helper()
			run, _, err := c.Begin(&g, every, true)
			if err != nil || run.Due != due {
				t.Fatalf("due: %v, %v; want %v", run.Due, err, due)
			}
			return run
		}
		end := func(run driver.Run, outcome driver.Outcome, recorded bool) {
			t.Helper()
			run.Outcome = outcome
			if r, err := c.End(&g, &run); err != nil || (r != nil) != recorded {
				t.Fatalf("recorded %+v, %v; want a record: %v", r, err, recorded)
			}
		}
		first := begin(g, true)
		end(first, driver.Done, true)
		time.Sleep(every)
		second := begin(later, true)
		end(first, driver.Failed, false)
		if r := c.Run("k"); r == nil || r.Run.Fence != later.Fence || r.Run.Outcome != "" {
			t.Errorf("the record is %+v", r)
		}
		time.Sleep(every)
		begin(g, false)
		end(second, driver.Failed, true)
		end(second, driver.Done, false)
		if r := c.Run("k"); r == nil || r.Run.Outcome != driver.Failed {
			t.Errorf("the record is %+v", r)
		}
	})
}

// The record of a run may be lost with an earlier table. Its end is recorded again,
// by the holder alone (O4).
func TestTheEndOfAForgottenRunIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table.New(table.Config{})
		defer c.Close()
		g, _, err := c.Request(&driver.Request{Key: "k", Token: "a", TTL: time.Hour, Slots: 1, Fences: 3})
		if err != nil {
			t.Fatal(err)
		}
		run := driver.Run{Every: time.Minute, Fence: g.Fence + 3, Start: time.Now(), Outcome: driver.Done, Due: true}
		if r, err := c.End(&g, &run); r != nil || err != nil {
			t.Errorf("the end of a run of another grant is recorded: %+v, %v", r, err)
		}
		run.Fence = g.Fence + 2
		if r, err := c.End(&g, &run); err != nil || r == nil || r.Run.Outcome != driver.Done || r.Run.Due || !r.Run.End.Equal(time.Now()) {
			t.Errorf("recorded %+v, %v", r, err)
		}
		time.Sleep(2 * time.Minute)
		if r := c.Run("k"); r != nil {
			t.Errorf("two intervals later the record is %+v", r)
		}
		g.Rest, g.Rev = time.Second, 1
		time.Sleep(time.Hour) // g has expired
		_, _, begun := c.Begin(&g, time.Minute, true)
		_, ended := c.End(&g, &run)
		for call, err := range map[string]error{"Begin": begun, "End": ended, "Rest": c.Rest(&g)} {
			if !errors.Is(err, driver.ErrLost) {
				t.Errorf("%s returns %v, want ErrLost", call, err)
			}
		}
	})
}

// A table that takes over keeps a record for as long as the earlier one would have
// kept it, also if the last run had a shorter interval (O1).
func TestARestoredRecordKeepsItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		earlier, later := table.New(table.Config{}), table.New(table.Config{})
		defer earlier.Close()
		defer later.Close()
		once := func(c *table.Table, token string, every time.Duration) bool {
			t.Helper()
			g, _, err := c.Request(&driver.Request{Key: "k", Token: token, TTL: time.Minute, Slots: 1, Fences: 1})
			if err != nil {
				t.Fatal(err)
			}
			run, _, err := c.Begin(&g, every, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Release(&g); err != nil {
				t.Fatal(err)
			}
			return run.Due
		}
		if !once(earlier, "a", 24*time.Hour) {
			t.Fatal("the first run is due")
		}
		time.Sleep(time.Hour)
		if !once(earlier, "b", time.Minute) {
			t.Fatal("the shorter interval has a new tick")
		}
		time.Sleep(time.Second)
		for _, r := range earlier.Runs() {
			later.RestoreRun(&r)
		}
		time.Sleep(time.Hour)
		if once(later, "c", 24*time.Hour) {
			t.Error("ran twice in a tick of a day")
		}
		time.Sleep(46 * time.Hour)
		if r := later.Run("k"); r != nil {
			t.Errorf("the record has outlived two of the longer intervals: %+v", r)
		}
	})
}

// A run that does not spend its tick keeps the newest spent one, because the clock may
// step back; but not one that is more than a tick ahead, with which every call would be
// due until then (O1, O3).
func TestARunThatDoesNotSpendItsTickKeepsTheSpentOne(t *testing.T) {
	const every = time.Minute
	for name, ahead := range map[string]int{"the tick before": -1, "far ahead": 100} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := table.New(table.Config{})
				defer c.Close()
				g, _, err := c.Request(&driver.Request{Key: "k", Token: "a", TTL: time.Hour, Slots: 1, Fences: 3})
				if err != nil {
					t.Fatal(err)
				}
				tick, _ := driver.TickAt(time.Now(), every)
				start := time.UnixMicro(tick * every.Microseconds())
				spent := start.Add(time.Duration(ahead) * every)
				c.RestoreRun(&table.Record{Key: "k", Run: driver.Run{Every: every, Fence: 1}, Spent: spent})
				run, r, err := c.Begin(&g, every, false)
				if err != nil || !run.Due || r == nil {
					t.Fatal(run.Due, r, err)
				}
				if kept := r.Spent.Equal(spent); kept != (ahead < 0) {
					t.Errorf("spent up to %v, it was %v", r.Spent, spent)
				}
				run.Outcome = driver.Done
				if r, err := c.End(&g, &run); err != nil || r == nil || !r.Spent.Equal(start) {
					t.Errorf("the end is recorded as %+v, %v; want its tick to be spent", r, err)
				}
				later := g
				later.Fence++
				if run, _, err := c.Begin(&later, every, false); run.Due || err != nil {
					t.Errorf("a second run in the tick is due: %v, %v", run.Due, err)
				}
			})
		})
	}
}

// The tick of a run whose grant has expired is spent, however short the grant was.
func TestTheRecordOutlivesItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Hour
		c := table.New(table.Config{})
		defer c.Close()
		grant := func(token string) driver.Grant {
			t.Helper()
			g, _, err := c.Request(&driver.Request{Key: "k", Token: token, TTL: time.Second, Slots: 1, Fences: 1})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		g := grant("a")
		if run, _, err := c.Begin(&g, every, true); err != nil || !run.Due {
			t.Fatal(run.Due, err)
		}
		time.Sleep(time.Second) // the grant has just expired
		if r := c.Run("k"); r == nil {
			t.Error("the record is gone with its grant")
		}
		time.Sleep(time.Minute)
		g = grant("b")
		if run, _, err := c.Begin(&g, every, true); err != nil || run.Due {
			t.Errorf("the tick is due again: %v, %v", run.Due, err)
		}
	})
}
