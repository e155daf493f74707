package lock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/lazyctx"
)

// Lease is the right to a key, until it is released or lost. It renews itself
// unless NoRenew was given. Any number of goroutines may use it.
type Lease struct {
	hold      *hold
	parent    context.Context // of the call
	fence     uint64
	since     instant
	contended bool   // the key was busy when the call began
	slots     uint16 // the size of the pool, 1 for a plain key
	isSlot    bool
	ofPool    bool // the slot of a Pool, which does not end with parent (P1)

	inner atomic.Pointer[lazyctx.Inner] // made when something first waits for the context

	// The rest is guarded by hold.mu.
	over     bool  // the context has ended
	cause    error // why
	released bool  // Release was called
	token    string
}

// newLease returns a lease of c on the grant of o. The lease is not live before
// hold.attach.
func newLease(ctx context.Context, c *call, o outcome) *Lease {
	var lease *Lease
	if c.pool == nil {
		lease = new(Lease)
	} else {
		both := new(slotAndLease) // one allocation instead of two
		lease, c.slot = &both.lease, &both.slot
	}
	lease.hold, lease.parent, lease.fence, lease.since, lease.contended = o.hold, ctx, o.fence, o.at, o.contended
	lease.slots, lease.isSlot, lease.ofPool = uint16(c.slots), c.sized, c.pool != nil
	return lease
}

// Key returns the key of the lease.
func (l *Lease) Key() string { return l.hold.grant.Key }

// Token returns the random identifier of this lease. It is never used twice.
func (l *Lease) Token() string {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	if l.token == "" {
		l.token = newToken()
	}
	return l.token
}

// Fence returns a number that is greater than the fence of every earlier lease
// of the key, and below 2^53. A store that keeps the greatest fence it has seen
// can refuse a late write.
func (l *Lease) Fence() uint64 { return l.fence }

// Slot returns the number of the lease's slot, 0 to n-1 for a pool of n. The newest
// call decides the size (L15): a call that waits while a newer one enlarges the
// pool may get a number that is not below its own [Lease.Slots].
func (l *Lease) Slot() int { return l.hold.grant.Slot }

// Slots returns the size of the pool that the call named: n under Slots(n),
// else 1.
func (l *Lease) Slots() int { return int(l.slots) }

// IsSlot reports whether the lease is a slot of a pool: it came from a [Pool], or
// from a call with Slots or FixedSlots, of any size. Other leases are of a plain
// key.
func (l *Lease) IsSlot() bool { return l.isSlot }

// Contended reports whether the key was busy when the call for this lease
// began.
func (l *Lease) Contended() bool { return l.contended }

// Deadline returns the time until which this process can be sure of the lease.
// Each renewal moves it.
func (l *Lease) Deadline() time.Time {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.hold.locker.clock.time(l.hold.deadline)
}

// Extend sets the life of the lease to ttl from now, 100ms to 24h, also for its
// later renewals; under NoRenew it moves the end once. It returns ErrInvalid for
// another ttl, ErrLost if the lease is over, and ErrUnavailable or ctx's error if the
// outcome is not known. In the last case the lease ends at the earlier of its old and
// its new deadline, unless it is renewed.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	c := call{key: l.hold.grant.Key, ttl: ttl, slots: 1}
	err := c.check()
	if err == nil {
		err = l.hold.extend(ctx, l, ttl)
	}
	if err != nil {
		return fmt.Errorf("extend %q: %w", l.hold.grant.Key, err)
	}
	return nil
}

// Release ends the lease and serves the next waiter, also when the lease's
// context has ended. It takes at most about a second and is idempotent.
//
// The first call returns ErrLost if the lease was already over. If the backend
// does not answer, it returns ErrUnavailable and retries the release in the
// background until the TTL has passed. Any later call returns nil.
func (l *Lease) Release() error {
	if err := l.leave(); err != nil {
		return fmt.Errorf("release %q: %w", l.hold.grant.Key, err)
	}
	return nil
}

// live reports whether the lease is neither released nor lost.
func (l *Lease) live() bool {
	over, _ := l.end()
	return !over
}

// liveNow is live, and returns the time.
func (l *Lease) liveNow() (instant, bool) {
	now := l.hold.locker.clock.now()
	over, _ := l.endAt(now)
	return now, !over
}

// peekLive is live without an effect on a lease whose deadline has passed.
func (l *Lease) peekLive() bool {
	h := l.hold
	now := h.locker.clock.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !l.over && !h.ended && now < h.deadline
}

// end reports whether the lease is over, and returns the cause. A lease whose
// deadline has passed by the clock ends here, even if no timer has fired yet.
func (l *Lease) end() (over bool, cause error) { return l.endAt(l.hold.locker.clock.now()) }

func (l *Lease) endAt(now instant) (over bool, cause error) {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	l.expireLocked(now)
	return l.over, l.cause
}

// expireLocked ends the lease if its deadline has passed at now (L4). The caller holds
// hold.mu, which is given up meanwhile.
func (l *Lease) expireLocked(now instant) {
	h := l.hold
	if l.over || h.ended || now < h.deadline {
		return
	}
	h.mu.Unlock()
	h.lose(h.expiry())
	h.mu.Lock()
}
