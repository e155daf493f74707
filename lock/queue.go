package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// The bounds of a process's turn: the number of waiters that the grant is
// handed on to, and the duration.
const (
	maxHandOns = 16 // L7
	turnLength = 100 * time.Millisecond
)

// queues holds the waiters of this process, by key, in front of a driver that
// others share. A key with waiters has at most one request at the backend, its
// ticket. The ticket belongs to the key and not to a waiter: it stays when one
// waiter gives up, and is withdrawn when no waiter is left. Its grant goes to
// the first waiter and is then handed on to the next ones, without a call to
// the backend, until the process's turn is over.
type queues struct {
	locker *Locker
	asker  driver.Asker // the driver, if it implements Asker

	// mu guards byKey and every queue in it. A hold's mutex may be taken under
	// it, never the other way round.
	mu    sync.Mutex
	byKey map[string]*queue
}

func newQueues(l *Locker) *queues {
	asker, _ := l.driver.(driver.Asker)
	return &queues{locker: l, asker: asker, byKey: make(map[string]*queue)}
}

// queue is the local side of one key. It exists while there are waiters, or a
// hold that could be handed on.
type queue struct {
	key     string
	waiters list
	ticket  *ticket     // the current request at the backend, or nil
	hold    *hold       // the hold that may be handed on, or nil
	handed  int         // how often hold was handed on
	holder  Holder      // of the current lease
	turnEnd *time.Timer // sends a ticket when the hold's turn is over; nil if not needed
	glance  *glance     // the newest Inspect of the key, for waiters that give up

	joined   uint64 // the number of waiters so far
	busyUpTo uint64 // waiters up to this number found the key busy
}

