package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/internal/lazyctx"
)

// errReleased is the cause of a lease's context after its release.
var errReleased = errors.New("lock: released")

// Context returns the lease's context. It carries the values and the deadline
// of the context of the Acquire call. It ends with that context, at the
// release, or at the loss of the lease; after a loss context.Cause returns a
// *LostError. Keep a reference to the lease while the work runs: the garbage
// collector takes back the lease of a caller that keeps only the context, after
// the last use of the context, such as a call of Done.
func (l *Lease) Context() context.Context { return (*leaseContext)(l) }

// Err returns nil while the lease is live, a *LostError after its loss, and
// ErrLost after its release. Unlike the Err of its context, it does not depend
// on the context of the Acquire call.
func (l *Lease) Err() error {
	l.hold.heed() // L4: a force ends the lease also if nothing waits for its context
	over, cause := l.end()
	switch {
	case !over:
		return nil
	case errors.Is(cause, ErrLost):
		return cause
	}
	return fmt.Errorf("%w: %q was released", ErrLost, l.Key())
}

type leaseKey struct{}

// LeaseFrom returns the innermost lease whose context ctx is, or is derived
// from.
func LeaseFrom(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// LeasesFrom returns all leases whose contexts ctx is derived from, the
// innermost first. A lease that has ended is among them.
func LeasesFrom(ctx context.Context) (all []*Lease) {
	for l, ok := LeaseFrom(ctx); ok; l, ok = LeaseFrom(l.parent) {
		all = append(all, l)
	}
	return all
}

// WithoutLease returns a copy of ctx without a lease, for work that runs beside
// the holder of a lease. Such work must acquire the key itself, and may wait
// for it.
func WithoutLease(ctx context.Context) context.Context { return leaseless{ctx} }

type leaseless struct{ context.Context }

func (c leaseless) Value(key any) any {
	if key == (leaseKey{}) {
		return nil
	}
	return c.Context.Value(key)
}

// leaseContext is a Lease as a context.Context. It has no state until something
// waits for its end. From then on it uses an inner context of the standard
// library, so that derived contexts attach to it without goroutines and
// context.Cause finds its cause.
type leaseContext Lease

// above returns the context that l lives on.
func (l *Lease) above() context.Context {
	if l.ofPool {
		return context.WithoutCancel(l.parent) // P1
	}
	return l.parent
}

// Deadline returns the deadline of the context above: the lease's deadline moves
// with every renewal.
func (c *leaseContext) Deadline() (time.Time, bool) { return (*Lease)(c).above().Deadline() }

func (c *leaseContext) Done() <-chan struct{} { return (*Lease)(c).innerContext().Done() }

// Err checks the clock too, because a timer may fire late.
func (c *leaseContext) Err() error { return c.errAt(c.hold.locker.clock.now()) }

// errAt is Err at the time now on the clock of the lease's Locker.
func (c *leaseContext) errAt(now instant) error {
	l := (*Lease)(c)
	l.hold.heed()
	over, cause := l.endAt(now)
	if !over {
		err := l.hold.locker.ended(l.above(), now) // ends an outer lease whose time is over, too
		if l.inner.Load() == nil {
			return err
		}
	}
	in := l.innerContext()
	if over {
		in.End(cause) // the goroutine that ended the lease may not have ended it yet
	}
	return in.Err()
}

// ended returns the error of ctx at the time now. Leases inside each other, as those
// of WithAll, share this reading of the clock.
func (l *Locker) ended(ctx context.Context, now instant) error {
	if c, ok := ctx.(*leaseContext); ok && c.hold.locker == l {
		return c.errAt(now)
	}
	return ctx.Err()
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return (*Lease)(c)
	}
	if in := (*Lease)(c).inner.Load(); in != nil {
		return in.Value(key)
	}
	return (*Lease)(c).above().Value(key)
}

// String returns the name of the context in the texts of derived contexts.
func (c *leaseContext) String() string { return "lock.Lease(" + c.hold.grant.Key + ")" }

// innerContext returns the inner context and makes it at the first call. From
// then on something may wait for its end, so the hold listens for losses.
func (l *Lease) innerContext() *lazyctx.Inner {
	if in := l.inner.Load(); in != nil {
		return in
	}
	ctx, end := context.WithCancelCause(l.above())
	in := &lazyctx.Inner{Context: ctx, End: end}
	if !l.inner.CompareAndSwap(nil, in) {
		end(nil)
		return l.inner.Load()
	}
	// The lease may have ended while there was no context to end.
	l.hold.mu.Lock()
	over, cause := l.over, l.cause
	if !over {
		l.hold.ending.inner = in
	}
	l.hold.mu.Unlock()
	if over {
		end(cause)
	} else {
		l.hold.listen()
	}
	return in
}

// ending holds the steps to take when a lease ends. It does not keep the lease
// reachable.
type ending struct {
	inner  *lazyctx.Inner
	unbind func() bool // ends the watch of the lease's parent context
}

// end must be called without any mutex held: it calls the functions that wait
// for the context.
func (e ending) end(cause error) {
	if e.inner != nil {
		e.inner.End(cause)
	}
	if e.unbind != nil {
		e.unbind()
	}
}
