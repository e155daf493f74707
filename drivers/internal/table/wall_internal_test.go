package table

import (
	"testing"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// A machine without a battery begins in the past, and sets its clock when it has
// found a server for it. A machine that was suspended wakes up later.
func TestRunsFollowTheTimeOfDayOfAClockThatWasSet(t *testing.T) {
	tab := New(Config{})
	tab.clock.wall -= int64(time.Hour) // the clock was behind when the table was made
	g, _, err := tab.Request(&driver.Request{Key: "k", Token: "t", TTL: time.Minute, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now().Truncate(time.Microsecond)
	run, _, err := tab.Begin(&g, time.Minute, true)
	if err != nil || run.Start.Before(before) || run.Start.After(time.Now()) {
		t.Errorf("at %v the run started at %v, %v", before, run.Start, err)
	}
	if tick, _ := driver.TickAt(run.Start, time.Minute); run.Tick != tick {
		t.Errorf("a run at %v is of tick %d, want %d", run.Start, run.Tick, tick)
	}
}
