package megactx

import (
	"context"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// Lock is a view of the process's locks that is bound to a Ctx: its waits end
// with that Ctx, and its leases belong to it. A lease that is still held when
// the handler has returned is released and logged.
//
// A method returns the errors of the same method of [lock.Locker]; on the zero Lock it
// returns ErrNotConfigured.
type Lock struct {
	locker *lock.Locker
	ctx    *Ctx
}

// With runs fn while it holds key. The Ctx of fn ends when the lease is lost;
// With then returns ErrLost, joined with fn's error.
func (l Lock) With(key string, fn func(*Ctx) error, opts ...lock.Option) error {
	if l.locker == nil {
		return errNoLocks
	}
	if fn == nil {
		return l.locker.With(l.ctx, key, nil, opts...) // L14
	}
	wait := l.ctx.work.BeginWait(l.ctx, l.locker, key)
	err := l.locker.With(l.ctx, key, func(held context.Context) error {
		c := l.ctx.WithContext(held)
		if lease, ok := c.Lease(); ok {
			wait.Granted(lease)
		}
		return fn(c)
	}, forwarded(opts)...)
	wait.Refused(err)
	return err
}

// WithAll runs fn while it holds all keys, which are acquired in byte order. The
// Ctx of fn ends when any of the leases is lost; WithAll then returns ErrLost,
// joined with fn's error.
func (l Lock) WithAll(keys []string, fn func(*Ctx) error, opts ...lock.Option) error {
	if l.locker == nil {
		return errNoLocks
	}
	if fn == nil {
		return l.locker.WithAll(l.ctx, keys, nil, opts...) // L14
	}
	wait := l.ctx.work.BeginWait(l.ctx, l.locker, keys...)
	err := l.locker.WithAll(l.ctx, keys, func(held context.Context) error {
		leases := lock.LeasesFrom(held)
		wait.Granted(leases[:len(leases)-len(lock.LeasesFrom(l.ctx))]...) // without those around the set
		return fn(l.ctx.WithContext(held))
	}, forwarded(opts)...)
	wait.Refused(err)
	return err
}

// Acquire waits for key, at most for its Wait option, and returns the lease.
// The caller must release it.
func (l Lock) Acquire(key string, opts ...lock.Option) (*lock.Lease, error) {
	if l.locker == nil {
		return nil, errNoLocks
	}
	wait := l.ctx.work.BeginWait(l.ctx, l.locker, key)
	lease, err := l.locker.Acquire(l.ctx, key, forwarded(opts)...)
	wait.End(lease, err)
	return lease, err
}

// TryAcquire is Acquire without waiting.
func (l Lock) TryAcquire(key string, opts ...lock.Option) (*lock.Lease, error) {
	if l.locker == nil {
		return nil, errNoLocks
	}
	wait := l.ctx.work.BeginWait(l.ctx, l.locker, key)
	lease, err := l.locker.TryAcquire(l.ctx, key, forwarded(opts)...)
	wait.End(lease, err)
	return lease, err
}

// noOptions are the options of a call without options, which so allocates none.
var noOptions = [...]lock.Option{lock.Forwarded()}

// forwarded adds the option with which the lock records the caller of a method
// of Lock as the call site.
func forwarded(opts []lock.Option) []lock.Option {
	if len(opts) == 0 {
		return noOptions[:]
	}
	return append([]lock.Option{lock.Forwarded()}, opts...)
}

// WithSlot runs fn with a slot of p, between p's Init and Cleanup. The Ctx of fn
// ends when the lease of the slot is lost; WithSlot then returns ErrLost, joined
// with fn's error. See [lock.Locker.WithSlot].
func (l Lock) WithSlot(p *lock.Pool, fn func(*Ctx, *lock.Slot) error, opts ...lock.Option) error {
	if l.locker == nil {
		return errNoLocks
	}
	if fn == nil {
		return l.locker.WithSlot(l.ctx, p, nil, opts...) // L14
	}
	var key string
	if p != nil {
		key = p.Key
	}
	wait := l.ctx.work.BeginWait(l.ctx, l.locker, key)
	err := l.locker.WithSlot(l.ctx, p, func(held context.Context, s *lock.Slot) error {
		wait.Granted(s.Lease)
		return fn(l.ctx.WithContext(held), s)
	}, forwarded(opts)...)
	wait.Refused(err)
	return err
}

// ForceRelease takes key from its holders, for an operator's reason, and
// returns the number of leases it ended. With lock.OnlySlot, it takes one slot.
func (l Lock) ForceRelease(key, reason string, opts ...lock.ForceOption) (released int, err error) {
	if l.locker == nil {
		return 0, errNoLocks
	}
	return l.locker.ForceRelease(l.ctx, key, reason, opts...)
}

// Heal puts a withdrawn or resting slot of the pool key back into circulation,
// for an operator's reason.
func (l Lock) Heal(key string, slot int, reason string) error {
	if l.locker == nil {
		return errNoLocks
	}
	return l.locker.Heal(l.ctx, key, slot, reason)
}

// Stats returns the counters of this process's locks, or zero without
// configured locks.
func (l Lock) Stats() lock.Stats {
	if l.locker == nil {
		return lock.Stats{}
	}
	return l.locker.Stats()
}

// Inspect returns the holders and waiters of key.
func (l Lock) Inspect(key string) (lock.State, error) {
	if l.locker == nil {
		return lock.State{}, errNoLocks
	}
	return l.locker.Inspect(l.ctx, key)
}

// List returns the state of every key in use that begins with prefix.
func (l Lock) List(prefix string) ([]lock.State, error) {
	if l.locker == nil {
		return nil, errNoLocks
	}
	return l.locker.List(l.ctx, prefix)
}

// Info returns the driver of the locks and its guarantees, or zero without
// configured locks.
func (l Lock) Info() driver.Info {
	if l.locker == nil {
		return driver.Info{}
	}
	return l.locker.Info()
}
