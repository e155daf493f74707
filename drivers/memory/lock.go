package memory

import (
	"context"
	"time"

	locks "github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// Lock is a lock driver of scope Process. Its queue is always strict.
type Lock struct{ table *locks.Table }

var _ driver.Driver = (*Lock)(nil)

// NewLock returns an empty driver. Two of them know nothing of each other: a
// process makes one.
func NewLock() *Lock {
	return &Lock{locks.New(locks.Config{Now: clock{time.Now()}.now})}
}

// clock is time.Now at half its price: only the monotonic clock is read.
type clock struct{ base time.Time }

func (c clock) now() time.Time { return c.base.Add(time.Since(c.base)) }

// Info names the driver.
func (l *Lock) Info() driver.Info {
	return driver.Info{Name: "memory", Scope: driver.Process}
}

// Acquire implements [driver.Driver]. When ctx ends its wait the outcome is
// known: nothing is held and nothing queued, and the error is a
// *driver.NotAcquiredError around ctx's.
func (l *Lock) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return l.table.Acquire(ctx, r)
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
	return l.table.Release(g.Key, g.Token)
}

// ForceRelease implements [driver.Driver].
func (l *Lock) ForceRelease(_ context.Context, key, reason string, by driver.Holder) (int, error) {
	return l.table.Force(key, reason, by, nil)
}

// Inspect implements [driver.Driver].
func (l *Lock) Inspect(_ context.Context, key string) (driver.State, error) {
	return l.table.Inspect(key)
}

// List implements [driver.Driver]. Each state is of one instant, not all of
// the same.
func (l *Lock) List(_ context.Context, prefix string) ([]driver.State, error) {
	return l.table.List(prefix)
}

// Close implements [driver.Driver]. Grants can still be renewed and released
// until they expire.
func (l *Lock) Close(context.Context) error {
	l.table.Close()
	return nil
}
