package lock

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/megaframework/mega/lock/driver"
)

// schedule holds every hold of a Locker by when it next needs attention: its
// renewal, or its end. One timer serves them all.
type schedule struct {
	now func() time.Time
	// nap bounds how long the timer sleeps where the clock counts time asleep,
	// which timers do not: a machine that was suspended looks at its leases at
	// the latest so long after it woke up. 0 is no bound.
	nap time.Duration

	mu    sync.Mutex // guards the fields below
	holds holds
	timer *time.Timer
	armed time.Time // when the timer fires; zero if it does not
}

const maxNap = time.Second

func (s *schedule) init(tick func(), now func() time.Time) {
	s.now = now
	s.timer = time.AfterFunc(time.Hour, tick)
	s.timer.Stop()
}

// set puts h in its place, or in another.
func (s *schedule) set(h *hold, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.next = at
	if h.index >= 0 {
		heap.Fix(&s.holds, h.index)
	} else {
		heap.Push(&s.holds, h)
	}
	s.arm()
}

func (s *schedule) remove(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.index >= 0 {
		heap.Remove(&s.holds, h.index)
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
	if !s.armed.IsZero() && !first.Before(s.armed) {
		return
	}
	now := s.now()
	wait := max(first.Sub(now), 0)
	if s.nap > 0 {
		wait = min(wait, s.nap)
	}
	s.armed = now.Add(wait)
	s.timer.Reset(wait)
}

// due removes and returns the holds whose time has come, and arms the timer
// for the rest.
func (s *schedule) due() (due []*hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = time.Time{}
	now := s.now()
	for len(s.holds) > 0 && !s.holds[0].next.After(now) {
		due = append(due, heap.Pop(&s.holds).(*hold))
	}
	s.arm()
	return due
}

// all returns every hold.
func (s *schedule) all() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.holds)
}

// holds is a heap by next.
type holds []*hold

func (hs holds) Len() int           { return len(hs) }
func (hs holds) Less(i, j int) bool { return hs[i].next.Before(hs[j].next) }
func (hs holds) Swap(i, j int) {
	hs[i], hs[j] = hs[j], hs[i]
	hs[i].index, hs[j].index = i, j
}

func (hs *holds) Push(x any) {
	h := x.(*hold)
	h.index = len(*hs)
	*hs = append(*hs, h)
}

func (hs *holds) Pop() any {
	last := len(*hs) - 1
	h := (*hs)[last]
	(*hs)[last] = nil
	*hs = (*hs)[:last]
	h.index = -1
	return h
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
		switch what, reason := h.needs(); what {
		case toExpire:
			h.lose(h.expiry())
		case toForget:
			h.forget(reason)
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
	toForget
	toRenew
)

// needs decides, and marks a hold that is to be renewed.
func (h *hold) needs() (need, string) {
	now := h.locker.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return nothing, ""
	case !now.Before(h.deadline):
		return toExpire, ""
	case !h.idle && h.current() == nil:
		return toForget, "it was garbage collected"
	case !h.forgetAt.IsZero() && !h.idle:
		if now.Before(h.forgetAt) {
			return nothing, ""
		}
		return toForget, "its context ended"
	case h.renewing == nil && !now.Before(h.renewAt):
		h.beginRenewal(now, h.ttl, h.grant.NoRenew)
		h.loosen()
		return toRenew, ""
	}
	return nothing, ""
}

// loosen lets go of the current lease but for a weak pointer, so that one
// whose owner has dropped it is noticed. With's cannot be dropped.
func (h *hold) loosen() {
	if h.lease != nil && !h.with {
		h.faint, h.lease = weak.Make(h.lease), nil
	}
}

// reschedule puts h where its next need is.
func (l *Locker) reschedule(h *hold) {
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		return
	}
	at := h.deadline
	switch {
	case !h.forgetAt.IsZero():
		at = earliest(at, h.forgetAt)
	case h.renewing == nil:
		at = earliest(at, h.renewAt)
	}
	h.mu.Unlock()
	l.schedule.set(h, at)
	// It may have ended in between, and must not stay in the schedule then.
	if h.over() {
		l.schedule.remove(h)
	}
}

func (h *hold) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// The times of renewal.
const (
	renewAtMost = 10 * time.Second       // a lease of a long TTL hears of a force so soon
	renewShort  = 100 * time.Millisecond // a grant with less than its TTL is renewed so soon
	retryAtMost = time.Second
)

// renewInterval is how long after one renewal the next one follows.
func renewInterval(ttl time.Duration) time.Duration { return min(ttl/3, renewAtMost) }

// firstRenewal is when a new grant with this much life is renewed. One that
// has less than its TTL is renewed soon; not at once, for most are given back
// or handed on before.
func firstRenewal(ttl, life time.Duration) time.Duration {
	if life < ttl/2 {
		return min(renewShort, life/3)
	}
	return min(renewInterval(ttl), life/3)
}

// renewBound is how long one renewal may take: short enough to be tried again
// several times before the deadline.
func renewBound(ttl time.Duration) time.Duration {
	return min(max(ttl/4, MinTTL/4), driver.CallTimeout)
}

