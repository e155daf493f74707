package locktest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Share returns an Open whose drivers are processes that share d. Closing one
// of them ends its waiters and does not affect d or the others. Their Info
// reports scope, so that a driver of scope Process can also replace a remote
// one, on fake time. They implement [driver.PoolDriver] and [driver.Asker] if d
// does.
func Share(d driver.Driver, scope driver.Scope) func() (driver.Driver, error) {
	return func() (driver.Driver, error) {
		ctx, end := context.WithCancel(context.Background())
		v := &view{shared: d, scope: scope, open: ctx, end: end}
		pools, hasPools := d.(driver.PoolDriver)
		asker, asks := d.(driver.Asker)
		switch {
		case hasPools && asks:
			return &struct {
				*askView
				poolView
			}{&askView{v, asker}, poolView{pools}}, nil
		case hasPools:
			return &struct {
				*view
				poolView
			}{v, poolView{pools}}, nil
		case asks:
			return &askView{v, asker}, nil
		}
		return v, nil
	}
}

// poolView is the part of a view that operators of pools use.
type poolView struct{ pools driver.PoolDriver }

func (v poolView) Heal(ctx context.Context, key string, slot int, reason string, by driver.Holder) error {
	return v.pools.Heal(ctx, key, slot, reason, by)
}

// askView is a view of a driver whose Acquire has two parts.
type askView struct {
	*view
	asker driver.Asker
}

func (v *askView) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	var wait func(context.Context) (driver.Grant, error)
	g, err := v.during(ctx, func(ctx context.Context) (g driver.Grant, err error) {
		g, wait, err = v.asker.Ask(ctx, r)
		return g, err
	})
	if wait == nil {
		return g, nil, err
	}
	return g, func(ctx context.Context) (driver.Grant, error) { return v.during(ctx, wait) }, nil
}

// view is one process of a shared driver.
type view struct {
	shared driver.Driver
	scope  driver.Scope
	open   context.Context // ends with Close
	end    context.CancelFunc
}

func (v *view) Info() driver.Info {
	info := withRuns(v.shared)
	info.Scope = v.scope
	return info
}

func (v *view) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return v.during(ctx, func(ctx context.Context) (driver.Grant, error) { return v.shared.Acquire(ctx, r) })
}

// during calls the shared driver with a context that Close ends too.
func (v *view) during(ctx context.Context, call func(context.Context) (driver.Grant, error)) (driver.Grant, error) {
	if v.open.Err() != nil {
		return driver.Grant{}, driver.ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.open, cancel)()
	g, err := call(ctx)
	if err != nil && v.open.Err() != nil {
		return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	g.Deadline = v.onClock(g.Deadline)
	return g, err
}

func (v *view) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := v.shared.Renew(ctx, grants)
	for i := range renewals {
		renewals[i].Deadline = v.onClock(renewals[i].Deadline)
	}
	return renewals
}

// onClock converts a deadline from the clock of time.Now, which a driver of
// scope Process uses, to the clock of driver.Now.
func (v *view) onClock(t time.Time) time.Time {
	if v.scope == driver.Process || v.shared.Info().Scope > driver.Process || t.IsZero() {
		return t
	}
	return t.Add(time.Until(driver.Now()).Truncate(time.Millisecond))
}

func (v *view) Release(ctx context.Context, g driver.Grant) error { return v.shared.Release(ctx, g) }

func (v *view) ForceRelease(ctx context.Context, key string, f driver.Force) (int, error) {
	return v.shared.ForceRelease(ctx, key, f)
}

func (v *view) Inspect(ctx context.Context, key string) (driver.State, error) {
	return v.shared.Inspect(ctx, key)
}

func (v *view) List(ctx context.Context, prefix string) ([]driver.State, error) {
	return v.shared.List(ctx, prefix)
}

func (v *view) Close(context.Context) error {
	v.end()
	return nil
}

// withRuns returns the Info of d, which lacks the first rule of runs if d does not
// implement driver.Runner.
func withRuns(d driver.Driver) driver.Info {
	info := d.Info()
	if _, ok := d.(driver.Runner); !ok && !lacks(info, "O1") {
		info.Lacks = append(slices.Clip(info.Lacks), driver.Lack{Rule: "O1", Why: "the driver does not implement Runner"})
	}
	return info
}

// BeginRun and EndRun return ErrUnsupported if the shared driver records no
// runs; its Info then lacks O1.

func (v *view) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	return beginRun(ctx, v.shared, g, every, spend)
}

func (v *view) EndRun(ctx context.Context, g driver.Grant, r driver.Run) error {
	return endRun(ctx, v.shared, g, r)
}

func beginRun(ctx context.Context, d driver.Driver, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	if r, ok := d.(driver.Runner); ok {
		return r.BeginRun(ctx, g, every, spend)
	}
	return driver.Run{}, fmt.Errorf("%w: runs on the driver %s", driver.ErrUnsupported, d.Info().Name)
}

func endRun(ctx context.Context, d driver.Driver, g driver.Grant, run driver.Run) error {
	if r, ok := d.(driver.Runner); ok {
		return r.EndRun(ctx, g, run)
	}
	return fmt.Errorf("%w: runs on the driver %s", driver.ErrUnsupported, d.Info().Name)
}
