package lock

import (
	"context"
	"errors"
	"sync"
	"time"
	"weak"

	"github.com/megaframework/mega/lock/driver"
)

// hold is one grant of the driver in this process, from its arrival until it is
// given back or lost. Leases share it one after another by hand-on: at most one
// is current.
type hold struct {
	locker *Locker
	grant  driver.Grant // as it arrived
	since  instant      // when it arrived

	mu        sync.Mutex    // guards the fields below; never held during I/O or a callback
	ttl       time.Duration // the TTL that a renewal requests
	rev       uint64        // raised with each change of the TTL, so that the backend ignores late copies (L12)
	deadline  instant
	confirmed instant // when the backend last confirmed the grant
	kept      instant // end at the backend; after deadline while a renewal's effect is unknown
	ended     bool    // given back or lost; no renewal changes it
	idle      bool    // between two leases
	with      bool    // the current lease belongs to With
	doubted   bool    // the driver has hinted at a loss, and no later renewal has been answered
	again     bool    // the driver has hinted since the renewal in flight was sent
	touched   bool    // there was a lease
	forgotten bool    // taken back from an owner that did not release its lease

	// The current lease. From its first renewal on, the hold watches it: by a
	// weak pointer, to detect a lease that is garbage, and for the end of the
	// parent context. A short lease does not need a watch.
	lease  *Lease
	faint  weak.Pointer[Lease]
	cools  time.Duration // how long the key stays taken, from the grant on
	fence  uint64
	taken  instant
	site   callSite
	ending ending // of the current lease's context

	renewing  chan struct{} // closed when the renewal in flight is over; nil without one
	asked     instant       // when the last renewal began
	renewAt   instant
	failing   error                 // of the last renewal, if it failed
	forgetAt  instant               // when to take back a lease whose context has ended, or zero
	listening chan struct{}         // closed to end the listener; nil without one
	handback  *driver.Handback      // what the release makes of a slot with a state
	warnings  map[*warning]struct{} // not yet given

	// The place in the schedule, guarded by its mutex.
	index int
	next  instant
}

// pushLife bounds the life that a grant must have left for a hand-on, for a
// driver whose grants start with less than the TTL.
const pushLife = 2 * time.Second

// newHold returns a hold of g and schedules its renewal and its end.
func (l *Locker) newHold(g *driver.Grant, now instant) *hold {
	h := l.newIdle(g, now)
	if !l.schedule.set(h, h.nextStep()) { // nobody else has h yet
		h.lose(&LostError{Cause: Shutdown})
	}
	return h
}

// newIdle returns a hold of g, which reschedule schedules.
func (l *Locker) newIdle(g *driver.Grant, now instant) *hold {
	deadline := l.clock.at(g.Deadline)
	h := &hold{
		locker:    l,
		grant:     *g,
		since:     now,
		confirmed: now,
		ttl:       g.TTL,
		deadline:  deadline,
		kept:      deadline.add(driver.Margin(g.TTL)),
		idle:      true,
		index:     -1,
	}
	h.shorten(now)
	h.renewAt = renewalTime(now, g.TTL, h.deadline.sub(now))
	return h
}

// untouched returns the Handback of a slot that nobody has used.
func untouched(f *driver.Found) *driver.Handback {
	h := &driver.Handback{Status: driver.SlotFree, Left: f.Left, Note: f.Note, Strikes: f.Strikes}
	if f.Left != nil {
		h.Status = driver.SlotDirty
	}
	return h
}

// handedBack returns the Handback of the slot for a release; nil leaves it dirty.
// The caller holds h.mu.
func (h *hold) handedBack() *driver.Handback {
	if !h.touched && h.grant.Found != nil {
		return untouched(h.grant.Found)
	}
	return h.handback
}

// shorten lowers the deadline to the deadline of a renewal sent now. A pushed
// grant may live longer than the TTL of its waiter; its first renewal shortens
// it, so a caller must not see the longer deadline before that (L4). The caller
// holds h.mu, or is the only user of h.
func (h *hold) shorten(now instant) {
	h.deadline = min(h.deadline, now.add(h.ttl-driver.Margin(h.ttl)))
}

// attach makes lease the current one, counts it, and reports whether the grant is
// still live.
func (h *hold) attach(lease *Lease, c *call) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || lease.since >= h.deadline {
		return false
	}
	h.lease, h.faint, h.idle, h.ending = lease, weak.Pointer[Lease]{}, false, ending{}
	h.touched = true
	h.with, h.fence, h.taken, h.site, h.cools = c.within, lease.fence, lease.since, c.from.site(c.forwarded), c.cooldown
	h.locker.counters.wait.Add(c.waited) // under the mutex: the lease may be lost, and counted as ended, at once
	return true
}

// adopt sets the TTL of the grant, which was requested for another waiter, to
// the TTL of the waiter that receives it. The hold is scheduled afterwards: the
// answer to a renewal to the old TTL would put off the one to the new TTL.
func (h *hold) adopt(ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ttl == ttl {
		return
	}
	now := h.locker.clock.now()
	h.ttl = ttl
	h.rev++
	h.renewAt = now
	h.shorten(now)
}

