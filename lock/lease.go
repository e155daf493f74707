package lock

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// Lease is the right to a key, until it is released or lost. It renews itself
// unless NoRenew was given. Any number of goroutines may use it.
type Lease struct {
	hold   *hold
	parent context.Context
	fence  uint64
	since  instant
	waited bool // the key was busy when it was asked for

	inner atomic.Pointer[inner] // made when the context is first used in earnest

	// The rest is guarded by hold.mu.
	over     bool  // the context has ended
	cause    error // why
	released bool  // Release was called
	token    string
}

// newLease makes a lease on the grant of o; it is not live before hold.attach.
func newLease(ctx context.Context, o outcome) *Lease {
	return &Lease{hold: o.hold, parent: ctx, fence: o.fence, since: o.at, waited: o.contended}
}

// Key is the key that is held.
func (l *Lease) Key() string { return l.hold.grant.Key }

// Token identifies this lease: random, made by the library, never used twice.
func (l *Lease) Token() string {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	if l.token == "" {
		l.token = newToken()
	}
	return l.token
}

// Fence is greater than that of every earlier lease of the key, and below
// 2^53. A store that keeps the greatest fence it has seen can refuse whoever
// comes late.
func (l *Lease) Fence() uint64 { return l.fence }

// Slot is the number of the lease's slot, 0 to n-1 under Slots(n), else 0.
func (l *Lease) Slot() int { return l.hold.grant.Slot }

// Contended reports whether the key was busy when this lease was asked for.
func (l *Lease) Contended() bool { return l.waited }

// Deadline is until when this process may be sure of the lease. Each renewal
// moves it.
func (l *Lease) Deadline() time.Time {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.hold.locker.clock.time(l.hold.deadline)
}

// Extend makes the lease live for ttl from now, and lets its renewals do so
// too; under NoRenew it moves the end once. It returns ErrLost if the lease is
// gone, and ErrUnavailable or ctx's error if that could not be found out; the
// lease then ends at the earlier of its old and its new deadline, unless it is
// renewed.
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

// Release ends the lease and lets the next waiter in. It does so also when the
// lease's context has ended, takes at most about a second, and is idempotent.
//
// The first call returns ErrLost if the lease was gone already. If the backend
// does not answer it returns ErrUnavailable, and the release is repeated in the
// background until the TTL has passed. Any later call returns nil.
func (l *Lease) Release() error {
	if err := l.leave(); err != nil {
		return fmt.Errorf("release %q: %w", l.hold.grant.Key, err)
	}
	return nil
}

// live says whether the lease is neither released nor lost.
func (l *Lease) live() bool {
	over, _ := l.end()
	return !over
}

// end says whether the lease is over, by the clock too, and why.
func (l *Lease) end() (over bool, cause error) {
	l.expire(l.hold.locker.clock.now())
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.over, l.cause
}

// expire ends the lease if its time is over by the clock, whatever the timers
// have noticed.
func (l *Lease) expire(now instant) {
	h := l.hold
	h.mu.Lock()
	expired := !l.over && !h.ended && now >= h.deadline
	h.mu.Unlock()
	if expired {
		h.lose(h.expiry())
	}
}

// callSite is where a lease was asked for: the caller of this package, and its
// caller in case that is this module's request context.
type callSite [2]uintptr

// requestContext begins the names of the functions that only pass a call on.
const requestContext = "github.com/megaframework/mega/ctx."

// String returns "file:line" of the user's call.
func (s callSite) String() string {
	if s[0] == 0 {
		return "unknown"
	}
	frames := runtime.CallersFrames(s[:])
	for {
		frame, more := frames.Next()
		if !more || !strings.HasPrefix(frame.Function, requestContext) {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}
