package lock

import (
	"context"
	"slices"
	"sync"
	"time"
	"weak"
)

// schedule holds every hold of a Locker by when it next needs attention: its
// renewal, or its end. One timer serves them all.
type schedule struct {
	clock *clock
	// nap bounds how long the timer sleeps where the clock counts time asleep,
	// which timers do not: a machine that was suspended looks at its leases at
	// the latest so long after it woke up. 0 is no bound.
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

// set puts h in its place, or in another. It refuses once the schedule was cut.
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

// arm makes the timer fire in time for the first hold. A timer that fires too
// early costs less than moving it at every release, so it is never put off.
// The caller holds s.mu.
func (s *schedule) arm() {
	if len(s.holds) == 0 {
		return
	}
	first := s.holds[0].next
	if s.armed != 0 && first >= s.armed {
		return
	}
	now := s.clock.now()
	// Not 0: in a bubble of synctest such a timer runs at once, on the goroutine
	// that sets it, and two of them at once corrupt Go 1.26's race detector.
	wait := max(first.sub(now), 1)
	if s.nap > 0 {
		wait = min(wait, s.nap)
	}
	s.armed = now.add(wait)
	s.timer.Reset(wait)
}

// due removes and returns the holds whose time has come, and arms the timer
// for the rest.
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

// all returns every hold but one that is just being attended to.
func (s *schedule) all() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.holds)
}

// cut returns every hold and takes no more: one that is just being attended
// to, or arrives later, ends when it wants its place.
func (s *schedule) cut() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isCut = true
	return slices.Clone(s.holds)
}

// tick gives each hold whose time has come what it needs. It runs in the
// timer's goroutine and does no I/O.
func (l *Locker) tick() {
	if !l.crew.begin() {
		return
	}
	defer l.crew.work.Done()
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

// need is what a hold needs when its time has come.
type need int

const (
	nothing need = iota
	toExpire
	dropped
	abandoned
	toWatch
	toRenew
)

// needs decides for the hold and its current lease, whose fence it returns, and
// marks a hold that is to be renewed.
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

// watch lets go of the current lease, if it is still the one with this fence,
// but for a weak pointer and a watch of the context that it lives on: one
// whose owner has dropped it, or was cancelled, is noticed from now on. With's
// lease needs neither.
func (h *hold) watch(fence uint64) {
	h.mu.Lock()
	lease := h.lease
	if h.ended || h.idle || h.fence != fence || lease == nil {
		h.mu.Unlock()
		return
	}
	h.faint, h.lease = weak.Make(lease), nil
	h.mu.Unlock()
	if lease.parent.Done() == nil {
		return
	}
	if lease.parent.Err() != nil {
		h.abandon(fence) // before it is renewed once more
		return
	}
	// A context's own code runs here, so without the mutex. The watch must not
	// hold on to the lease.
	unbind := context.AfterFunc(lease.parent, func() { h.abandon(fence) })
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

// reschedule puts h where its next need is.
func (l *Locker) reschedule(h *hold) {
	if !h.place() {
		h.lose(&LostError{Cause: Shutdown})
	}
}

// place looks and sets under one mutex: of two at once, the later one knows
// what the earlier one has seen.
func (h *hold) place() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return true
	}
	at := h.deadline
	switch {
	case h.forgetAt != 0:
		at = min(at, h.forgetAt)
	case h.renewing == nil:
		at = min(at, h.renewAt)
	}
	return h.locker.schedule.set(h, at)
}
