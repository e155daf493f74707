package lock

import (
	"context"
	"errors"
	"sync"
	"time"
	"weak"

	"github.com/megaframework/mega/lock/driver"
)

// hold is one grant of the driver in this process, from its arrival until it
// is given back or lost. The leases that are handed on under it follow one
// another: at most one is current.
type hold struct {
	locker *Locker
	grant  driver.Grant // as it arrived
	since  instant      // when it did

	mu       sync.Mutex    // guards the fields below; never held during I/O or a callback
	ttl      time.Duration // what it is renewed to
	rev      uint64        // raised with each change of the TTL, so that the backend ignores late copies (L12)
	deadline instant
	heard    instant // when the backend has last confirmed the grant
	kept     instant // until when the backend may keep it: later, while the effect of a renewal is not known
	ended    bool    // given back or lost: no renewal changes that

	// The current lease. From its first renewal on it is watched: by a weak
	// pointer, so that one which nobody can release any more is noticed, and
	// for the end of the context that it lives on. A short one costs no watch.
	lease  *Lease
	faint  weak.Pointer[Lease]
	idle   bool // between two leases
	with   bool // the current lease belongs to With
	fence  uint64
	taken  instant
	site   callSite
	ending ending // of the current lease's context

	renewing  chan struct{} // closed when the renewal in flight is over; nil without one
	renewAt   instant
	doubted   bool          // the driver has hinted at a loss, and no renewal sent since has answered
	again     bool          // it has done so since the renewal in flight was sent
	failing   error         // of the last renewal, if it failed
	forgetAt  instant       // when a lease whose context has ended is taken back; zero if not
	listening chan struct{} // closed to end the listener; nil without one

	// The place in the schedule, guarded by its mutex.
	index int
	next  instant
}

// pushLife bounds how much life a grant must still have to be handed on, for a
// driver that grants less than the TTL at first.
const pushLife = 2 * time.Second

// newHold takes care of g from now on: it is renewed, and lost in time.
func (l *Locker) newHold(g driver.Grant, now instant) *hold {
	h := &hold{
		locker:   l,
		grant:    g,
		since:    now,
		heard:    now,
		ttl:      g.TTL,
		deadline: l.clock.at(g.Deadline),
		idle:     true,
		index:    -1,
	}
	h.renewAt = now.add(firstRenewal(g.TTL, h.deadline.sub(now)))
	h.kept = h.deadline.add(driver.Margin(g.TTL))
	l.reschedule(h)
	return h
}

// attach makes lease the current one, unless the grant is gone.
func (h *hold) attach(lease *Lease, c *call) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || lease.since >= h.deadline {
		return false
	}
	h.lease, h.faint, h.idle, h.ending = lease, weak.Pointer[Lease]{}, false, ending{}
	h.with, h.fence, h.taken, h.site = c.within, lease.fence, lease.since, c.site
	return true
}

// adopt gives the grant, which was asked for on behalf of another waiter, the
// TTL of the one that gets it.
func (h *hold) adopt(ttl time.Duration) {
	h.mu.Lock()
	if h.ttl == ttl {
		h.mu.Unlock()
		return
	}
	h.ttl = ttl
	h.rev++
	h.renewAt = h.locker.clock.now()
	h.mu.Unlock()
	h.locker.reschedule(h)
}

// current returns the current lease, if there is one and anybody has it still.
// The caller holds h.mu.
func (h *hold) current() *Lease {
	if h.lease != nil {
		return h.lease
	}
	return h.faint.Value()
}

// lastHeard returns when the backend has last confirmed the grant.
func (h *hold) lastHeard() instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard
}

// inUse reports whether somebody holds a lease of the grant.
func (h *hold) inUse() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.idle && !h.ended
}

// expiry is the loss of a hold whose time is over: the backend could not be
// reached, or nobody renewed it in time.
func (h *hold) expiry() *LostError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.grant.NoRenew && (h.failing != nil || h.renewing != nil) {
		return &LostError{Key: h.grant.Key, Cause: Unreachable, Err: h.failing}
	}
	return &LostError{Key: h.grant.Key, Cause: Expired}
}

// lose ends the hold and the context of its lease. Whoever calls it a second
// time changes nothing.
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
	ending.end(e)
	h.discard()
	if !had {
		if e.Cause == Expired || e.Cause == Unreachable {
			h.bury() // L22: nobody has used what the backend may keep
		}
		return
	}
	l.counters.hold.add(held)
	l.countLost(e)
	if l.observed() {
		l.observe(Lost{Key: h.grant.Key, Fence: fence, Held: held, Err: e})
	}
	// Nothing is left to do for a lease from Acquire. With leaves when its
	// function has returned; at a shutdown both are still to be released.
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

// endCurrent marks hold and current lease as ended. The caller holds h.mu, and
// ends the lease's context when it does no more.
func (h *hold) endCurrent(cause error) ending {
	h.ended = true
	if lease := h.current(); lease != nil {
		lease.over, lease.cause = true, cause
	}
	if h.listening != nil {
		close(h.listening)
		h.listening = nil
	}
	e := h.ending
	h.ending = ending{}
	return e
}

// discard takes a hold that has ended out of everybody's sight.
func (h *hold) discard() {
	h.locker.schedule.remove(h)
	if h.locker.queues != nil {
		h.locker.queues.forget(h)
	}
}

// heed looks whether the driver has said that the grant was taken away.
func (h *hold) heed() {
	if h.grant.Lost == nil {
		return
	}
	select {
	case err := <-h.grant.Lost:
		h.hint(err)
	default:
	}
}

// listen waits for the driver's word that the grant was taken away, while
// somebody may be waiting for the end of the lease's context.
func (h *hold) listen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.listening != nil || h.grant.Lost == nil {
		return
	}
	stop := make(chan struct{})
	if h.locker.crew.do(func(ctx context.Context) { h.awaitLoss(ctx, stop) }) {
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

// hint takes the driver's word: a loss is a loss, anything else is a reason to
// ask at once.
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

// asLost returns a copy of the *LostError in err, or the plainest one.
func asLost(err error) *LostError {
	if lost, ok := errors.AsType[*LostError](err); ok {
		e := *lost
		return &e
	}
	return &LostError{Cause: Expired}
}
