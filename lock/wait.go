package lock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// wait queues c and returns the outcome of its wait.
func (qs *queues) wait(ctx context.Context, c *call, start instant) (outcome, error) {
	l := qs.locker
	w := &waiter{call: *c, holder: l.holder(ctx, c.label, time.Now()), ready: make(chan outcome, 1)}
	l.counters.waiting.Add(1)
	defer l.counters.waiting.Add(-1)
	if t := qs.join(w); t != nil {
		served, err := qs.askHere(ctx, w, t)
		if err != nil {
			return outcome{}, err
		}
		if served {
			o := <-w.ready
			o.at = l.clock.now()
			return o, o.err
		}
	}
	returned := false
	defer func() {
		if !returned && !qs.leave(w) { // a context has panicked
			qs.receive(w)
		}
	}()
	o, err := qs.await(ctx, c, w, start)
	returned = true
	return o, err
}

// await waits for the outcome of w, which is queued or served.
func (qs *queues) await(ctx context.Context, c *call, w *waiter, start instant) (outcome, error) {
	defer qs.entrust(w) // also when ctx panics
	l := qs.locker
	queued := l.clock.now() // L20: Wait bounds the time from here
	defer func() { c.left = max(c.left-l.clock.now().sub(queued), 0) }()
	tracked, err := l.beginWait(ctx, c, c.left, func(err error) { // A5
		if qs.leave(w) {
			w.serve(outcome{err: err})
		}
	})
	if err != nil {
		return qs.giveUp(ctx, w, start, err)
	}
	defer l.endWait(tracked)
	if w.ticket != nil {
		qs.keep(ctx, w, c.left)
		qs.entrust(w)
	}
	var passed <-chan time.Time
	var timer *time.Timer
	if c.wait != Forever {
		timer = time.NewTimer(c.left - l.clock.now().sub(queued))
		defer timer.Stop()
		passed = timer.C
	}
	for {
		select {
		case o := <-w.ready: // L9: pushed, not polled
			o.at = l.clock.now() // the goroutine may have woken up late
			return o, o.err
		case <-ctx.Done():
			return qs.giveUp(ctx, w, start, contextError(ctx))
		case <-l.gate.closing.Done():
			return qs.giveUp(ctx, w, start, ErrClosed)
		case <-passed:
			if more := qs.unanswered(ctx, w, queued); more > 0 {
				timer.Reset(more)
				continue
			}
			return qs.timeOut(ctx, w, start)
		}
	}
}

// unanswered returns how much longer w waits, after its wait has passed, for the
// first answer to its ticket: a free key is granted for any value of Wait
// (L20). It returns 0 once the ticket is known to be queued or cannot be
// granted any more.
func (qs *queues) unanswered(ctx context.Context, w *waiter, since instant) time.Duration {
	at := qs.place(w)
	if at == nil || at.ticket == nil || at.confirmed != 0 {
		return 0
	}
	s, err := at.glance.result(ctx, glanceBound)
	if err == nil && (len(s.Holders) >= max(s.Size, 1) || len(s.Waiters) > 0) {
		return 0
	}
	return max(driver.CallTimeout-qs.locker.clock.now().sub(since), 0)
}

// giveUp leaves the queue. A grant that arrived at the same instant is handed
// on. The end of the context is an ErrNotAcquired only if the key is
// known to be busy, and an ErrUnavailable only if the backend is silent (L21).
func (qs *queues) giveUp(ctx context.Context, w *waiter, since instant, reason error) (outcome, error) {
	var busy *NotAcquiredError
	var err error
	if ctx.Err() != nil {
		busy, err = qs.busy(context.WithoutCancel(ctx), w, farewell, true)
	}
	if !qs.leave(w) {
		qs.receive(w)
		return outcome{}, reason
	}
	switch {
	case busy != nil:
		busy.Err = reason
		return outcome{}, busy
	case err != nil && qs.locker.clock.now().sub(since) >= driver.CallTimeout:
		return outcome{}, fmt.Errorf("%w: %w", err, reason)
	}
	return outcome{}, reason
}

// receive hands on the grant of a waiter that does not use it (L22).
func (qs *queues) receive(w *waiter) {
	if o := <-w.ready; o.err == nil {
		_ = o.hold.pass(0) // a failed release is retried in the background
	}
}

// timeOut leaves the queue because the wait has passed, and returns the holders
// in the error. A grant that arrived at the same instant is taken.
func (qs *queues) timeOut(ctx context.Context, w *waiter, start instant) (outcome, error) {
	busy, err := qs.busy(ctx, w, glanceBound, false) // before it leaves: the ticket may end with it
	if ctx.Err() != nil {
		return qs.giveUp(ctx, w, start, contextError(ctx))
	}
	if !qs.leave(w) {
		o := <-w.ready
		o.at = qs.locker.clock.now()
		return o, o.err
	}
	if err != nil {
		return outcome{}, err
	}
	return outcome{}, busy
}

// confirmed is how long a backend's answer that a key is busy stays valid
// (L21).
const confirmed = 2 * time.Second

// busy returns the holders ahead of w, or an ErrUnavailable if the backend has
// not confirmed within the last 2 s that the key is busy. It inspects the key
// at the backend, at most for bound and until ctx ends. If the wait was ended, it
// does so only if there is no recent confirmation.
func (qs *queues) busy(ctx context.Context, w *waiter, bound time.Duration, ended bool) (*NotAcquiredError, error) {
	l := qs.locker
	at := qs.place(w)
	if at == nil {
		return new(NotAcquiredError), nil // w was served
	}
	silence := l.clock.now().sub(at.confirmed)
	recent := at.confirmed != 0 && silence <= confirmed
	if recent && ended {
		return new(NotAcquiredError), nil
	}
	down := l.health.lost()
	if down == nil {
		s, err := at.glance.result(ctx, bound)
		if err == nil {
			return &NotAcquiredError{Holders: qs.holders(s), Position: at.position(s)}, nil
		}
		down = l.unavailable(err, bound)
	}
	if recent {
		return new(NotAcquiredError), nil
	}
	return nil, down
}

// place is the position of a waiter.
type place struct {
	ahead     int     // the waiters of this process before it, or -1 for many
	ticket    *ticket // the ticket of these waiters; nil if the hold will be handed on to them
	glance    *glance
	confirmed instant // when the backend last confirmed the ticket or hold; 0 if never
}

// place returns the place of w, or nil if w was served.
func (qs *queues) place(w *waiter) *place {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if !w.queued {
		return nil
	}
	q := qs.byKey[w.call.key]
	p := &place{ahead: w.ahead(), ticket: q.ticket, glance: q.look(qs.locker)}
	switch {
	case q.ticket != nil:
		p.confirmed = q.ticket.confirmed
	case q.hold != nil:
		p.confirmed = q.hold.lastConfirmed()
	}
	return p
}

// position returns the position in the whole queue, from 1, or 0 if it is not
// known.
func (p *place) position(s State) int {
	if p.ticket == nil || p.ahead < 0 {
		return p.ahead + 1
	}
	front := slices.IndexFunc(s.Waiters, func(h Holder) bool { return sameHolder(h, p.ticket.request.Holder) })
	if front < 0 {
		return 0
	}
	return p.ahead + 1 + front
}

// leave removes w from its queue. It returns false if w was already served.
func (qs *queues) leave(w *waiter) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if !w.queued {
		return false
	}
	q := qs.byKey[w.call.key]
	q.waiters.remove(w)
	qs.settle(q)
	return true
}
