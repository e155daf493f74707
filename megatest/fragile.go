package megatest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
)

// fragile is the memory driver with the failures of a driver behind a network:
// its leases can expire early, and it can be unreachable.
type fragile struct {
	*memory.Lock

	mu  sync.Mutex      // guards the fields below
	up  context.Context // ends when the test breaks the backend, with errBroken
	cut context.CancelCauseFunc
}

func newFragile() *fragile {
	f := &fragile{Lock: memory.NewLock()}
	f.mend()
	return f
}

// untouched is the same table without the failures.
type untouched struct{ *memory.Lock }

// Close does nothing: the application closes the table.
func (untouched) Close(context.Context) error { return nil }

func (f *fragile) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.up == nil || f.up.Err() != nil {
		f.up, f.cut = context.WithCancelCause(context.Background())
	}
}

func (f *fragile) breakDown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut(errors.Join(driver.ErrUnavailable, errBroken))
}

var errBroken = errors.New("the test has broken the locks' backend")

// check returns why the backend cannot be reached, or nil.
func (f *fragile) check() error { return context.Cause(f.current()) }

// current returns the context that ends when the backend can no longer be reached.
func (f *fragile) current() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up
}

// reached calls wait, which ends when the backend can no longer be reached.
func (f *fragile) reached(ctx context.Context, wait func(context.Context) (driver.Grant, error)) (driver.Grant, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	up := f.current()
	defer context.AfterFunc(up, func() { cancel(context.Cause(up)) })()
	g, err := wait(ctx)
	if up.Err() == nil || errors.Is(err, driver.ErrPaused) {
		return g, err
	}
	if err == nil { // the answer is lost
		_ = f.Lock.Release(ctx, g)
	}
	return driver.Grant{}, context.Cause(up)
}

// Acquire implements [driver.Driver].
func (f *fragile) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := f.check(); err != nil {
		return driver.Grant{}, err
	}
	return f.reached(ctx, func(ctx context.Context) (driver.Grant, error) { return f.Lock.Acquire(ctx, r) })
}

// Ask implements [driver.Asker].
func (f *fragile) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	if err := f.check(); err != nil {
		return driver.Grant{}, nil, err
	}
	g, wait, err := f.Lock.Ask(ctx, r)
	if wait == nil {
		return g, nil, err
	}
	return g, func(ctx context.Context) (driver.Grant, error) { return f.reached(ctx, wait) }, err
}

// expire ends the leases of key and returns their number. The table can only
// force a release; Renew and the like translate that for the holders.
func (f *fragile) expire(key string) (int, error) {
	return f.Lock.ForceRelease(context.Background(), key, driver.Force{Reason: expiry})
}

// expiry is the reason that the table records for a lease that expire has
// ended. An operator's reason contains no control character.
const expiry = "\x00expired"

// Renew implements [driver.Driver].
func (f *fragile) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	if err := f.check(); err != nil {
		for i := range renewals {
			renewals[i].Err = err
		}
		return renewals
	}
	renewals = f.Lock.Renew(ctx, grants)
	for i := range renewals {
		renewals[i].Err = expired(renewals[i].Err)
	}
	return renewals
}

// expired returns err, or for a lease that expire has ended its loss by expiry.
func expired(err error) error {
	if lost, ok := errors.AsType[*driver.LostError](err); ok && lost.Reason == expiry {
		return &driver.LostError{Key: lost.Key, Cause: driver.Expired}
	}
	return err
}

// Release implements [driver.Driver].
func (f *fragile) Release(ctx context.Context, g driver.Grant) error {
	if err := f.check(); err != nil {
		return err
	}
	return expired(f.Lock.Release(ctx, g))
}

// BeginRun implements [driver.Runner].
func (f *fragile) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	if err := f.check(); err != nil {
		return driver.Run{}, err
	}
	run, err := f.Lock.BeginRun(ctx, g, every, spend)
	return run, expired(err)
}

// EndRun implements [driver.Runner].
func (f *fragile) EndRun(ctx context.Context, g driver.Grant, r driver.Run) error {
	if err := f.check(); err != nil {
		return err
	}
	return expired(f.Lock.EndRun(ctx, g, r))
}

// ForceRelease implements [driver.Driver].
func (f *fragile) ForceRelease(ctx context.Context, key string, force driver.Force) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	return f.Lock.ForceRelease(ctx, key, force)
}

// Heal implements [driver.PoolDriver].
func (f *fragile) Heal(ctx context.Context, key string, slot int, reason string, by driver.Holder) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.Lock.Heal(ctx, key, slot, reason, by)
}

// Inspect implements [driver.Driver].
func (f *fragile) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := f.check(); err != nil {
		return driver.State{Key: key}, err
	}
	return f.Lock.Inspect(ctx, key)
}

// List implements [driver.Driver].
func (f *fragile) List(ctx context.Context, prefix string) ([]driver.State, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	return f.Lock.List(ctx, prefix)
}
