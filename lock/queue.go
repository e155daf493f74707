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

// The bounds of a process's turn: how many of its waiters may follow the one
// that the backend has let in, and for how long.
const (
	maxHandOns = 16 // L7
	turnLength = 100 * time.Millisecond
)

// queues holds the waiters of this process, by key, in front of a driver that
// others share. A key with waiters has at most one request at the backend, its
// ticket, which belongs to the key and not to a waiter: whoever gives up
// passes it on, and it is withdrawn when nobody waits any more. What the
// ticket brings goes to the first waiter, and from there on to the next ones,
// without a word to the backend, until the process's turn is over.
type queues struct {
	locker *Locker
	asker  driver.Asker // the driver, if it is one

	// mu guards byKey and every queue in it. A hold's mutex may be taken under
	// it, never the other way round.
	mu    sync.Mutex
	byKey map[string]*queue
}

func newQueues(l *Locker) *queues {
	asker, _ := l.driver.(driver.Asker)
	return &queues{locker: l, asker: asker, byKey: make(map[string]*queue)}
}

// queue is the local side of one key. It is there while somebody waits, or
// while there is a hold that could be handed on.
type queue struct {
	key     string
	waiters list
	ticket  *ticket     // what is asked of the backend now, or nil
	hold    *hold       // what may be handed on, or nil
	handed  int         // how often it was
	holder  Holder      // who has it
	turn    *time.Timer // asks the backend when the hold's turn is over; nil if not needed
	glance  *glance     // the newest look at the backend, for waiters that give up

	joined   uint64 // the number of waiters so far
	busyUpTo uint64 // the waiters up to this number have found the key busy
}

// ticket is one request at the backend.
type ticket struct {
	queue   *queue
	kind    kind
	heard   instant // when the backend has confirmed that it is queued, or 0; guarded by queues.mu
	request driver.Request
	ctx     context.Context
	cancel  context.CancelFunc
}

// kind is what waiters must have in common to inherit each other's ticket.
type kind struct {
	slots   int
	noRenew bool
	ttl     time.Duration // under noRenew, where no renewal adopts another one; else 0
}

// handable says whether a grant of this kind may be handed on.
func (k kind) handable() bool { return k.slots == 1 && !k.noRenew }

func (c call) kind() kind {
	if c.noRenew {
		return kind{c.slots, true, c.ttl}
	}
	return kind{slots: c.slots}
}

// outcome is how waiting ends: with a grant and the fence of the lease to be
// made on it, or with an error.
type outcome struct {
	hold      *hold
	fence     uint64
	at        instant // when the waiter had it
	contended bool
	handed    bool
	err       error
}

// wait queues c and returns when its turn has come.
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
			o.at = l.clock.now() // it may have taken a while to wake up
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

// unanswered returns how much longer w, whose wait has passed, waits for the
// first answer to its ticket: a free key is granted whatever Wait is (L20). It
// returns 0 once the ticket is known to be queued or to have no chance.
func (qs *queues) unanswered(w *waiter, since instant) time.Duration {
	at := qs.place(w)
	if at == nil || at.ticket == nil || at.heard != 0 {
		return 0
	}
	s, err := at.glance.result(glanceBound)
	if err == nil && (len(s.Holders) >= max(s.Slots, 1) || len(s.Waiters) > 0) {
		return 0
	}
	return max(driver.CallTimeout-qs.locker.clock.now().sub(since), 0)
}

