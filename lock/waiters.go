package lock

import "github.com/megaframework/mega/lock/driver"

// waiter is a call that waits in a queue.
type waiter struct {
	call       call
	holder     Holder
	ready      chan outcome // receives one outcome, unless the waiter left before
	prev, next *waiter
	queued     bool
	number     uint64  // in the order of joining
	asks       bool    // sends the request of its ticket itself
	ticket     *ticket // the ticket that it sends and keeps, or nil
	pause      func()  // ends its wait for the grant of that ticket; nil before. Set under queues.mu
}

// serve gives w, which has left its queue, its outcome.
func (w *waiter) serve(o outcome) {
	w.ready <- o
	if w.pause != nil {
		w.pause()
	}
}

// list is a queue of waiters. Any waiter can be removed from it.
type list struct {
	first, last *waiter
}

func (ls *list) push(w *waiter) {
	w.queued = true
	w.prev = ls.last
	if ls.last != nil {
		ls.last.next = w
	} else {
		ls.first = w
	}
	ls.last = w
}

func (ls *list) pop() {
	w := ls.first
	ls.remove(w)
}

// take removes and returns all waiters of kind k.
func (ls *list) take(k kind) (all []*waiter) {
	for w := ls.first; w != nil; {
		next := w.next
		if w.call.kind() == k {
			ls.remove(w)
			all = append(all, w)
		}
		w = next
	}
	return all
}

func (ls *list) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		ls.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		ls.last = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
}

// ahead returns the number of waiters before w, or -1 if w is beyond MaxPosition.
func (w *waiter) ahead() (n int) {
	for p := w.prev; p != nil; p = p.prev {
		if n++; n >= driver.MaxPosition {
			return -1
		}
	}
	return n
}