// ticket is one request at the backend.
type ticket struct {
	queue     *queue
	kind      kind
	confirmed instant // when the backend confirmed that it is queued, or 0; guarded by queues.mu
	request   driver.Request
	ctx       bounded
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

// outcome is the result of a wait: a grant and the fence of the new lease on
// it, or an error.
type outcome struct {
	hold      *hold
	fence     uint64
	at        instant // when the waiter received it
	contended bool
	handed    bool
	err       error
}

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
	queued := l.clock.now() // L20: Wait bounds the time from here
	defer func() { c.left = max(c.left-l.clock.now().sub(queued), 0) }()
	n, err := l.begin(ctx, c, c.left, func(err error) { // A5
		if qs.leave(w) {
			w.ready <- outcome{err: err}
		}
	})
	if err != nil {
		return qs.giveUp(ctx, w, start, err)
	}
	defer l.finish(n)
	var passed <-chan time.Time
	var timer *time.Timer
	if c.wait != Forever {
		timer = time.NewTimer(c.left)
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
			if more := qs.unanswered(w, queued); more > 0 {
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
func (qs *queues) unanswered(w *waiter, since instant) time.Duration {
	at := qs.place(w)
	if at == nil || at.ticket == nil || at.confirmed != 0 {
		return 0
	}
	s, err := at.glance.result(glanceBound)
	if err == nil && (len(s.Holders) >= max(s.Size, 1) || len(s.Waiters) > 0) {
		return 0
	}
	return max(driver.CallTimeout-qs.locker.clock.now().sub(since), 0)
}

// giveUp leaves the queue. A grant that arrived at the same instant is handed
// on (L22). The end of the context is an ErrNotAcquired only if the key is
// known to be busy, and an ErrUnavailable only if the backend is silent (L21).
func (qs *queues) giveUp(ctx context.Context, w *waiter, since instant, reason error) (outcome, error) {
	var busy *NotAcquiredError
	var err error
	if ctx.Err() != nil {
		busy, err = qs.busy(ctx, w, farewell)
	}
	if !qs.leave(w) {
		if o := <-w.ready; o.err == nil {
			_ = o.hold.pass(0) // a failed release is retried in the background
		}
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

// timeOut leaves the queue because the wait has passed, and returns the holders
// in the error. A grant that arrived at the same instant is taken.
func (qs *queues) timeOut(ctx context.Context, w *waiter, start instant) (outcome, error) {
	busy, err := qs.busy(ctx, w, glanceBound) // before it leaves: the ticket may end with it
	if !qs.leave(w) {
		o := <-w.ready
		o.at = qs.locker.clock.now()
		return o, o.err
	}
	if err != nil {
		return outcome{}, err
	}
	busy.Waited = qs.locker.clock.now().sub(start)
	return outcome{}, busy
}

// confirmed is how long a backend's answer that a key is busy stays valid
// (L21).
const confirmed = 2 * time.Second

// busy returns the holders ahead of w, or an ErrUnavailable if the backend has
// not confirmed within the last 2 s that the key is busy. It inspects the key
// at the backend, at most for bound. If the context has ended, it does so only
// if there is no recent confirmation.
func (qs *queues) busy(ctx context.Context, w *waiter, bound time.Duration) (*NotAcquiredError, error) {
	l := qs.locker
	at := qs.place(w)
	if at == nil {
		return new(NotAcquiredError), nil // w was served
	}
	silence := l.clock.now().sub(at.confirmed)
	recent := at.confirmed != 0 && silence <= confirmed
	if recent && ctx.Err() != nil {
		return new(NotAcquiredError), nil
	}
	down := l.health.lost()
	if down == nil {
		s, err := at.glance.result(bound)
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

// join puts w at the end of its queue. It returns a ticket if the caller has to
// send its request.
func (qs *queues) join(w *waiter) *ticket {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[w.call.key]
	if q == nil {
		q = &queue{key: w.call.key}
		qs.byKey[w.call.key] = q
	}
	q.joined++
	w.number = q.joined
	q.waiters.push(w)
	w.asks = qs.asker != nil
	qs.settle(q)
	w.asks = false
	return w.ticket
}

// place is the position of a waiter.
type place struct {
	index     int     // among the waiters of this process
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
	p := &place{index: q.waiters.index(w), ticket: q.ticket, glance: q.look(qs.locker)}
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
	if p.ticket == nil {
		return p.index + 1
	}
	front := slices.IndexFunc(s.Waiters, func(h Holder) bool { return same(h, p.ticket.request.Holder) })
	if front < 0 {
		return 0
	}
	return p.index + 1 + front
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

// settle updates the ticket of q after any change. Afterwards the first waiter
// can use the ticket, or there is none because the hold will be handed on soon
// or the queue is empty. The caller holds qs.mu.
func (qs *queues) settle(q *queue) {
	head := q.waiters.first
	switch {
	case head == nil:
		q.withdraw()
		q.endTurn()
		if q.hold == nil && q.ticket == nil { // L18
			delete(qs.byKey, q.key)
		}
	case q.ticket != nil: // L10
		if q.ticket.kind != head.call.kind() {
			q.withdraw() // the end of the ticket settles the queue again
		}
	case q.hold != nil && q.left(qs.locker.clock.now()) > 0 && q.suits(head):
		if q.turnEnd == nil {
			q.turnEnd = time.AfterFunc(q.left(qs.locker.clock.now()), func() { qs.endTurn(q) })
		}
	default:
		q.endTurn()
		qs.ask(q, head)
	}
}

// left returns the rest of the hold's turn. The caller holds qs.mu.
func (q *queue) left(now instant) time.Duration {
	if q.handed >= min(maxHandOns, q.hold.grant.Fences-1) {
		return 0
	}
	return turnLength - now.sub(q.hold.since)
}

// suits reports whether the hold may be handed on to w.
func (q *queue) suits(w *waiter) bool {
	q.hold.mu.Lock()
	defer q.hold.mu.Unlock()
	return w.call.kind().handable() && w.call.ttl == q.hold.ttl
}

// endTurn sends a ticket for the remaining waiters.
func (qs *queues) endTurn(q *queue) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.turnEnd = nil
	if qs.byKey[q.key] == q {
		qs.settle(q)
	}
}

func (q *queue) endTurn() {
	if q.turnEnd != nil {
		q.turnEnd.Stop()
		q.turnEnd = nil
	}
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
	t.ctx.parent = l.group.Context()
	if w.asks {
		q.ticket, w.ticket = t, t
		return
	}
	if l.group.Go(func(context.Context) {
		g, err := qs.fetch(t)
		qs.came(t, g, err, nil)
	}) {
		q.ticket = t
	}
}

// askBound is the timeout of an Ask: the driver's own timeout, and some more
// for a driver that then returns the reason.
const askBound = driver.CallTimeout + driver.CallTimeout/10

// askHere sends the request of t on the goroutine of w, and starts another
// goroutine for the wait if the request is queued: the start of a goroutine and
// its wake-up cost a third of the round trip to the backend. It reports whether
// w was served. If w had to give up before an answer, it has left the queue and
// the error is the reason. The first request has a timeout of its own, for any
// value of w's Wait (L20).
func (qs *queues) askHere(parent context.Context, w *waiter, t *ticket) (served bool, err error) {
	l := qs.locker
	ctx := &bounded{parent: parent, closing: l.gate.closing, until: time.Now().Add(askBound)}
	defer ctx.end()
	g, wait, err := qs.asker.Ask(ctx, t.request)
	switch {
	case err != nil && parent.Err() != nil:
		qs.came(t, g, err, w)
		return false, contextError(parent)
	case err != nil && l.gate.shut():
		qs.came(t, g, err, w)
		return false, ErrClosed
	case err != nil && ctx.Err() != nil:
		err = l.unavailable(err, askBound)
	}
	if wait == nil {
		qs.came(t, g, err, nil)
		return err == nil, nil
	}
	qs.confirmed(t)
	rest := func(context.Context) {
		g, err := wait(&t.ctx)
		qs.came(t, g, err, nil)
	}
	if !l.group.Go(rest) {
		t.ctx.end()
		rest(&t.ctx)
	}
	return false, nil
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
	if qs.asker == nil {
		return qs.locker.driver.Acquire(&t.ctx, t.request)
	}
	ctx, cancel := context.WithTimeout(&t.ctx, askBound)
	defer cancel()
	g, wait, err := qs.asker.Ask(ctx, t.request)
	if err != nil && ctx.Err() != nil && t.ctx.Err() == nil {
		err = qs.locker.unavailable(err, askBound)
	}
	if wait == nil {
		return g, err
	}
	cancel()
	qs.confirmed(t)
	return wait(&t.ctx)
}

// came handles the outcome of t's request, and gives a grant to the first
// waiter. leaver is the waiter that sent the request itself and has given up,
// or nil.
func (qs *queues) came(t *ticket, g driver.Grant, err error, leaver *waiter) {
	l := qs.locker
	if err == nil {
		t.ctx.end()
		h := l.newHold(&g, l.clock.now())
		w, contended := qs.serve(t, h, g.Queued)
		if w == nil {
			_ = h.pass(0) // L22
			return
		}
		h.adopt(w.call.ttl)
		w.ready <- outcome{hold: h, fence: g.Fence, contended: contended}
		return
	}
	// A grant that a force ended before its arrival is requested again.
	withdrawn := leaver != nil || t.ctx.Err() != nil || errors.Is(err, ErrLost)
	t.ctx.end()
	l.tidy(t.request, err)
	qs.refuse(t, err, withdrawn, leaver)
}

// refuse ends a ticket without a grant. If the ticket was not withdrawn, every
// waiter of its kind receives the error.
func (qs *queues) refuse(t *ticket, err error, withdrawn bool, leaver *waiter) {
	qs.mu.Lock()
	q := t.queue
	q.ticket = nil
	if leaver != nil && leaver.queued {
		q.waiters.remove(leaver) // before settle sends another ticket for it
	}
	var all []*waiter
	if !withdrawn {
		all = q.waiters.take(t.kind)
	}
	qs.settle(q)
	qs.mu.Unlock()
	for _, w := range all {
		w.ready <- outcome{err: err}
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
		q.endTurn()
		q.hold, q.handed, q.holder = h, 0, w.holder
	}
	qs.settle(q)
	return w, w.number <= q.busyUpTo
}

// next returns the waiter that h is handed on to, and its outcome. It returns
// nil if h must be given back; h then no longer belongs to the queue.
func (qs *queues) next(h *hold) (*waiter, outcome) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[h.grant.Key]
	if q == nil || q.hold != h {
		return nil, outcome{}
	}
	w := q.waiters.first
	now := qs.locker.clock.now()
	if w == nil || q.left(now) <= 0 || !q.suits(w) || !h.worthHanding(now) || qs.locker.gate.shut() {
		q.hold = nil
		qs.settle(q)
		return nil, outcome{}
	}
	q.waiters.pop()
	q.handed++
	q.holder = w.holder
	qs.settle(q)
	return w, outcome{hold: h, fence: h.grant.Fence + uint64(q.handed), contended: true, handed: true} // L2
}

// worthHanding reports whether enough of the grant's life is left for another
// lease: half of the TTL, or half of the driver's first grant.
func (h *hold) worthHanding(now instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.ended && !h.doubted && h.deadline.sub(now) >= min(h.ttl, pushLife)/2
}

// forget removes a lost hold from its queue.
func (qs *queues) forget(h *hold) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[h.grant.Key]; q != nil && q.hold == h {
		q.hold = nil
		qs.settle(q)
	}
}