// current returns the current lease, or nil if there is none or it was garbage
// collected. The caller holds h.mu.
func (h *hold) current() *Lease {
	if h.lease != nil {
		return h.lease
	}
	return h.faint.Value()
}

// lastConfirmed returns the time of the backend's last confirmation of the grant.
func (h *hold) lastConfirmed() instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.confirmed
}

// inUse reports whether a lease of the grant is held.
func (h *hold) inUse() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.idle && !h.ended
}

// expiry returns the error of a hold whose deadline has passed: the backend
// could not be reached, or the hold was not renewed in time.
func (h *hold) expiry() *LostError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.grant.NoRenew && (h.failing != nil || h.renewing != nil) {
		err := h.failing
		if err == nil { // the first attempt has no answer yet
			err = h.locker.unavailable(context.DeadlineExceeded, h.locker.clock.now().sub(h.asked))
		}
		return &LostError{Key: h.grant.Key, Cause: Unreachable, Err: err}
	}
	return &LostError{Key: h.grant.Key, Cause: Expired}
}

// lose ends the hold and the context of its lease. A second call changes
// nothing.
func (h *hold) lose(e *LostError) {
	e.Key = h.grant.Key
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		return
	}
	had, ending := !h.idle, h.endCurrent(e)
	held, fence, with := h.locker.clock.now().sub(h.taken), h.fence, h.with
	l := h.locker
	if had && with {
		l.stragglers.add(h) // under the mutex: its function may return at once
	}
	h.mu.Unlock()
	ending.end(e) // L4: the contexts of the leases end
	h.discard()
	if !had {
		if e.Cause == Expired || e.Cause == Unreachable {
			h.bury() // L22: the grant was never used and the backend may keep it
		}
		return
	}
	l.counters.hold.Add(held)
	l.countLost(e)
	if l.observed() {
		l.observe(Lost{Key: h.grant.Key, Fence: fence, Held: held, Err: e})
	}
	// Nothing is left to do for a lease from Acquire. With releases its lease
	// when its function has returned. At a shutdown both still need a release.
	if !with && e.Cause != Shutdown {
		l.gate.leave()
	}
}

func (l *Locker) countLost(e *LostError) {
	l.counters.lost.Add(1)
	if e.Cause == Forced {
		l.counters.forced.Add(1)
	}
}

// endCurrent marks the hold and the current lease as ended. The caller holds
// h.mu, and ends the lease's context after it unlocks h.mu.
func (h *hold) endCurrent(cause error) ending {
	h.ended = true
	if lease := h.current(); lease != nil {
		lease.over, lease.cause = true, cause
	}
	if h.listening != nil {
		close(h.listening)
		h.listening = nil
	}
	return h.ending
}

// discard removes an ended hold from the schedule and from its queue.
func (h *hold) discard() {
	h.locker.schedule.remove(h)
	if h.locker.queues != nil {
		h.locker.queues.forget(h)
	}
}

// heed checks whether the driver has reported that the grant was taken away. The
// report of a driver of scope Process is final before the key has another holder, so
// the hold ends at once (L4); a renewal would end it after this call.
func (h *hold) heed() {
	if h.grant.Lost == nil {
		return
	}
	select {
	case err, open := <-h.grant.Lost:
		if !open && h.locker.info.Scope == driver.Process && h.isLost() {
			return
		}
		h.hint(err)
	default:
	}
}

// isLost asks a driver of scope Process, which answers without I/O, whether it has
// taken the grant away. If it has, the hold ends.
func (h *hold) isLost() bool {
	r := h.locker.driver.Renew(context.Background(), []driver.Grant{h.renewable()})[0]
	if !errors.Is(r.Err, ErrLost) {
		return false
	}
	h.lose(asLost(r.Err))
	return true
}

// inDoubt reports whether the driver has hinted at a loss, and no later renewal has
// been answered.
func (h *hold) inDoubt() bool {
	h.heed()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.doubted
}

// listen starts to wait for the driver's report that the grant was taken away,
// because something may wait for the end of the lease's context.
func (h *hold) listen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.listening != nil || h.grant.Lost == nil {
		return
	}
	stop := make(chan struct{})
	if h.locker.group.Go(func(ctx context.Context) { h.awaitLoss(ctx, stop) }) {
		h.listening = stop
	}
}

func (h *hold) awaitLoss(ctx context.Context, stop <-chan struct{}) {
	for more := true; more; {
		var err error
		select {
		case err, more = <-h.grant.Lost:
			h.hint(err)
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// hint handles a report of the driver: an ErrLost ends the hold, and anything
// else causes a renewal at once.
func (h *hold) hint(err error) {
	if errors.Is(err, ErrLost) {
		h.lose(asLost(err))
		return
	}
	h.mu.Lock()
	h.renewAt, h.doubted, h.again = h.locker.clock.now(), true, true
	h.mu.Unlock()
	h.locker.reschedule(h)
}

// asLost returns a copy of the *LostError in err, or a *LostError with the
// cause Expired if err has none.
func asLost(err error) *LostError {
	if lost, ok := errors.AsType[*LostError](err); ok {
		e := *lost
		return &e
	}
	return &LostError{Cause: Expired}
}
