package lock

import (
	"context"
	"errors"
	"time"
)

// errReleased is the cause of a lease's context after its release.
var errReleased = errors.New("lock: released")

// Context returns the lease's context. It carries the values and the deadline
// of the context that the lease was acquired on, and ends with it, with the
// release, or with the loss of the lease; context.Cause then is a *LostError.
// Keep the lease as long as the work runs: a caller that keeps only the context
// loses the lease to the garbage collector after its last use of the context,
// such as a call of Done.
func (l *Lease) Context() context.Context { return (*leaseContext)(l) }

type leaseKey struct{}

// LeaseFrom returns the innermost lease whose context ctx is, or is derived
// from.
func LeaseFrom(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// WithoutLease returns a context on which no lease is found: work that goes on
// beside the one that holds a lease has to take the key itself, and may wait
// for it. In all else it is ctx.
func WithoutLease(ctx context.Context) context.Context { return leaseless{ctx} }

type leaseless struct{ context.Context }

func (c leaseless) Value(key any) any {
	if key == (leaseKey{}) {
		return nil
	}
	return c.Context.Value(key)
}

// leaseContext is a Lease as a context.Context. Until somebody waits for its
// end it needs nothing of its own; from then on it stands on an inner context
// of the standard library, so that derived contexts attach to it without
// goroutines and context.Cause finds its cause.
type leaseContext Lease

// inner is the context that ends with the lease.
type inner struct {
	context.Context
	end context.CancelCauseFunc
}

// Deadline is the parent's: a lease's own moves with every renewal.
func (c *leaseContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

func (c *leaseContext) Done() <-chan struct{} { return (*Lease)(c).innerContext().Done() }

// Err looks at the clock, not only at what timers have noticed.
func (c *leaseContext) Err() error {
	l := (*Lease)(c)
	l.hold.heed()
	over, cause := l.end()
	if !over && l.inner.Load() == nil {
		return l.parent.Err()
	}
	in := l.innerContext()
	if over {
		in.end(cause) // whoever ended the lease may not have come so far yet
	}
	return in.Err()
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return (*Lease)(c)
	}
	if in := (*Lease)(c).inner.Load(); in != nil {
		return in.Value(key)
	}
	return c.parent.Value(key)
}

// String names the context in derived contexts' texts.
func (c *leaseContext) String() string { return "lock.Lease(" + c.hold.grant.Key + ")" }

// innerContext returns the inner context, made now if need be; from then on
// somebody may be waiting for its end, so losses are listened for.
func (l *Lease) innerContext() *inner {
	if in := l.inner.Load(); in != nil {
		return in
	}
	ctx, end := context.WithCancelCause(l.parent)
	in := &inner{ctx, end}
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

// ending is what is to be done when a lease ends. It does not hold on to the
// lease.
type ending struct {
	inner  *inner
	unbind func() bool // ends the watch of the context that the lease lives on
}

// end must be called without any mutex held: whoever waits for the context is
// called from here.
func (e ending) end(cause error) {
	if e.inner != nil {
		e.inner.end(cause)
	}
	if e.unbind != nil {
		e.unbind()
	}
}
