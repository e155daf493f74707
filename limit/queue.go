package limit

import (
	"container/list"
	"sync"
)

// queues are the waiting calls of this process by key, first come, first served.
// The first call of a queue has the ticket of the process; the others wait for
// their turn without the backend (W5).
type queues struct {
	mu    sync.Mutex // guards the fields below and the queues
	byKey map[string]*queue
}

type queue struct {
	calls     list.List // of *waiting
	notBefore instant   // when the first call may be granted, as the backend estimates
	paused    *Pause    // the pause of the key at the estimate, or nil
	fault     error     // of the last request of the queue, if the backend has not answered it
	since     instant   // while there is a fault: from when on the backend has not answered
	late      int       // number of calls whose time is over
}

// waiting is a place in a queue.
type waiting struct {
	key   string
	queue *queue
	place *list.Element
	turn  chan struct{} // closed when the call is the first of the queue
	news  chan struct{} // has an element when the queue has got a fault or, for a late call, an estimate
	poked chan struct{} // has an element when it should ask again now
	late  bool          // its time is over; it waits for the answers to the calls ahead
}

// join puts a call at the end of the queue of key.
func (qs *queues) join(key string) *waiting {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.byKey == nil {
		qs.byKey = make(map[string]*queue)
	}
	w := &waiting{key: key, queue: qs.byKey[key], turn: make(chan struct{}), news: make(chan struct{}, 1), poked: make(chan struct{}, 1)}
	if w.queue == nil {
		w.queue = new(queue)
		qs.byKey[key] = w.queue
	}
	w.place = w.queue.calls.PushBack(w)
	if w.queue.calls.Len() == 1 {
		close(w.turn)
	}
	return w
}

// leave takes w out of its queue, once. It reports whether w was the last call of
// the queue.
func (qs *queues) leave(w *waiting) (last bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.place == nil {
		return false
	}
	wasFirst := w.queue.calls.Front() == w.place
	w.queue.calls.Remove(w.place)
	w.place = nil
	if w.late {
		w.queue.late--
	}
	first := w.queue.calls.Front()
	if first == nil {
		delete(qs.byKey, w.key)
		return true
	}
	if wasFirst {
		w.queue.notBefore, w.queue.paused = 0, nil // the next call may cost less
		close(first.Value.(*waiting).turn)
	}
	return false
}

// fail records that the backend has not answered w from since on. It reports the
// first fault to the calls behind w (W11), and does nothing if w has left its queue.
func (qs *queues) fail(w *waiting, err error, since instant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.place == nil {
		return
	}
	known := w.queue.fault != nil
	if w.queue.fault = err; known {
		return
	}
	w.queue.since = since
	for e := w.place.Next(); e != nil; e = e.Next() {
		e.Value.(*waiting).notify()
	}
}

// notify lets w look at the news of its queue.
func (w *waiting) notify() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// answered records that the backend has answered w.
func (qs *queues) answered(w *waiting) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w.queue.fault = nil
}

// fault returns from when on, and why, the backend has not answered the queue of w;
// the error is nil if it has.
func (qs *queues) fault(w *waiting) (since instant, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.queue.since, w.queue.fault
}

// alone reports whether no other call is in the queue of w.
func (qs *queues) alone(w *waiting) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.queue.calls.Len() == 1
}

// estimate records when the first call of the queue may be granted, and the pause of
// the key, and reports it to the late calls. It ignores an answer from before a poke,
// after which w asks again.
func (qs *queues) estimate(w *waiting, at instant, paused *Pause) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if len(w.poked) > 0 {
		return
	}
	w.queue.notBefore, w.queue.paused = at, paused
	if w.queue.late == 0 {
		return
	}
	for e := w.queue.calls.Front(); e != nil; e = e.Next() {
		if behind := e.Value.(*waiting); behind.late {
			behind.notify()
		}
	}
}

// overdue makes w a late call, which gets the estimates of its queue as news.
func (qs *queues) overdue(w *waiting) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w.late = true
	w.queue.late++
}

// notBefore returns the estimate for the first call of the queue of w, and the pause
// of the key then.
func (qs *queues) notBefore(w *waiting) (instant, *Pause) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.queue.notBefore, w.queue.paused
}

// poke makes the first call of the queue of key ask again, and forgets the estimate
// for it.
func (qs *queues) poke(key string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[key]; q != nil {
		q.notBefore, q.paused = 0, nil
		select {
		case q.calls.Front().Value.(*waiting).poked <- struct{}{}:
		default:
		}
	}
}
