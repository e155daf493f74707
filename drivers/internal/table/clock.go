package table

import "time"

// instant is a moment on the clock of a table, in nanoseconds; 0 is none. It has a
// third of the size of a time.Time, and compares with <.
type instant int64

func (i instant) add(d time.Duration) instant { return i + instant(d) }

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// clock is the clock of a table. It is not changed after newClock.
type clock struct {
	base   time.Time        // one nanosecond before the first instant
	wall   int64            // base in nanoseconds since 1970
	read   func() time.Time // nil means time.Now
	micros func() uint64    // nil means the time of day at base, continued
}

func newClock(c Config) clock {
	base := time.Now()
	if c.Now != nil {
		base = c.Now()
	}
	base = base.Add(-1)
	return clock{base: base, wall: base.UnixNano(), read: c.Now, micros: c.Micros}
}

func (c *clock) now() instant {
	if c.read == nil {
		return instant(time.Since(c.base)) // half the cost of time.Now
	}
	return c.at(c.read())
}

// at returns the instant of t.
func (c *clock) at(t time.Time) instant { return instant(t.Sub(c.base)) }

// called returns the instant of a call whose caller may have read the clock.
func (c *clock) called(read time.Time) instant {
	if read.IsZero() {
		return c.now()
	}
	return c.at(read)
}

func (c *clock) time(i instant) time.Time { return c.base.Add(time.Duration(i)) }

// unixMicro returns the microseconds since 1970 at now, which is the present.
func (c *clock) unixMicro(now instant) uint64 {
	if c.micros != nil {
		return c.micros()
	}
	return uint64(c.wall+int64(now)) / 1000
}

// timeOfDay is unixMicro for what people read and schedule. It costs more, and
// follows a clock that was set or a machine that was suspended in every table.
func (c *clock) timeOfDay(now instant) int64 {
	if c.read == nil && c.micros == nil {
		return time.Now().UnixMicro()
	}
	return int64(c.unixMicro(now))
}