// renew renews holds in batches of the same bound, so that a short TTL neither
// waits for a long one nor hurries it.
func (l *Locker) renew(due []*hold) {
	batches := make(map[time.Duration][]*hold)
	for _, h := range due {
		h.mu.Lock()
		bound := renewBound(h.ttl)
		h.mu.Unlock()
		batches[bound] = append(batches[bound], h)
	}
	for bound, batch := range batches {
		l.crew.do(func(ctx context.Context) { l.renewBatch(ctx, bound, batch) })
	}
}

func (l *Locker) renewBatch(ctx context.Context, bound time.Duration, batch []*hold) {
	grants := make([]driver.Grant, len(batch))
	for i, h := range batch {
		grants[i] = h.renewable()
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	renewals := l.driver.Renew(ctx, grants)
	for i, h := range batch {
		h.renewed(renewals[i])
		l.reschedule(h)
	}
}

// renewable is the grant with the TTL that it is renewed to.
func (h *hold) renewable() driver.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.grant
	g.TTL = h.ttl
	return g
}

// renewed takes in the outcome of a renewal. One that came back after the hold
// had ended changes nothing.
func (h *hold) renewed(r driver.Renewal) {
	now := h.locker.now()
	h.mu.Lock()
	h.endRenewal()
	if h.ended {
		h.mu.Unlock()
		return
	}
	if r.Err == nil {
		h.live(r.Deadline, now)
		h.mu.Unlock()
		return
	}
	if errors.Is(r.Err, ErrLost) {
		h.mu.Unlock()
		h.lose(asLost(r.Err))
		return
	}
	h.failing = h.locker.unavailable(r.Err)
	h.renewAt = now.Add(jitter(min(h.ttl/10, retryAtMost)))
	err, left := h.failing, h.deadline.Sub(now)
	h.mu.Unlock()
	h.locker.observe(RenewFailed{Key: h.grant.Key, Err: err, Left: left})
}

// beginRenewal marks a renewal to ttl as in flight. One that shortens the
// grant may take effect without an answer, so its deadline counts already. The
// caller holds h.mu.
func (h *hold) beginRenewal(now time.Time, ttl time.Duration, noRenew bool) {
	h.renewing = make(chan struct{})
	if !noRenew {
		h.deadline = earliest(h.deadline, driver.Deadline(now, ttl))
	}
}

// endRenewal marks the renewal in flight as over. The caller holds h.mu.
func (h *hold) endRenewal() {
	close(h.renewing)
	h.renewing = nil
}

// live notes a renewal that got through. The caller holds h.mu.
func (h *hold) live(deadline, now time.Time) {
	if !h.grant.NoRenew {
		h.deadline = deadline
	}
	h.failing = nil
	h.renewAt = now.Add(renewInterval(h.ttl))
}

// extend renews the hold to ttl at once, for lease.
func (h *hold) extend(ctx context.Context, lease *Lease, ttl time.Duration) error {
	if err := h.beginExtend(ctx, lease, ttl); err != nil {
		return err
	}
	g := h.grant
	g.TTL, g.NoRenew = ttl, false
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	r := h.locker.driver.Renew(bounded, []driver.Grant{g})[0]
	err := h.extended(ctx, r, ttl)
	h.locker.reschedule(h)
	return err
}

// beginExtend waits until no renewal is in flight: two at once could leave it
// open which TTL the backend has taken last.
func (h *hold) beginExtend(ctx context.Context, lease *Lease, ttl time.Duration) error {
	for {
		lease.expire(h.locker.now())
		h.mu.Lock()
		if lease.over {
			defer h.mu.Unlock()
			return lease.gone()
		}
		inFlight := h.renewing
		if inFlight == nil {
			h.beginRenewal(h.locker.now(), ttl, false)
			h.mu.Unlock()
			return nil
		}
		h.mu.Unlock()
		select {
		case <-inFlight:
		case <-ctx.Done():
			return contextError(ctx)
		}
	}
}

// gone is what an operation on a lease that is over says. The caller holds
// hold.mu.
func (l *Lease) gone() error {
	if errors.Is(l.cause, ErrLost) {
		return l.cause
	}
	return fmt.Errorf("%w: it was released", ErrLost)
}

// extended takes in the outcome of an Extend.
func (h *hold) extended(ctx context.Context, r driver.Renewal, ttl time.Duration) error {
	h.mu.Lock()
	h.endRenewal()
	switch {
	case r.Err == nil && !h.ended:
		h.ttl = ttl
		h.live(r.Deadline, h.locker.now())
		h.deadline = r.Deadline // also under NoRenew
		h.mu.Unlock()
		return nil
	case r.Err == nil:
		h.mu.Unlock()
		return fmt.Errorf("%w: it ended meanwhile", ErrLost)
	}
	h.mu.Unlock()
	if errors.Is(r.Err, ErrLost) {
		lost := asLost(r.Err)
		h.lose(lost)
		return lost
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, contextError(ctx))
	}
	return h.locker.unavailable(r.Err)
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
