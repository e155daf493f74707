package limit

import (
	"container/list"
	"sync"
)

// lines are the waiting calls of this process by key, first come, first served.
// The first call of a line has the ticket of the process; the others wait for
// their turn without the backend (W5).
type lines struct {
	mu    sync.Mutex // guards the fields below and the lines
	byKey map[string]*line
}

type line struct {
	calls     list.List // of *waiting
	notBefore instant   // when the first call may be granted, as the backend estimates
	paused    *Pause    // the pause of the key at the estimate, or nil
	fault     error     // of the last request of the line, if the backend has not answered it
	since     instant   // while there is a fault: from when on the backend has not answered
	late      int       // number of calls whose time is over
}

// waiting is a place in a line.
type waiting struct {
	key   string
	line  *line
	place *list.Element
	turn  chan struct{} // closed when the call is the first of the line
	news  chan struct{} // has an element when the line has got a fault or, for a late call, an estimate
	poked chan struct{} // has an element when it should ask again now
	late  bool          // its time is over; it waits for the answers to the calls ahead
}

// join puts a call at the end of the line of key.
func (ls *lines) join(key string) *waiting {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byKey == nil {
		ls.byKey = make(map[string]*line)
	}
	w := &waiting{key: key, line: ls.byKey[key], turn: make(chan struct{}), news: make(chan struct{}, 1), poked: make(chan struct{}, 1)}
	if w.line == nil {
		w.line = new(line)
		ls.byKey[key] = w.line
	}
	w.place = w.line.calls.PushBack(w)
	if w.line.calls.Len() == 1 {
		close(w.turn)
	}
	return w
}

// leave takes w out of its line, once. It reports whether w was the last call of
// the line.
func (ls *lines) leave(w *waiting) (last bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.place == nil {
		return false
	}
	wasFirst := w.line.calls.Front() == w.place
	w.line.calls.Remove(w.place)
	w.place = nil
	if w.late {
		w.line.late--
	}
	first := w.line.calls.Front()
	if first == nil {
		delete(ls.byKey, w.key)
		return true
	}
	if wasFirst {
		w.line.notBefore, w.line.paused = 0, nil // the next call may cost less
		close(first.Value.(*waiting).turn)
	}
	return false
}

// fail records that the backend has not answered w from since on. It reports the
// first fault to the calls behind w (W11), and does nothing if w has left its line.
func (ls *lines) fail(w *waiting, err error, since instant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.place == nil {
		return
	}
	known := w.line.fault != nil
	if w.line.fault = err; known {
		return
	}
	w.line.since = since
	for e := w.place.Next(); e != nil; e = e.Next() {
		e.Value.(*waiting).notify()
	}
}

// notify lets w look at the news of its line.
func (w *waiting) notify() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// answered records that the backend has answered w.
func (ls *lines) answered(w *waiting) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.line.fault = nil
}

// fault returns from when on, and why, the backend has not answered the line of w;
// the error is nil if it has.
func (ls *lines) fault(w *waiting) (since instant, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.line.since, w.line.fault
}

// alone reports whether no other call is in the line of w.
func (ls *lines) alone(w *waiting) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.line.calls.Len() == 1
}

// estimate records when the first call of the line may be granted, and the pause of
// the key, and reports it to the late calls. It ignores an answer from before a poke,
// after which w asks again.
func (ls *lines) estimate(w *waiting, at instant, paused *Pause) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(w.poked) > 0 {
		return
	}
	w.line.notBefore, w.line.paused = at, paused
	if w.line.late == 0 {
		return
	}
	for e := w.line.calls.Front(); e != nil; e = e.Next() {
		if behind := e.Value.(*waiting); behind.late {
			behind.notify()
		}
	}
}

// overdue makes w a late call, which gets the estimates of its line as news.
func (ls *lines) overdue(w *waiting) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.late = true
	w.line.late++
}

// notBefore returns the estimate for the first call of the line of w, and the pause
// of the key then.
func (ls *lines) notBefore(w *waiting) (instant, *Pause) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.line.notBefore, w.line.paused
}

// poke makes the first call of the line of key ask again, and forgets the estimate
// for it.
func (ls *lines) poke(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byKey[key]; l != nil {
		l.notBefore, l.paused = 0, nil
		select {
		case l.calls.Front().Value.(*waiting).poked <- struct{}{}:
		default:
		}
	}
}
