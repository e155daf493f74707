package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
	"weak"

	"github.com/megaframework/mega/lock/driver"
)

// leave releases the lease once; see [Lease.Release].
func (l *Lease) leave() error { return l.leaveAs(nil) }

// finish releases the lease at the end of its function, and returns its loss, also if
// the function has released it.
func (l *Lease) finish() error {
	_ = l.leave() // a failed release is retried in the background
	return l.loss()
}

// loss returns the loss of a lease that is over, or nil if it was live until its
// release.
func (l *Lease) loss() error {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	if errors.Is(l.cause, ErrLost) {
		return l.cause
	}
	return nil
}

// leaveAs is leave with what becomes of the slot. It has no effect on a slot that
// was lost, which stays dirty (P3).
func (l *Lease) leaveAs(b *driver.Handback) error {
	h := l.hold
	now := h.locker.clock.now()
	h.mu.Lock()
	l.expireLocked(now)
	if l.released {
		h.mu.Unlock()
		return nil
	}
	l.released = true
	if l.over {
		h.mu.Unlock()
		return h.leaveLost(l)
	}
	l.over, l.cause = true, errReleased
	if b != nil {
		h.handback = b
	}
	e := h.detach()
	h.mu.Unlock()
	e.end(errReleased)
	return h.leaveLive(l, now)
}

// unused ends the cooldown of a lease under which no work has begun: its release
// makes the key free.
func (l *Lease) unused() {
	h := l.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended { // else forget may be reading it
		h.cools = 0
	}
}

// detach removes the lease from the hold. The caller holds h.mu.
func (h *hold) detach() ending {
	e := h.ending
	h.lease, h.faint, h.idle = nil, weak.Pointer[Lease]{}, true
	h.ending, h.forgetAt = ending{}, 0
	if h.locker.queues == nil {
		h.endCurrent(errReleased) // no waiter can inherit it
	}
	return e
}

// leaveLive ends a lease that was live until now.
func (h *hold) leaveLive(l *Lease, now instant) error {
	defer h.locker.gate.leave()
	held := now.sub(l.since)
	err := h.pass(now)
	h.locker.counters.hold.Add(held)
	if errors.Is(err, ErrLost) {
		lost := asLost(err)
		lost.Key = h.grant.Key
		h.mu.Lock()
		l.cause = lost
		h.mu.Unlock()
		h.locker.countLost(lost)
		h.locker.observe(Lost{Key: h.grant.Key, Fence: l.fence, Held: held, Err: lost})
		return lost
	}
	if h.locker.observed() {
		h.locker.observe(Released{Key: h.grant.Key, Fence: l.fence, Held: held})
	}
	return err
}

// leaveLost ends a lease that was lost before its release. The backend still
// has the grant if the Locker was closed, and otherwise no longer has it.
func (h *hold) leaveLost(l *Lease) error {
	var lost *LostError
	if !errors.As(l.cause, &lost) {
		return nil
	}
	switch {
	case lost.Cause == Shutdown:
		_ = h.giveBack(0) // after a failure, the TTL ends the grant
	case !h.forgotten: // else forget has sent the release
		h.bury()
	}
	if h.with {
		h.locker.stragglers.remove(h)
	}
	if lost.Cause == Shutdown || h.with {
		h.locker.gate.leave()
	}
	return lost
}

// pass hands the grant on to the next waiter of this process if that is
// allowed, and otherwise gives it back. now is the time if the caller has just
// read it, or 0.
func (h *hold) pass(now instant) error {
	if qs := h.locker.queues; qs != nil {
		h.heed() // a lost grant is not handed on
		if w, o := qs.next(h); w != nil {
			w.serve(o)
			return nil
		}
		h.mu.Lock()
		h.endCurrent(errReleased)
		h.mu.Unlock()
	}
	h.locker.schedule.remove(h)
	return h.giveBack(now)
}

// giveBack releases the grant at the driver, with a timeout. A failed release
// is retried in the background until the TTL has passed. For now see pass.
func (h *hold) giveBack(now instant) error {
	l := h.locker
	sent := h.returned(now)
	err := l.releaseBounded(&sent)
	if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrClosed) {
		return err
	}
	err = l.unavailable(err, driver.CallTimeout)
	l.health.failed(err)
	g, until := h.unreleased(sent)
	l.cleaner.Add(g, time.Duration(until), err)
	return err
}

// unreleased returns the grant for a release in the background in place of sent, and
// when the backend ends it.
func (h *hold) unreleased(sent driver.Grant) (driver.Grant, instant) {
	g, until := h.keptUntil()
	if sent.Rest > 0 {
		g = sent                                 // the backend ignores a rest with the number of a renewal
		g.Rest = max(h.rest(), time.Millisecond) // the attempt took a part of it. O5
	}
	return g, until
}

