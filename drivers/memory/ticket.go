package memory

import (
	"time"

	"github.com/megaframework/mega/lock/driver"
)

type state int

const (
	queued state = iota
	granted
	refused
)

// ticket is a request on its way: queued, then granted or refused. One that is
// granted at once is never queued and has no done.
type ticket struct {
	entry   *entry
	holder  driver.Holder
	grant   driver.Grant
	state   state
	expires time.Time  // when granted
	lost    chan error // of the grant, closed when it is taken away

	done       chan struct{} // closed when it is no longer queued
	err        error         // why it was refused
	calls      int           // calls that wait for it: more than one if it was sent again
	prev, next *ticket       // in the queue
}

// again answers a request that was sent twice: with its grant, or with its
// place in the queue.
func (t *ticket) again() (driver.Grant, *ticket, error) {
	if t.state == granted {
		return t.grant, nil, nil
	}
	t.calls++
	return driver.Grant{}, t, nil
}

// queue is a list of tickets in the order of service.
type queue struct {
	head, tail *ticket
	len        int
}

func (q *queue) push(t *ticket) {
	t.prev, t.next = q.tail, nil
	if q.tail == nil {
		q.head = t
	} else {
		q.tail.next = t
	}
	q.tail = t
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

// position returns the place of t, from 1, or 0 if it is beyond limit: who
// gives up in a long queue should not have to walk all of it.
func (q *queue) position(t *ticket, limit int) int {
	n := 0
	for ; t != nil; t = t.prev {
		if n++; n > limit {
			return 0
		}
	}
	return n
}
