package table

import (
	"github.com/megaframework/mega/lock/driver"
)

type state int

const (
	queued state = iota
	granted
	refused
)

// ticket is a request: queued, then granted or refused.
type ticket struct {
	entry   *entry
	holder  driver.Holder
	pool    *driver.Pool // of the request
	grant   driver.Grant
	state   state
	local   bool       // it belongs to this process; a channel reports its loss
	expires instant    // when granted
	rests   bool       // released, and its key stays taken: it does not end with its owner
	lost    chan error // of a local grant, closed when it is taken away

	since      int64   // the time of the first request; the queue is in this order
	hasty      bool    // it waits only until the table opens
	prev, next *ticket // in the queue

	// A ticket with a waiter in this process has a channel; any other one has
	// an owner.
	done             chan struct{} // closed when the ticket leaves the queue
	err              error         // of the refusal
	calls            int           // waiting calls: more than one for a repeated request
	owner            *Owner
	ownPrev, ownNext *ticket
}

// holding returns the granted ticket t as a Holding.
func (t *ticket) holding(now instant) driver.Holding {
	return driver.Holding{Holder: t.holder, Slot: t.grant.Slot, Fence: t.grant.Fence, Left: t.expires.sub(now)}
}

// queue is a list of tickets in the order of service.
type queue struct {
	head, tail *ticket
	len        int
}

// push puts t behind the tickets that were first requested at the same time or
// earlier (L7).
func (q *queue) push(t *ticket) {
	before := q.tail
	for before != nil && before.since > t.since {
		before = before.prev
	}
	t.prev, t.next = before, q.head
	if before != nil {
		t.next = before.next
		before.next = t
	} else {
		q.head = t
	}
	if t.next != nil {
		t.next.prev = t
	} else {
		q.tail = t
	}
	q.len++
}

func (q *queue) remove(t *ticket) {
	if t.prev == nil {
		q.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	q.len--
}

// position returns the position of t, from 1, or 0 if it is beyond MaxPosition.
func (q *queue) position(t *ticket) int {
	n := 0
	for ; t != nil; t = t.prev {
		if n++; n > driver.MaxPosition {
			return 0
		}
	}
	return n
}
