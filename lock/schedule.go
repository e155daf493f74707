package lock

import (
	"context"
	"slices"
	"sync"
	"time"
	"weak"
)

// schedule orders all holds of a Locker by their next renewal or end. One timer
// serves all of them.
type schedule struct {
	clock *clock
	// nap bounds the timer's sleep where the clock counts the time of a
	// suspend, which timers do not count. After a suspend the leases are
	// checked within nap. 0 means no bound.
	nap time.Duration

	mu    sync.Mutex // guards the fields below; may be taken under a hold's
	holds holds
	isCut bool
	timer *time.Timer
	armed instant // when the timer fires; zero if it does not
}

const maxNap = time.Second

func (s *schedule) init(tick func(), c *clock) {
	s.clock = c
	s.timer = time.AfterFunc(time.Hour, tick)
	s.timer.Stop()
}

// set inserts h at the time at, or moves it there. It returns false after cut.
func (s *schedule) set(h *hold, at instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isCut {
		return false
	}
	h.next = at
	if h.index < 0 {
		s.holds.push(h)
	}
	s.holds.fix(h)
	s.arm()
	return true
}

func (s *schedule) remove(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.index >= 0 {
		s.holds.remove(h)
	}
}

// arm sets the timer for the first hold. It never moves the timer to a later
// time, because a timer that fires too early costs less than a move at every
// release. The caller holds s.mu.
func (s *schedule) arm() {
	if len(s.holds) == 0 {
		return
	}
	first := s.holds[0].next
	if s.armed != 0 && first >= s.armed {
		return
	}
	now := s.clock.now()
	// Not 0: in a synctest bubble a timer of 0 runs at once, on the goroutine
	// that sets it, and two of them at once corrupt Go 1.26's race detector.
	wait := max(first.sub(now), 1)
	if s.nap > 0 {
		wait = min(wait, s.nap)
	}
	s.armed = now.add(wait)
	s.timer.Reset(wait)
}

// due removes and returns the holds whose time has come, and arms the timer for
// the others.
func (s *schedule) due() (due []*hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = 0
	now := s.clock.now()
	for len(s.holds) > 0 && s.holds[0].next <= now {
		due = append(due, s.holds[0])
		s.holds.remove(s.holds[0])
	}
	s.arm()
	return due
}

// all returns every hold except those that tick is processing.
func (s *schedule) all() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.holds)
}

// cut returns every hold and closes the schedule. A hold that tick is
// processing, or that arrives later, ends when set refuses it.
func (s *schedule) cut() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isCut = true
	return slices.Clone(s.holds)
}

// tick renews or ends each hold whose time has come. It runs in the timer's
// goroutine and does no I/O.
func (l *Locker) tick() {
	if !l.group.Begin() {
		return
	}
	defer l.group.Done()
	var renew []*hold
	for _, h := range l.schedule.due() {
		switch what, fence := h.needs(); what {
		case toExpire:
			h.lose(h.expiry())
		case dropped:
			h.forget(fence, "it was garbage collected")
		case abandoned:
			h.forget(fence, "its context ended")
		case toWatch:
			h.watch(fence)
		case toRenew:
			renew = append(renew, h)
		}
		l.reschedule(h)
	}
	l.renew(renew)
}

// need is the action for a hold whose time has come.
type need int

const (
	nothing need = iota
	toExpire
	dropped
	abandoned
	toWatch
	toRenew
)

// needs returns the action for the hold and the fence of its current lease. It
// marks a hold that needs a renewal.
func (h *hold) needs() (need, uint64) {
	now := h.locker.clock.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return nothing, h.fence
	case now >= h.deadline: // L4
		return toExpire, h.fence
	case !h.idle && h.current() == nil: // L19
		return dropped, h.fence
	case h.forgetAt != 0:
		if now < h.forgetAt {
			return nothing, h.fence
		}
		return abandoned, h.fence
	case h.renewing != nil || now < h.renewAt:
		return nothing, h.fence
	case h.lease != nil && !h.with:
		return toWatch, h.fence
	}
	h.beginRenewal(now, h.ttl, h.grant.NoRenew)
	return toRenew, h.fence
}

// watch replaces the reference to the current lease, if it still has this
// fence, by a weak pointer and a watch of its parent context. From then on the
// hold detects a lease that its owner dropped, or whose context was cancelled.
// With's lease needs neither.
func (h *hold) watch(fence uint64) {
	h.mu.Lock()
	lease := h.lease
	if h.ended || h.idle || h.fence != fence || lease == nil {
		h.mu.Unlock()
		return
	}
	h.faint, h.lease = weak.Make(lease), nil
	h.mu.Unlock()
	above := lease.above()
	if above.Done() == nil {
		return
	}
	if above.Err() != nil {
		h.abandon(fence) // before it is renewed once more
		return
	}
	// AfterFunc may run code of a user's context, so it is called without the
	// mutex. The watch must not keep the lease reachable.
	unbind := context.AfterFunc(above, func() { h.abandon(fence) })
	h.mu.Lock()
	current := !h.ended && !h.idle && h.fence == fence
	if current {
		h.ending.unbind = unbind
	}
	h.mu.Unlock()
	if !current {
		unbind()
	}
}

// watchNow watches the current lease before its first renewal would.
func (h *hold) watchNow() {
	h.mu.Lock()
	fence, watchable := h.fence, h.lease != nil && !h.with
	h.mu.Unlock()
	if watchable {
		h.watch(fence)
	}
}

// reschedule moves h to the time of its next action.
func (l *Locker) reschedule(h *hold) {
	if !h.place() {
		h.lose(&LostError{Cause: Shutdown})
	}
}

// place reads the next time and sets it under one mutex: of two concurrent
// calls, the later one sees the state that the earlier one saw, or a newer one.
func (h *hold) place() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return true
	}
	return h.locker.schedule.set(h, h.nextStep())
}

// nextStep returns the time of the next renewal or end. The caller holds h.mu, or
// is the only user of h.
func (h *hold) nextStep() instant {
	at := h.deadline
	switch {
	case h.forgetAt != 0:
		at = min(at, h.forgetAt)
	case h.renewing == nil:
		at = min(at, h.renewAt)
	}
	return at
}
