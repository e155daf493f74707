package cluster

import (
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// clock tells instants to other processes of the node, as nanoseconds on a clock
// that all of them have and that goes on while the machine sleeps. In this
// process they are values of driver.Now.
type clock struct {
	now  time.Time // of driver.Now
	node int64     // of the node's clock, not after that
}

// apart is how far two processes' readings of their clock may be apart.
const apart = int64(time.Millisecond)

// told is an instant of this process for the others, and not later.
func (c clock) told(t time.Time) int64 {
	c = c.fresh()
	return c.node + int64(t.Sub(c.now))
}

// heard is an instant of another process for this one.
func (c clock) heard(nanos int64) time.Time {
	c = c.fresh()
	return c.now.Add(time.Duration(nanos - c.node))
}

// readClock reads both clocks so that next to nothing comes between the
// readings; the margin of a deadline covers it.
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
