package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// The bounds of the interval of Once and Every.
const (
	MinEvery = 10 * time.Millisecond
	MaxEvery = 366 * 24 * time.Hour
)

// Once runs fn if no process of the driver's scope has started a run of key in
// the present tick, and reports whether fn was called. A tick is
// floor(now / every) on the backend's clock, counted from 1970 UTC, so two runs
// may be close together: one at the end of its tick, the next at the beginning
// of its own.
//
// fn runs under a lease of key, as in [Locker.With]. While a run holds the key,
// other calls wait for at most every and at most their Wait, and then return
// false without an error: a run that is longer than a tick skips the ticks
// meanwhile (O2). The tick is spent when fn starts; with [AtLeastOnce], when fn
// has returned, with or without an error, unless ctx has ended before fn returned an
// error (O3). [Locker.Inspect] returns the last run of a key. A key should have one
// interval: with several, a tick may be due again after the backend's clock has stepped
// back by more than the shortest of them.
//
// Once returns the errors of With. The option [Slots] is ErrInvalid, and a driver
// without a record of runs returns ErrUnsupported.
func (l *Locker) Once(ctx context.Context, key string, every time.Duration, fn func(context.Context) error, opts ...Option) (ran bool, err error) {
	c, err := l.newOnce(key, every, fn, opts)
	l.locate(&c)
	run, err := l.once(ctx, &c, every, fn, err)
	return run.Due, err
}

// newOnce returns the call of a Once, or of one round of an Every.
func (l *Locker) newOnce(key string, every time.Duration, fn func(context.Context) error, opts []Option) (call, error) {
	c, err := l.newCall(key, opts)
	c.within = true
	c.wait = min(c.wait, every) // O2
	switch {
	case err != nil:
		return c, err
	case fn == nil:
		return c, invalidOption("the function is nil") // L14
	case c.sized:
		return c, invalidOption("Slots(%d) with Once", c.slots)
	case every < MinEvery || every > MaxEvery || every%time.Microsecond != 0:
		return c, invalidOption("the interval is %v, want %v to %v in whole microseconds", every, MinEvery, MaxEvery)
	}
	return c, l.supportsRuns()
}

// supportsRuns returns ErrUnsupported if the driver does not record runs.
func (l *Locker) supportsRuns() error {
	if err := lacks(l.info, "O1", "Once"); err != nil {
		return err
	}
	if l.runs == nil {
		return fmt.Errorf("%w: Once on the driver %s", ErrUnsupported, l.info.Name)
	}
	return nil
}

// once is Once with a checked call. It sets c.nextTick, unless the key was busy, and
// c.lost.
func (l *Locker) once(ctx context.Context, c *call, every time.Duration, fn func(context.Context) error, invalid error) (run Run, err error) {
	lease, err := l.acquire(ctx, c, invalid)
	if isSkipped(ctx, err) {
		return Run{}, nil
	}
	if err != nil {
		return Run{}, err
	}
	var ran *Ran // once fn has been called
	defer func() {
		if ran == nil {
			lease.unused()
		}
		loss := lease.finish() // L11
		c.lost = errors.Is(loss, ErrLost)
		err = joinLoss(c.key, err, loss)
		if ran != nil && l.observed() {
			ran.Err = joinLoss(c.key, ran.Err, loss)
			l.observe(*ran)
		}
	}()
	g := lease.hold.renewable()
	g.Fence = lease.fence
	run, err = l.beginRun(ctx, c, lease, g, every)
	if err != nil || !run.Due {
		return run, err
	}
	// O4: also when fn panics or calls runtime.Goexit; and while the lease is
	// live, so that no later run is overwritten.
	run.Outcome = driver.Failed
	start := l.clock.now()
	ran = &Ran{Key: c.key, Tick: run.Tick, Err: errNotReturned}
	defer func() {
		ran.Took = l.clock.now().sub(start)
		if c.atLeast && err != nil && lease.Context().Err() != nil {
			return // O3: a shutdown, also of the Locker, leaves the tick due, as a crash does
		}
		l.endRun(g, run)
	}()
	if err = fn(lease.Context()); err == nil {
		run.Outcome = driver.Done
	}
	ran.Err = err
	return run, err
}

// isSkipped reports whether err means that another process holds the key, so
// that the tick is skipped (O2).
func isSkipped(ctx context.Context, err error) bool {
	busy, ok := errors.AsType[*NotAcquiredError](err)
	return ok && !busy.Full && ctx.Err() == nil
}

// beginRun starts the run if it is due. After an error the tick may be spent.
func (l *Locker) beginRun(ctx context.Context, c *call, lease *Lease, g driver.Grant, every time.Duration) (Run, error) {
	bounded, cancel := context.WithTimeout(lease.Context(), driver.CallTimeout)
	defer cancel()
	run, err := l.runs.BeginRun(bounded, g, every, !c.atLeast) // O3
	if err == nil {
		c.nextTick = l.awake.now().add(run.Left)
	}
	if err == nil && !run.Due {
		return run, nil
	}
	if lease.Context().Err() != nil { // it may have ended during the call: fn does not start
		run.Due = false
		if ctx.Err() != nil {
			return run, contextError(ctx)
		}
		return run, nil // the release returns the loss; err may only be its consequence
	}
	if err != nil {
		err = l.unavailable(err, driver.CallTimeout)
		l.health.failed(err)
		return Run{}, fmt.Errorf("once %q: %w", g.Key, err)
	}
	return run, nil
}

// endRun records the outcome. It makes one attempt: without an outcome, the run
// looks like one that has crashed.
func (l *Locker) endRun(g driver.Grant, run Run) {
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	if err := l.runs.EndRun(ctx, g, run); err != nil && !errors.Is(err, ErrLost) {
		l.health.failed(l.unavailable(err, driver.CallTimeout))
	}
}
