package memory

import (
	"context"
	"time"

	locks "github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// Lock is a lock driver of scope Process. Its queue is always strict.
type Lock struct{ table *locks.Table }

var (
	_ driver.PoolDriver = (*Lock)(nil)
	_ driver.Runner     = (*Lock)(nil)
	_ driver.Asker      = (*Lock)(nil)
)

// NewLock returns an empty driver. Two drivers share nothing: a process makes
// one.
func NewLock() *Lock {
	return &Lock{locks.New(locks.Config{})}
}

// Info returns the driver's name and scope.
func (l *Lock) Info() driver.Info {
	return driver.Info{Name: "memory", Scope: driver.Process}
}

// Acquire implements [driver.Driver]. If ctx ends the wait, the outcome is
// known: nothing is held or queued, and the error is a *driver.NotAcquiredError
// that wraps ctx's error.
func (l *Lock) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, wait, err := l.table.Request(&r)
	if wait == nil {
		return g, err
	}
	return wait(ctx)
}

// Ask implements [driver.Asker].
func (l *Lock) Ask(_ context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	return l.table.Request(&r)
}

// Renew implements [driver.Driver].
func (l *Lock) Renew(_ context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	for i := range grants {
		renewals[i].Deadline, renewals[i].Err = l.table.Renew(&grants[i])
	}
	return renewals
}

// Release implements [driver.Driver].
func (l *Lock) Release(_ context.Context, g driver.Grant) error {
	if g.Rest > 0 {
		return l.table.Rest(&g)
	}
	return l.table.Release(&g)
}

// BeginRun implements [driver.Runner]. Runs are forgotten with the process.
func (l *Lock) BeginRun(_ context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	run, _, err := l.table.Begin(&g, every, spend)
	return run, err
}

// EndRun implements [driver.Runner].
func (l *Lock) EndRun(_ context.Context, g driver.Grant, r driver.Run) error {
	_, err := l.table.End(&g, &r)
	return err
}

// ForceRelease implements [driver.Driver].
func (l *Lock) ForceRelease(_ context.Context, key string, f driver.Force) (int, error) {
	return l.table.Force(key, f, nil)
}

// Heal implements [driver.PoolDriver].
func (l *Lock) Heal(_ context.Context, key string, slot int, _ string, by driver.Holder) error {
	return l.table.Heal(key, slot, by)
}

// Inspect implements [driver.Driver].
func (l *Lock) Inspect(_ context.Context, key string) (driver.State, error) {
	return l.table.Inspect(key)
}

// List implements [driver.Driver]. Each state is of one instant, but not all of
// the same instant.
func (l *Lock) List(_ context.Context, prefix string) ([]driver.State, error) {
	return l.table.List(prefix)
}

// Close implements [driver.Driver]. Grants can still be renewed and released
// until they expire.
func (l *Lock) Close(context.Context) error {
	l.table.Close()
	return nil
}