// giveUp leaves the queue. A grant that arrived at the same instant is passed
// on (L22). The end of the context is an ErrNotAcquired only if the key is known
// to be busy, and an ErrUnavailable only if the backend is silent (L21).
func (qs *queues) giveUp(ctx context.Context, w *waiter, since instant, reason error) (outcome, error) {
	var busy *NotAcquiredError
	var err error
	if ctx.Err() != nil {
		busy, err = qs.busy(ctx, w, farewell)
	}
	if !qs.leave(w) {
		if o := <-w.ready; o.err == nil {
			_ = o.hold.pass() // what does not get through is cleaned up
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

// timeOut leaves the queue because the wait has passed, with the holders that
// were in the way. A grant that arrived at the same instant is taken.
func (qs *queues) timeOut(ctx context.Context, w *waiter, start instant) (outcome, error) {
	busy, err := qs.busy(ctx, w, glanceBound) // while it has its place: the ticket may end with it
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

// confirmed is for how long a backend's word that a key is busy holds (L21).
const confirmed = 2 * time.Second

// busy returns what is in the way of w, or an ErrUnavailable if the backend has
// not confirmed within the last 2 s that the key is busy. It asks the backend,
// for so long at most, or only if it has to where the context has ended.
func (qs *queues) busy(ctx context.Context, w *waiter, bound time.Duration) (*NotAcquiredError, error) {
	l := qs.locker
	at := qs.place(w)
	if at == nil {
		return new(NotAcquiredError), nil // it was served
	}
	silence := l.clock.now().sub(at.heard)
	recent := at.heard != 0 && silence <= confirmed
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

// join puts w at the end of its queue. It returns a ticket if its caller has to
// ask for it.
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

// place is where a waiter stands.
type place struct {
	index  int     // among the waiters of this process
	ticket *ticket // they wait behind it, or, if it is nil, to be handed the hold
	glance *glance
	heard  instant // when the backend has last confirmed what they wait behind; 0 if it has not
}

// place returns where w stands, or nil if it was served.
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
		p.heard = q.ticket.heard
	case q.hold != nil:
		p.heard = q.hold.lastHeard()
	}
	return p
}

// position is the place from 1 in all of the queue, or 0 if it is not known.
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

// leave takes w out of its queue. It returns false if w had been served.
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

// settle brings q into order after any change: its ticket is one that the
// first waiter can use, or there is none because the hold will be handed on
// soon or nobody waits. The caller holds qs.mu.
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
			q.withdraw() // its end settles the queue again
		}
	case q.hold != nil && q.left(qs.locker.clock.now()) > 0 && q.suits(head):
		if q.turn == nil {
			q.turn = time.AfterFunc(q.left(qs.locker.clock.now()), func() { qs.turnOver(q) })
		}
	default:
		q.endTurn()
		qs.ask(q, head)
	}
}

// left is how much of its turn the hold has left. The caller holds qs.mu.
func (q *queue) left(now instant) time.Duration {
	if q.handed >= min(maxHandOns, q.hold.grant.Fences-1) {
		return 0
	}
	return turnLength - now.sub(q.hold.since)
}

// suits says whether w may have what the hold is.
func (q *queue) suits(w *waiter) bool {
	q.hold.mu.Lock()
	defer q.hold.mu.Unlock()
	return w.call.kind().handable() && w.call.ttl == q.hold.ttl
}

// turnOver asks the backend for those that wait still.
func (qs *queues) turnOver(q *queue) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.turn = nil
	if qs.byKey[q.key] == q {
		qs.settle(q)
	}
}

func (q *queue) endTurn() {
	if q.turn != nil {
		q.turn.Stop()
		q.turn = nil
	}
}

func (q *queue) withdraw() {
	if q.ticket != nil {
		q.ticket.cancel()
	}
}

// ask sends a ticket for w, on behalf of whoever will be first when it is
// granted. The caller holds qs.mu.
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
	if t.kind.handable() {
		t.request.Fences = maxHandOns + 1
	}
	t.ctx, t.cancel = context.WithCancel(l.crew.ctx)
	if w.asks {
		q.ticket, w.ticket = t, t
		return
	}
	if l.crew.do(func(context.Context) {
		g, err := qs.fetch(t)
		qs.came(t, g, err, nil)
	}) {
		q.ticket = t
	}
}

// askBound is how long an Ask may take: the driver's own bound, and some for a
// driver that explains why it had no answer.
const askBound = driver.CallTimeout + driver.CallTimeout/10

