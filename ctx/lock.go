package megactx

import (
	"context"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// Lock is a view of the process's locks that is bound to a Ctx: what it waits
// for ends with that Ctx, and what it holds belongs to it. A lease that is
// still held when the handler has returned is released and logged.
//
// The zero Lock answers ErrNotConfigured.
type Lock struct {
	locker *lock.Locker
	ctx    *Ctx
}

// With runs fn while it holds key. The Ctx that fn is given ends when the
// lease is lost; With then returns ErrLost, joined with fn's error.
func (l Lock) With(key string, fn func(*Ctx) error, opts ...lock.Option) error {
	if l.locker == nil {
		return ErrNotConfigured
	}
	wait := l.beginWait(key)
	err := l.locker.With(l.ctx, key, func(held context.Context) error {
		c := l.ctx.WithContext(held)
		if lease, ok := c.Lease(); ok {
			wait.granted(lease)
		}
		return fn(c)
	}, opts...)
	wait.refused(err)
	return err
}

// Acquire waits for key as long as its Wait allows and returns the lease. The
// caller has to release it.
func (l Lock) Acquire(key string, opts ...lock.Option) (*lock.Lease, error) {
	if l.locker == nil {
		return nil, ErrNotConfigured
	}
	wait := l.beginWait(key)
	lease, err := l.locker.Acquire(l.ctx, key, opts...) // called from here: the lock notes by whom
	wait.over(lease, err)
	return lease, err
}

// TryAcquire is Acquire without waiting.
func (l Lock) TryAcquire(key string, opts ...lock.Option) (*lock.Lease, error) {
	if l.locker == nil {
		return nil, ErrNotConfigured
	}
	wait := l.beginWait(key)
	lease, err := l.locker.TryAcquire(l.ctx, key, opts...) // called from here: the lock notes by whom
	wait.over(lease, err)
	return lease, err
}

// ForceRelease takes key from whoever holds it, for an operator's reason, and
// returns how many leases there were.
func (l Lock) ForceRelease(key, reason string) (released int, err error) {
	if l.locker == nil {
		return 0, ErrNotConfigured
	}
	return l.locker.ForceRelease(l.ctx, key, reason)
}

// Stats returns what the locks of this process have done. It is zero where
// they are not configured.
func (l Lock) Stats() lock.Stats {
	if l.locker == nil {
		return lock.Stats{}
	}
	return l.locker.Stats()
}

// Inspect returns who holds key and who waits for it.
func (l Lock) Inspect(key string) (lock.State, error) {
	if l.locker == nil {
		return lock.State{}, ErrNotConfigured
	}
	return l.locker.Inspect(l.ctx, key)
}

// List returns the state of every key in use that begins with prefix.
func (l Lock) List(prefix string) ([]lock.State, error) {
	if l.locker == nil {
		return nil, ErrNotConfigured
	}
	return l.locker.List(l.ctx, prefix)
}

// Info says which driver keeps the locks and what it promises. It is zero
// where they are not configured.
func (l Lock) Info() driver.Info {
	if l.locker == nil {
		return driver.Info{}
	}
	return l.locker.Info()
}
