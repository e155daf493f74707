package cluster

import (
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// clock converts instants for other processes of the node. It expresses them as
// nanoseconds on a clock that all of these processes share and that goes on
// while the machine sleeps. In this process they are values of driver.Now.
type clock struct {
	now  time.Time // of driver.Now
	node int64     // of the node's clock, not after now
}

// apart is the maximum difference between the clock readings of two processes.
const apart = int64(time.Millisecond)

// told converts an instant of this process for other processes. The result is
// not later than t.
func (c clock) told(t time.Time) int64 {
	c = c.fresh()
	return c.node + int64(t.Sub(c.now))
}

// heard converts an instant from another process for this one.
func (c clock) heard(nanos int64) time.Time {
	c = c.fresh()
	return c.now.Add(time.Duration(nanos - c.node))
}

// readClock reads both clocks with as little time as possible between the
// readings; the margin of a deadline covers that time.
func readClock() clock {
	var best clock
	least := time.Hour
	for range 20 {
		before := nodeNanos()
		now := driver.Now()
		if took := time.Duration(nodeNanos() - before); took < least {
			best, least = clock{now, before}, took
		}
		if least < 5*time.Microsecond {
			break
		}
	}
	return best
}