// askHere asks for t on the goroutine of w, and lets another one wait if it is
// queued: to start a goroutine and be woken by it takes as long as a third of the
// way to the backend. It reports whether w was served. An error is why w had to
// give up before there was an answer; it has left the queue then. The first
// request has its own bound, whatever w's Wait is (L20).
func (qs *queues) askHere(parent context.Context, w *waiter, t *ticket) (served bool, err error) {
	l := qs.locker
	ctx, cancel := context.WithTimeout(parent, askBound)
	defer cancel()
	defer context.AfterFunc(l.gate.closing, cancel)()
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
	qs.heard(t)
	rest := func(context.Context) {
		g, err := wait(t.ctx)
		qs.came(t, g, err, nil)
	}
	if !l.crew.do(rest) {
		t.cancel()
		rest(t.ctx)
	}
	return false, nil
}

// heard notes that the backend has confirmed the ticket's place in the queue.
func (qs *queues) heard(t *ticket) {
	now := qs.locker.clock.now()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	t.heard = now
	t.queue.busyUpTo = t.queue.joined // those who wait now have found the key busy
}

// fetch asks for t and waits for its outcome.
func (qs *queues) fetch(t *ticket) (driver.Grant, error) {
	if qs.asker == nil {
		return qs.locker.driver.Acquire(t.ctx, t.request)
	}
	ctx, cancel := context.WithTimeout(t.ctx, askBound)
	defer cancel()
	g, wait, err := qs.asker.Ask(ctx, t.request)
	if err != nil && ctx.Err() != nil && t.ctx.Err() == nil {
		err = qs.locker.unavailable(err, askBound)
	}
	if wait == nil {
		return g, err
	}
	cancel()
	qs.heard(t)
	return wait(t.ctx)
}

// came takes the outcome of t's request, and gives a grant to the first waiter.
// A leaver is the waiter that asked for it itself and has given up.
func (qs *queues) came(t *ticket, g driver.Grant, err error, leaver *waiter) {
	l := qs.locker
	if err == nil {
		t.cancel()
		deliver := qs.serve(t, l.newHold(g, l.clock.now()), g)
		deliver()
		return
	}
	// A grant that was forced away before it arrived is asked for again.
	withdrawn := leaver != nil || t.ctx.Err() != nil || errors.Is(err, ErrLost)
	t.cancel()
	l.tidy(t.request, err)
	qs.refuse(t, err, withdrawn, leaver)
}

// refuse ends a ticket that brought nothing. An error that is not its
// withdrawal is everybody's who would have inherited it.
func (qs *queues) refuse(t *ticket, err error, withdrawn bool, leaver *waiter) {
	qs.mu.Lock()
	q := t.queue
	q.ticket = nil
	if leaver != nil && leaver.queued {
		q.waiters.remove(leaver) // before another ticket is asked for on its behalf
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

// serve ends a ticket that brought h and returns how to go on with it: to the
// first waiter, or back if there is none of its kind.
func (qs *queues) serve(t *ticket, h *hold, g driver.Grant) (deliver func()) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := t.queue
	q.ticket = nil
	if g.Queued {
		q.busyUpTo = q.joined
	}
	w := q.waiters.first
	if w == nil || w.call.kind() != t.kind {
		qs.settle(q)
		return func() { _ = h.pass() }
	}
	q.waiters.pop()
	contended := w.number <= q.busyUpTo
	if t.kind.handable() {
		q.endTurn()
		q.hold, q.handed, q.holder = h, 0, w.holder
	}
	qs.settle(q)
	return func() {
		h.adopt(w.call.ttl)
		w.ready <- outcome{hold: h, fence: g.Fence, contended: contended}
	}
}

// next returns the waiter that h is handed on to, and with what; or nil if it
// must be given back, and then h is no longer the queue's.
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

// worthHanding says whether enough of the grant's life is left for a next
// lease: half of the TTL, or of what a driver grants at first.
func (h *hold) worthHanding(now instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.ended && !h.doubted && h.deadline.sub(now) >= min(h.ttl, pushLife)/2
}

// forget ends the part of a hold that was lost.
func (qs *queues) forget(h *hold) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[h.grant.Key]; q != nil && q.hold == h {
		q.hold = nil
		qs.settle(q)
	}
}
