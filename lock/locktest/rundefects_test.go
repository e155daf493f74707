package locktest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// runDefects are mistakes of drivers under Lead, Once and Every.
var runDefects = []defect{
	{"O1", "counts ticks on the clock of the process", true, ownClocks()},
	{"O1", "counts ticks from a time of its own", false, func() broken { return clockAhead(-12 * time.Hour) }},
	{"O1", "stores the tick in the process only", true, func() broken {
		started := new(numbers)
		return broken{beginRun: func(d driver.Runner, ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
			r, err := d.BeginRun(ctx, g, every, spend)
			r.Due = err == nil && started.raise(g.Key, r.Tick)
			return r, err
		}}
	}},
	{"O1", "does not replace a stored tick that is two ahead", false, func() broken {
		ended := new(numbers)
		return broken{beginRun: func(d driver.Runner, ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
			r, err := d.BeginRun(ctx, g, every, spend)
			r.Due = r.Due && ended.max(g.Key) <= r.Tick
			return r, err
		}, endRun: func(d driver.Runner, ctx context.Context, g driver.Grant, r driver.Run) error {
			ended.raise(g.Key, r.Tick)
			return d.EndRun(ctx, g, r)
		}}
	}},
	{"O1", "takes a repeated request for another run", false, func() broken {
		fences := new(numbers)
		return broken{beginRun: func(d driver.Runner, ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
			r, err := d.BeginRun(ctx, g, every, spend)
			r.Due = fences.raise(g.Key, int64(g.Fence)) && r.Due
			return r, err
		}}
	}},
	{"O1", "forgets a run after two of its own intervals", false, func() broken {
		var last sync.Map // of each key
		return broken{beginRun: func(d driver.Runner, ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
			r, err := d.BeginRun(ctx, g, every, spend)
			known, ok := last.Load(g.Key)
			if ok && time.Since(known.(driver.Run).Start) > 2*known.(driver.Run).Every {
				r.Due = err == nil
			}
			if r.Due {
				r.Start = time.Now()
				last.Store(g.Key, r)
			}
			return r, err
		}}
	}},
	{"O3", "does not spend the tick of a crash", false, func() broken {
		return broken{beginRun: func(d driver.Runner, ctx context.Context, g driver.Grant, every time.Duration, _ bool) (driver.Run, error) {
			return d.BeginRun(ctx, g, every, false)
		}}
	}},
	{"O3", "spends the tick at the start, also under AtLeastOnce", false, func() broken {
		return broken{beginRun: func(d driver.Runner, ctx context.Context, g driver.Grant, every time.Duration, _ bool) (driver.Run, error) {
			return d.BeginRun(ctx, g, every, true)
		}}
	}},
	{"O4", "loses the outcome of a run", false, func() broken {
		return broken{endRun: func(d driver.Runner, ctx context.Context, g driver.Grant, r driver.Run) error {
			r.Outcome = ""
			return d.EndRun(ctx, g, r)
		}}
	}},
	borrowed("O2", "lends a lock twice"),
	borrowed("E1", "lends a lock twice"),
	borrowed("E1", "counts fences anew for each process"),
	{"E1", "reports each lease as lost at its release", true, func() broken {
		return broken{release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			return errors.Join(driver.ErrLost, d.Release(ctx, g))
		}}
	}},
	{"E1", "returns grants whose deadline has passed", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Deadline = driver.Now().Add(-r.TTL)
			return g, err
		}}
	}},
	borrowed("E2", "does nothing when it is forced"),
	borrowed("E2", "reports a release that did not happen"),
	borrowed("E3", "reports a release that did not happen"),
	borrowed("E4", "polls"),
}

// borrowed returns a mistake of drivers of locks, which breaks another rule too.
func borrowed(rule, is string) defect {
	all := slices.Concat(defects, queueDefects)
	i := slices.IndexFunc(all, func(d defect) bool { return d.is == is })
	d := all[i]
	d.rule = rule
	return d
}

// ownClocks returns processes whose clocks are minutes apart.
func ownClocks() func() broken {
	var opened atomic.Int64
	return func() broken { return clockAhead(time.Duration(opened.Add(1)) * time.Minute) }
}

// clockAhead returns a driver that counts ticks on a clock that is ahead.
func clockAhead(by time.Duration) broken {
	return broken{beginRun: func(d driver.Runner, ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
		r, err := d.BeginRun(ctx, g, every, spend)
		r.Tick, r.Left = driver.TickAt(time.Now().Add(by), every)
		return r, err
	}}
}

// numbers holds the greatest number of each key.
type numbers struct {
	mu       sync.Mutex // guards greatest
	greatest map[string]int64
}

// raise reports whether n is greater than the numbers before it.
func (s *numbers) raise(key string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.greatest == nil {
		s.greatest = make(map[string]int64)
	}
	if n <= s.greatest[key] {
		return false
	}
	s.greatest[key] = n
	return true
}

// max returns the greatest number of key.
func (s *numbers) max(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.greatest[key]
}
