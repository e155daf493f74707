package lock

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// ticket is one request at the backend.
type ticket struct {
	queue     *queue
	kind      kind
	confirmed instant // when the backend confirmed that it is queued, or 0; guarded by queues.mu
	request   driver.Request
	ctx       bounded
	wait      func(context.Context) (driver.Grant, error) // once it is queued by its own waiter
}

// kind holds the properties that waiters must have in common to share a ticket.
type kind struct {
	slots   int
	noRenew bool
	ttl     time.Duration // under noRenew, where no renewal can change it; else 0
	cools   bool          // the key stays taken after the release
	fixed   bool
	// pooled asks for a slot with a state, which rests for the quarantine.
	pooled     bool
	quarantine time.Duration
}

// handable reports whether a grant of this kind may be handed on. A slot with a
// state passes through the backend, which records how it was left.
func (k kind) handable() bool { return k.slots == 1 && !k.noRenew && !k.cools && !k.pooled }

func (c *call) kind() kind {
	k := kind{slots: c.slots, cools: c.cooldown > 0, fixed: c.fixed}
	if c.pool != nil {
		k.pooled, k.quarantine = true, c.pool.Quarantine
	}
	if c.noRenew {
		k.noRenew, k.ttl = true, c.ttl
	}
	return k
}

func (q *queue) withdraw() {
	if q.ticket != nil {
		q.ticket.ctx.end()
	}
}

// ask sends a ticket for w. The grant goes to the waiter that is first when it
// arrives. The caller holds qs.mu.
func (qs *queues) ask(q *queue, w *waiter) {
	l := qs.locker
	t := &ticket{queue: q, kind: w.call.kind(), request: driver.Request{
		Key:     w.call.key,
		Token:   newToken(),
		TTL:     w.call.ttl,
		Wait:    -1,
		Slots:   w.call.slots,
		Fences:  1,
		NoRenew: w.call.noRenew,
		Holder:  w.holder,
	}}
	l.describe(&t.request, &w.call)
	if t.kind.handable() {
		t.request.Fences = maxHandOns + 1
	}
	t.ctx.parent = l.group.Context() //nolint:fatcontext // there is no loop
	l.gate.stay()                    // until conclude, so that Close waits for the clean-up too
	if w.asks {
		q.ticket, w.ticket = t, t
		return
	}
	if l.group.Go(func(context.Context) {
		g, err := qs.fetch(t)
		qs.conclude(t, g, err)
	}) {
		q.ticket = t
		return
	}
	l.gate.leave()
}

// askBound is the timeout of an Ask: the driver's own timeout, and some more
// for a driver that then returns the reason.
const askBound = driver.CallTimeout + driver.CallTimeout/10

// askHere sends the request of t on the goroutine of w: the start of another
// one and its wake-up cost a third of the round trip to the backend. It reports
// whether w was served; if the request is queued, w keeps the ticket. If w had to
// give up before an answer, it has left the queue and the error is the reason.
// The first request has a timeout of its own, for any value of w's Wait (L20).
func (qs *queues) askHere(parent context.Context, w *waiter, t *ticket) (served bool, err error) {
	l := qs.locker
	ctx := &bounded{parent: parent, closing: l.gate.closing, until: time.Now().Add(askBound)}
	defer ctx.end()
	answered, cause := false, errNotReturned
	defer func() {
		if !answered { // also because a context or the driver has panicked
			qs.giveUpAsking(w, t, cause)
		}
	}()
	g, wait, err := qs.locker.asker.Ask(ctx, t.request)
	if err != nil {
		cause = err
	}
	switch {
	case err != nil && parent.Err() != nil:
		return false, contextError(parent)
	case err != nil && l.gate.shut():
		return false, ErrClosed
	}
	answered = true
	if wait == nil {
		w.ticket = nil
		qs.conclude(t, g, err)
		return err == nil, nil
	}
	qs.confirmed(t)
	l.resized(t.request.Key, t.request.Slots, g.Resized, l.clock.now()) // the waiter may time out by itself
	t.wait = wait
	return false, nil
}

// keep waits for the grant of w's ticket on the goroutine of w, so that a push
// wakes one goroutine and not two. It returns when there is an outcome, when w was
// served otherwise, or when w has another reason to end its wait.
func (qs *queues) keep(ctx context.Context, w *waiter, left time.Duration) {
	t := w.ticket
	waiting, pause := context.WithCancelCause(&t.ctx)
	defer pause(nil)
	if !qs.pausable(w, func() { pause(driver.ErrPaused) }) {
		return
	}
	defer context.AfterFunc(ctx, w.pause)()
	defer context.AfterFunc(qs.locker.gate.closing, w.pause)()
	if left != Forever {
		defer time.AfterFunc(left, w.pause).Stop()
	}
	g, err := t.wait(waiting)
	if !errors.Is(err, driver.ErrPaused) {
		w.ticket = nil
		qs.conclude(t, g, err)
	}
}

