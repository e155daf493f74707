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
}

// ticket is one request at the backend.
type ticket struct {
	queue   *queue
	kind    kind
	heard   instant // when the backend said that it is queued, or 0; guarded by queues.mu
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
	t := qs.join(w)
	left := remaining(c.wait, l.clock.now().sub(start))
	if t != nil {
		served, err := qs.askHere(ctx, w, t, left)
		if err != nil {
			return outcome{}, err
		}
		if served {
			o := <-w.ready
			o.at = l.clock.now()
			return o, o.err
		}
	}
	var passed <-chan time.Time
	if left >= 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case o := <-w.ready: // L9: pushed, not polled
		o.at = l.clock.now() // it may have taken a while to wake up
		return o, o.err
	case <-ctx.Done():
		return qs.giveUp(w, contextError(ctx))
	case <-l.gate.closing.Done():
		return qs.giveUp(w, ErrClosed)
	case <-passed:
		return qs.timeOut(ctx, w, start)
	}
}

// giveUp leaves the queue. A grant that arrived at the same instant is passed
// on.
func (qs *queues) giveUp(w *waiter, reason error) (outcome, error) {
	if qs.leave(w) {
		return outcome{}, reason
	}
	if o := <-w.ready; o.err == nil { // L8
		_ = o.hold.pass() // what does not get through is cleaned up
	}
	return outcome{}, reason
}

// timeOut leaves the queue because the wait has passed, with what is known of
// who was in the way. A grant that arrived at the same instant is taken.
func (qs *queues) timeOut(ctx context.Context, w *waiter, start instant) (outcome, error) {
	// It looks while it still has its place: the ticket may end with it.
	busy, silent := &NotAcquiredError{Waited: qs.locker.clock.now().sub(start)}, false
	if at := qs.place(w); at != nil {
		s, ok := at.glance.result(ctx, at.bound())
		if ok {
			busy.Holders = s.Holders
			busy.Position = at.position(s)
		}
		silent = !ok && at.unheard
	}
	if !qs.leave(w) {
		o := <-w.ready
		o.at = qs.locker.clock.now()
		return o, o.err
	}
	if silent {
		return outcome{}, fmt.Errorf("%w: no answer within %v", ErrUnavailable, busy.Waited.Round(time.Millisecond))
	}
	return outcome{}, busy
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
	// unheard says that the backend has not confirmed the ticket lately, so that
	// the key is not known to be busy (L21).
	unheard bool
}

// confirmed is how old the backend's word may be that a ticket is queued, for the
// key to count as busy (L21).
const confirmed = 2 * time.Second

// bound is how long a waiter that gives up waits for a look at the backend: for
// as long as a call may take where the outcome depends on it.
func (p *place) bound() time.Duration {
	if p.unheard {
		return driver.CallTimeout
	}
	return glanceBound
}

// place returns where w stands, or nil if it was served.
func (qs *queues) place(w *waiter) *place {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if !w.queued {
		return nil
	}
	q := qs.byKey[w.call.key]
	l := qs.locker
	unheard := q.ticket != nil && (q.ticket.heard == 0 || l.clock.now().sub(q.ticket.heard) > confirmed)
	return &place{q.waiters.index(w), q.ticket, q.look(l), unheard}
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
		g, err := l.driver.Acquire(t.ctx, t.request)
		qs.came(t, g, err, nil)
	}) {
		q.ticket = t
	}
}

// askHere asks for t on the goroutine of w, which has so much time left, and
// lets another one wait if it is queued: to start a goroutine and be woken by it
// takes as long as a third of the way to the backend. It says whether w was
// served. An error is why w had to give up before there was an answer; it has
// left the queue then.
func (qs *queues) askHere(parent context.Context, w *waiter, t *ticket, left time.Duration) (served bool, err error) {
	l := qs.locker
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	defer context.AfterFunc(l.gate.closing, cancel)()
	if left >= 0 && left < driver.CallTimeout {
		defer time.AfterFunc(left, cancel).Stop()
	}
	g, wait, err := qs.asker.Ask(ctx, t.request)
	if err != nil && ctx.Err() != nil {
		qs.came(t, g, err, w)
		return false, l.gaveUp(parent, left)
	}
	if wait == nil {
		qs.came(t, g, err, nil)
		return err == nil, nil
	}
	qs.mu.Lock()
	t.heard = l.clock.now()
	qs.mu.Unlock()
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

// gaveUp is why a waiter had to give up asking.
func (l *Locker) gaveUp(ctx context.Context, left time.Duration) error {
	switch {
	case ctx.Err() != nil:
		return contextError(ctx)
	case l.gate.shut():
		return ErrClosed
	}
	return fmt.Errorf("%w: no answer within %v", ErrUnavailable, left.Round(time.Millisecond))
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
	w := q.waiters.first
	if w == nil || w.call.kind() != t.kind {
		qs.settle(q)
		return func() { _ = h.pass() }
	}
	q.waiters.pop()
	if t.kind.handable() {
		q.endTurn()
		q.hold, q.handed, q.holder = h, 0, w.holder
	}
	qs.settle(q)
	return func() {
		h.adopt(w.call.ttl)
		w.ready <- outcome{hold: h, fence: g.Fence, contended: g.Queued}
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
