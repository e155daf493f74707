package lock

import (
	"sync"
	"time"
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

	// mu guards byKey and every queue in it. A hold's mutex may be taken under
	// it, never the other way round.
	mu    sync.Mutex
	byKey map[string]*queue
}

func newQueues(l *Locker) *queues {
	return &queues{locker: l, byKey: make(map[string]*queue)}
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
	w.asks = qs.locker.asker != nil
	qs.settle(q)
	w.asks = false
	return w.ticket
}

// settle updates the ticket of q after any change. Afterwards the first waiter
// can use the ticket, or there is none because the hold will be handed on soon
// or the queue is empty. The caller holds qs.mu.
func (qs *queues) settle(q *queue) {
	head := q.waiters.first
	switch {
	case head == nil:
		q.withdraw()
		q.stopTurnEnd()
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
		q.stopTurnEnd()
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

// stopTurnEnd stops the timer of the end of the turn.
func (q *queue) stopTurnEnd() {
	if q.turnEnd != nil {
		q.turnEnd.Stop()
		q.turnEnd = nil
	}
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
