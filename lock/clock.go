package lock

import (
	"math"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// instant is a moment on a Locker's clock, in nanoseconds. It has a third of
// the size of a time.Time, compares with <, and cannot be confused with the
// time of another clock. The zero instant is before every other one.
type instant int64

// add returns the last instant where the sum is beyond it: a CleanupTimeout may be
// as long as a Duration.
func (i instant) add(d time.Duration) instant {
	if d > 0 && i > math.MaxInt64-instant(d) {
		return math.MaxInt64
	}
	return i + instant(d)
}

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// clock is the clock of a Locker's deadlines.
type clock struct {
	base time.Time // one nanosecond before the first instant
	// read returns the time on the clock of a backend's grants. nil means
	// time.Now.
	read func() time.Time
}

func newClock(s driver.Scope) clock {
	if s == driver.Process {
		return clock{base: time.Now().Add(-1)}
	}
	return clock{base: driver.Now().Add(-1), read: driver.Now}
}

func (c *clock) now() instant {
	if c.read == nil {
		return instant(time.Since(c.base)) // half the cost of time.Now
	}
	return instant(c.read().Sub(c.base))
}

// at returns the instant of a driver's deadline.
func (c *clock) at(t time.Time) instant { return instant(t.Sub(c.base)) }

// shared returns i for a driver that has the clock of time.Now too, or zero.
func (c *clock) shared(i instant) time.Time {
	if c.read != nil || i == 0 {
		return time.Time{}
	}
	return c.base.Add(time.Duration(i))
}

// time converts i to the clock of time.Now. The two clocks may differ after a
// suspend of the machine.
func (c *clock) time(i instant) time.Time {
	t := c.base.Add(time.Duration(i))
	if c.read == nil {
		return t
	}
	now := time.Now() // first: a pause between the readings makes the result earlier
	return t.Add(-c.read().Sub(now).Truncate(time.Millisecond))
}
