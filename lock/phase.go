package lock

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/internal/lazyctx"
)

// phase is the context of a part of a slot's life: of Init and the work, or of
// one Cleanup. It ends with the lease and with its part. The work also ends with
// the caller's context, and a Cleanup at its deadline. Like a leaseContext, it
// has no state until something waits for its end: a cycle of a pool then makes
// no context of the standard library.
type phase struct {
	slot  *Slot
	until instant // the deadline of a Cleanup; 0 for the work
	lazy  lazyctx.State
}

// end ends the phase, and reports whether it was the first call.
func (p *phase) end() (first bool) { return p.lazy.End(errReleased) }

func (p *phase) Deadline() (time.Time, bool) {
	if p.until == 0 {
		return p.slot.parent.Deadline()
	}
	return p.slot.hold.locker.clock.time(p.until), true
}

func (p *phase) Done() <-chan struct{} { return p.innerContext().Done() }

// Err checks the clock and the caller's context too: the goroutine or the timer
// that ends the inner context may be late.
func (p *phase) Err() error {
	lost := p.slot.Lease.Context().Err()
	if p.lazy.Inner() == nil && lost == nil && !p.lazy.Ended() && !p.passed() {
		return nil
	}
	return p.innerContext().Err()
}

// passed reports whether the caller's context has ended, or the time of the
// Cleanup is over.
func (p *phase) passed() bool {
	if p.until == 0 {
		return p.slot.parent.Err() != nil
	}
	return p.slot.hold.locker.clock.now() >= p.until
}

func (p *phase) Value(key any) any {
	if key == (leaseKey{}) {
		return p.slot.Lease
	}
	if in := p.lazy.Inner(); in != nil {
		return in.Value(key)
	}
	return p.slot.Lease.Context().Value(key)
}

// String returns the name of the context in the texts of derived contexts.
func (p *phase) String() string { return "lock.Slot(" + p.slot.Key() + ")" }

// innerContext returns the inner context and makes it at the first call.
func (p *phase) innerContext() *lazyctx.Inner {
	if in := p.lazy.Inner(); in != nil {
		return in
	}
	return p.lazy.Use(p.open(), errReleased)
}

func (p *phase) open() *lazyctx.Inner {
	lease := p.slot.Lease
	if p.until == 0 {
		// Not lease.Context(): the hold reaches this context, and the slot has to
		// stay collectable (L19).
		return workContext(lease.parent, lease.innerContext().Context)
	}
	ctx, cancel := context.WithTimeout(lease.Context(), p.until.sub(lease.hold.locker.clock.now()))
	return &lazyctx.Inner{Context: ctx, End: func(error) { cancel() }}
}

// workContext returns a context that ends with caller and with held, the inner
// context of a lease that does not end with caller (P1).
func workContext(caller, held context.Context) *lazyctx.Inner {
	cancel := context.CancelFunc(func() {})
	if d, ok := caller.Deadline(); ok {
		held, cancel = context.WithDeadline(held, d)
	}
	work, end := context.WithCancelCause(held)
	follow := func() {
		if !errors.Is(caller.Err(), context.DeadlineExceeded) { // else the deadline of work itself has passed
			end(context.Cause(caller))
		}
	}
	stop := context.AfterFunc(caller, follow)
	if caller.Err() != nil {
		follow() // AfterFunc calls it on a goroutine, later
	}
	return &lazyctx.Inner{Context: work, End: func(cause error) {
		stop()
		end(cause)
		cancel()
	}}
}
