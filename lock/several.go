package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// MaxKeys is the maximum number of keys of one [Locker.AcquireAll].
const MaxKeys = 64

// Leases are the leases of [Locker.AcquireAll]. Any number of goroutines may
// use them.
type Leases struct {
	locker *Locker
	all    []*Lease  // in byte order of their keys; each lives on the context of the previous one
	few    [4]*Lease // the room of all, for most sets
}

// WithAll runs fn under leases of all keys, as [Locker.With] does for one key.
// The context given to fn ends when any of the leases is lost, and its cause
// names the key. See [Locker.AcquireAll] for the order of the keys.
func (l *Locker) WithAll(ctx context.Context, keys []string, fn func(context.Context) error, opts ...Option) (err error) {
	c := call{within: true}
	l.locate(&c)
	if fn == nil {
		err = invalidOption("the function is nil") // L14
	}
	set, err := l.acquireAll(ctx, keys, c, opts, err)
	if err != nil {
		return err
	}
	// L11: also when fn panics or calls runtime.Goexit.
	defer func() {
		set.leave()
		for _, l := range set.all {
			err = joinLoss(l.Key(), err, l.loss())
		}
	}()
	return fn(set.Context())
}

// AcquireAll waits for leases of all keys, 1 to 64, and returns them. The caller
// must Release them. It returns all of them or none. A key that is there twice
// counts once.
//
// The keys are acquired one after the other in byte order, so that two calls
// with common keys never wait for each other in a circle. The option [Wait]
// bounds the time in all queues together. After a failure the leases that were
// granted before are released in parallel. A lease that is lost before the last
// one is granted is ErrLost. For the other errors see [Locker.Acquire]; [Slots]
// is ErrInvalid.
func (l *Locker) AcquireAll(ctx context.Context, keys []string, opts ...Option) (*Leases, error) {
	var c call
	l.locate(&c)
	return l.acquireAll(ctx, keys, c, opts, nil)
}

func (l *Locker) acquireAll(ctx context.Context, keys []string, c call, opts []Option, invalid error) (*Leases, error) {
	c.ttl, c.wait, c.fifo = l.config.TTL, l.config.Wait, l.config.FIFO
	keys, err := c.forAll(keys, opts)
	if err == nil {
		err = invalid
	}
	if err == nil {
		err = l.findDeadlocks(ctx, c, keys)
	}
	if err != nil {
		return nil, fmt.Errorf("acquire all: %w", err)
	}
	set := &Leases{locker: l}
	set.all = set.few[:0]
	complete := false
	defer func() { // also when a driver, an Identify or a context panics
		if !complete {
			for _, lease := range set.all {
				lease.unused() // A2
			}
			set.leave() // a failed release is retried in the background
		}
	}()
	for _, key := range keys {
		c.key = key
		lease, err := l.acquire(ctx, &c, nil)
		if err != nil {
			return nil, cmp.Or(set.lost(), err)
		}
		set.all = append(set.all, lease)
		// A4: the next lease ends with this one
		ctx = lease.Context() //nolint:fatcontext // it is to grow
		if lease.contended {  // A2
			if err := set.lost(); err != nil {
				return nil, err
			}
			c.wait = c.rest(c.waited)
		}
	}
	complete = true
	return set, nil
}

// rest returns what is left of c's wait after a part of it.
func (c *call) rest(waited time.Duration) time.Duration {
	if c.wait == Forever {
		return Forever
	}
	return max(c.wait-waited, 0)
}

// forAll applies opts to a call for several keys, and returns the keys in the
// order in which they are acquired.
func (c *call) forAll(keys []string, opts []Option) ([]string, error) {
	if len(opts) > 0 {
		*c = c.with(opts)
	}
	if c.sized {
		return nil, invalidOption("Slots given for several keys")
	}
	c.slots = 1
	if !ascending(keys) {
		keys = slices.Clone(keys)
		slices.Sort(keys)           // A3
		keys = slices.Compact(keys) // A1
	}
	if len(keys) == 0 || len(keys) > MaxKeys {
		return nil, invalid("lock.invalid_key", "%d keys, want 1 to %d", len(keys), MaxKeys)
	}
	for _, c.key = range keys {
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// ascending reports whether keys are in byte order and all different.
func ascending(keys []string) bool {
	for i := 1; i < len(keys); i++ {
		if keys[i-1] >= keys[i] {
			return false
		}
	}
	return true
}

// findDeadlocks returns ErrDeadlock if a live lease on ctx holds one of the
// keys. It looks before the first key is acquired, so that a call that must
// fail neither waits nor holds anything.
func (l *Locker) findDeadlocks(ctx context.Context, c call, keys []string) error {
	if _, ok := LeaseFrom(ctx); !ok {
		return nil
	}
	for _, c.key = range keys {
		if err := l.findDeadlock(ctx, &c); err != nil {
			return fmt.Errorf("%q: %w", c.key, err)
		}
	}
	return nil
}

// lost returns the loss of a lease of the set, or nil if all are live.
func (ls *Leases) lost() error {
	for _, l := range ls.all {
		if over, cause := l.end(); over {
			return fmt.Errorf("acquire all: %w", cause)
		}
	}
	return nil
}

// Fence returns the fence of the lease of key, and 0 if the set has none.
func (ls *Leases) Fence(key string) uint64 {
	for _, l := range ls.all {
		if l.Key() == key {
			return l.fence
		}
	}
	return 0
}

// Context returns the context of the leases. It ends with the context of the
// call, or when any of the leases is lost or released; after a loss
// context.Cause returns a *LostError with the key. Keep a reference to the
// Leases while the work runs, see [Lease.Context].
func (ls *Leases) Context() context.Context { return ls.all[len(ls.all)-1].Context() }

// Release releases all leases, in parallel where that takes time. It takes at
// most about a second and is idempotent. The first call returns the errors of
// the releases, joined; see [Lease.Release].
func (ls *Leases) Release() error {
	errs := ls.leave()
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("release %q: %w", ls.all[i].Key(), err)
		}
	}
	return errors.Join(errs...)
}

// leave releases all leases and returns their errors in the same order, or nil
// if there are none.
func (ls *Leases) leave() (errs []error) {
	if ls.locker.info.Scope > driver.Process {
		return ls.leaveTogether()
	}
	for i, l := range slices.Backward(ls.all) {
		err := l.leave()
		if err != nil && errs == nil {
			errs = make([]error, len(ls.all))
		}
		if err != nil {
			errs[i] = err
		}
	}
	return errs
}

func (ls *Leases) leaveTogether() []error {
	errs := make([]error, len(ls.all))
	var work sync.WaitGroup
	for i, l := range ls.all {
		work.Go(func() { errs[i] = l.leave() }) // A2
	}
	work.Wait()
	return errs
}
