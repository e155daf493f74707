package protocol

import (
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Clock converts instants for other processes of the node. It expresses them as
// nanoseconds on a clock that all of these processes share and that goes on
// while the machine sleeps. In this process they are values of driver.Now.
type Clock struct {
	now  time.Time // of driver.Now
	node int64     // of the node's clock, not after now
}

// MaxSkew is the maximum difference between the clock readings of two processes.
const MaxSkew = int64(time.Millisecond)

// Nanos converts an instant of this process for other processes. The result is
// not later than t.
func (c Clock) Nanos(t time.Time) int64 {
	c = c.fresh()
	return c.node + int64(t.Sub(c.now))
}

// Time converts an instant from another process for this one.
func (c Clock) Time(nanos int64) time.Time {
	c = c.fresh()
	return c.now.Add(time.Duration(nanos - c.node))
}

// ReadClock reads both clocks with as little time as possible between the
// readings; the margin of a deadline covers that time.
func ReadClock() Clock {
	var best Clock
	least := time.Hour
	for range 20 {
		before := NodeNanos()
		now := driver.Now()
		if took := time.Duration(NodeNanos() - before); took < least {
			best, least = Clock{now, before}, took
		}
		if least < 5*time.Microsecond {
			break
		}
	}
	return best
}

// Epoch returns the time of day, in microseconds since 1970, at which the node's
// clock read 0. Two calls differ if the time of day was corrected in between.
func Epoch() int64 { return time.Now().UnixMicro() - NodeMicros() }

// NodeMicros returns NodeNanos in microseconds.
func NodeMicros() int64 { return NodeNanos() / int64(time.Microsecond) }