// pausable lets others end w's wait for its ticket by pause. It returns false if w
// was served already.
func (qs *queues) pausable(w *waiter, pause func()) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.queued {
		w.pause = pause
	}
	return w.queued
}

// entrust lets another goroutine wait for the ticket that w keeps, if any: the
// ticket belongs to all waiters of the queue.
func (qs *queues) entrust(w *waiter) {
	t := w.ticket
	if t == nil {
		return
	}
	w.ticket = nil
	rest := func(context.Context) {
		g, err := t.wait(&t.ctx)
		qs.conclude(t, g, err)
	}
	if !qs.locker.group.Go(rest) {
		t.ctx.end()
		rest(&t.ctx)
	}
}

// giveUpAsking ends t, whose waiter w gives up before it has an answer, because of
// cause. Meanwhile w may have been handed a hold of this process: Extend or a new
// TTL can make it suit.
func (qs *queues) giveUpAsking(w *waiter, t *ticket, cause error) {
	left := qs.leave(w) // before the end of t sends another ticket for it
	t.ctx.end()
	qs.conclude(t, driver.Grant{}, cause)
	if !left {
		qs.receive(w)
	}
}

// confirmed records that the backend has confirmed the ticket's place in the queue.
func (qs *queues) confirmed(t *ticket) {
	now := qs.locker.clock.now()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	t.confirmed = now
	t.queue.busyUpTo = t.queue.joined // all current waiters found the key busy
}

// fetch sends the request of t and waits for its outcome.
func (qs *queues) fetch(t *ticket) (driver.Grant, error) {
	if qs.locker.asker == nil {
		return qs.locker.driver.Acquire(&t.ctx, t.request)
	}
	ctx, cancel := context.WithTimeout(&t.ctx, askBound)
	g, wait, err := qs.locker.asker.Ask(ctx, t.request)
	cancel()
	if wait == nil {
		return g, err
	}
	qs.confirmed(t)
	qs.locker.resized(t.request.Key, t.request.Slots, g.Resized, qs.locker.clock.now())
	return wait(&t.ctx)
}

// conclude handles the outcome of t's request, and gives a grant to the first
// waiter.
func (qs *queues) conclude(t *ticket, g driver.Grant, err error) {
	l := qs.locker
	defer l.gate.leave()
	if err == nil {
		t.ctx.end()
		h := l.newIdle(&g, l.clock.now())
		w, contended := qs.serve(t, h, g.Queued)
		if w == nil {
			_ = h.pass(0) // L22
			return
		}
		h.adopt(w.call.ttl)
		l.reschedule(h)
		w.serve(outcome{hold: h, fence: g.Fence, contended: contended})
		return
	}
	// A grant that a force ended before its arrival is requested again.
	withdrawn := t.ctx.Err() != nil || errors.Is(err, ErrLost)
	t.ctx.end()
	l.tidy(t.request, err)
	qs.refuse(t, err, withdrawn)
}

// refuse ends a ticket without a grant. If the ticket was not withdrawn, every
// waiter of its kind receives the error.
func (qs *queues) refuse(t *ticket, err error, withdrawn bool) {
	qs.mu.Lock()
	q := t.queue
	q.ticket = nil
	var all []*waiter
	if !withdrawn {
		all = q.waiters.take(t.kind)
	}
	qs.settle(q)
	qs.mu.Unlock()
	for _, w := range all {
		w.serve(outcome{err: err})
	}
}

// serve ends a ticket whose grant is h. It returns the first waiter, and whether
// the key was busy when that one came; or nil if no waiter is of the ticket's kind.
func (qs *queues) serve(t *ticket, h *hold, queued bool) (w *waiter, contended bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := t.queue
	q.ticket = nil
	if queued {
		q.busyUpTo = q.joined
	}
	w = q.waiters.first
	if w == nil || w.call.kind() != t.kind {
		qs.settle(q)
		return nil, false
	}
	q.waiters.pop()
	if t.kind.handable() {
		q.hold, q.handed, q.holder = h, 0, w.holder
	}
	qs.settle(q)
	return w, w.number <= q.busyUpTo
}