// returned returns the grant for its release: with the rest of the cooldown, if
// the key stays taken, and with what becomes of a slot. Both are settled when the
// lease ends, so only the TTL needs the mutex.
func (h *hold) returned(now instant) driver.Grant {
	g := h.grant
	g.Handback = h.handedBack()
	g.At = h.locker.clock.shared(now)
	if h.cools == 0 {
		return g
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if rest := h.rest(); rest > 0 {
		g.TTL, g.Rev, g.Rest = h.ttl, h.rev+1, rest // a renewal in flight changes nothing any more
	}
	return g
}

// rest returns what is left of the cooldown.
func (h *hold) rest() time.Duration { return h.cools - h.locker.clock.now().sub(h.since) }

// bury releases in the background a grant that was lost in this process. The
// backend may keep it for longer, because its clock may have stepped back (L5).
func (h *hold) bury() {
	g, until := h.keptUntil()
	h.locker.cleaner.Add(g, time.Duration(until), nil)
}

func (h *hold) keptUntil() (driver.Grant, instant) {
	g := h.renewable()
	h.mu.Lock()
	defer h.mu.Unlock()
	return g, h.kept
}

// releaseBounded makes one attempt, with a timeout that the caller cannot
// shorten.
func (l *Locker) releaseBounded(g *driver.Grant) error {
	if l.info.Scope == driver.Process {
		return l.driver.Release(context.Background(), *g)
	}
	ctx := &bounded{parent: context.Background(), until: time.Now().Add(driver.CallTimeout)} // L5
	defer ctx.end()
	return l.driver.Release(ctx, *g)
}

// unavailable converts err, the outcome of a call with a timeout of the Locker,
// to an ErrUnavailable. The end of that timeout is not the end of the caller's
// context.
func (l *Locker) unavailable(err error, bound time.Duration) error {
	switch {
	case err == nil:
		return nil
	case isContextError(err) && !errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: no answer within %v", ErrUnavailable, bound.Round(time.Millisecond))
	}
	return l.classify(err)
}

// tidy cleans up after an Acquire whose outcome is not known: the backend may
// have granted or queued it, or may do so when it receives it late.
func (l *Locker) tidy(r driver.Request, err error) {
	for _, known := range []error{ErrNotAcquired, ErrInvalid, ErrUnsupported, ErrClosed, ErrPoolSize} {
		if errors.Is(err, known) {
			return
		}
	}
	g := driver.Grant{Key: r.Key, Token: r.Token, TTL: r.TTL, NoRenew: r.NoRenew} // L6
	if r.Pool != nil {
		g.Handback = &driver.Handback{Status: driver.SlotDirty} // a slot that nobody has used
	}
	l.cleaner.Add(g, time.Duration(l.clock.now().add(maxDelay+r.TTL)), nil)
}

// maxDelay bounds how late a request arrives. A backend that stood still for longer than
// the TTL executes it all the same, and grants a lease that nobody holds.
const maxDelay = time.Minute

// maxGrace is the time after the end of its context in which a lease from
// Acquire can be released without being reported as forgotten: a cancelled
// function needs a moment to run its deferred calls.
const maxGrace = time.Second

// abandon notes that the context of the lease with this fence has ended: it is
// not renewed again, and it is taken back if it is not released soon.
func (h *hold) abandon(fence uint64) {
	h.mu.Lock()
	if h.ended || h.idle || h.fence != fence {
		h.mu.Unlock()
		return
	}
	h.forgetAt = h.locker.clock.now().add(min(h.ttl/3, maxGrace))
	h.mu.Unlock()
	h.locker.reschedule(h)
}

// forget takes back the lease with this fence, which its owner did not release.
func (h *hold) forget(fence uint64, reason string) {
	l := h.locker
	h.mu.Lock()
	if h.ended || h.idle || h.fence != fence {
		h.mu.Unlock()
		return
	}
	lost := &LostError{Key: h.grant.Key, Cause: Expired}
	ending := h.endCurrent(lost)
	h.forgotten = true
	held, site := l.clock.now().sub(h.taken), h.site
	h.mu.Unlock()
	ending.end(lost)
	h.discard()
	l.counters.hold.Add(held)
	l.observe(Forgotten{Key: h.grant.Key, Fence: fence, Reason: reason, Site: site.String()})
	g, until := h.unreleased(h.returned(0)) // O5: as any other release
	l.cleaner.Add(g, time.Duration(until), nil)
	l.gate.leave()
}
