package bus

import "runtime/debug"

// lanes contains the messages of a subscription by key. Messages with the same key
// are handled one after the other, and different keys in parallel. Sub.mu guards
// it.
type lanes struct {
	byKey   map[string]*lane
	ready   []*lane // with messages, and nobody at them; may have lanes that were emptied
	sorting bool    // a runner is finding out the key of the oldest message

	oldest, newest *parked // all that is parked, in the order of arrival
	len, bytes     int
}

// lane is the messages of one key.
type lane struct {
	key         string
	first, last *parked
	taken       bool // a runner handles one of its messages
	listed      bool // it is in ready
}

// parked is a message in its lane.
type parked struct {
	delivery   *delivery
	lane       *lane
	behind     *parked // in the lane
	prev, next *parked // in the order of arrival
}

// pickInOrder returns the next message whose key no runner handles. If there is
// none it puts the oldest message of the queue into its lane, and again is true:
// the caller has to look again. One runner at a time does this, which keeps the
// order of messages. The caller holds s.mu, which is given up while the key is computed.
func (s *Sub) pickInOrder(r *runner) (d *delivery, again bool) {
	ls := &s.lanes
	if l := ls.takeReady(); l != nil {
		r.lane = l
		return ls.pop(l), false
	}
	if ls.sorting || s.queue.len == 0 || s.isAtBarrier() {
		return nil, false
	}
	s.sortOne(r)
	return nil, true
}

// sortOne moves the oldest message of the queue to its lane, and the mark before
// it to the message. A message whose key cannot be computed is done with. The
// caller holds s.mu, which is given up meanwhile, and held again even if the
// goroutine is ended there.
func (s *Sub) sortOne(r *runner) {
	lost := s.queue.passMark()
	d := s.queue.pop()
	d.msg.Missed = lost
	s.lanes.beginSorting(d)
	r.current.Store(d)
	s.mu.Unlock()
	key, ok := "", false
	defer func() {
		s.mu.Lock()
		s.lanes.endSorting(d)
		switch {
		case !ok:
			s.lost = merged(d.msg.Missed, s.lost)
		case s.phase >= stopping:
			s.discarded++
			s.bus.refuse(d, ErrTerminated)
		default:
			s.lanes.park(d, key)
		}
	}()
	key, ok = s.keyOf(d)
}

// beginSorting counts the message as waiting until it is known where.
func (ls *lanes) beginSorting(d *delivery) {
	ls.sorting = true
	ls.len++
	ls.bytes += d.weight()
}

func (ls *lanes) endSorting(d *delivery) {
	ls.sorting = false
	ls.len--
	ls.bytes -= d.weight()
}

// keyOf asks the caller's function, and survives it.
func (s *Sub) keyOf(d *delivery) (key string, ok bool) {
	defer func() {
		if !ok {
			s.finish(d, &PanicError{Value: recover(), Stack: debug.Stack()})
		}
	}()
	return s.orderBy(&d.msg), true
}

func (ls *lanes) park(d *delivery, key string) {
	l := ls.byKey[key]
	if l == nil {
		l = &lane{key: key}
		if ls.byKey == nil {
			ls.byKey = make(map[string]*lane)
		}
		ls.byKey[key] = l
	}
	p := &parked{delivery: d, lane: l, prev: ls.newest}
	if l.first == nil {
		l.first = p
	} else {
		l.last.behind = p
	}
	l.last = p
	if ls.newest == nil {
		ls.oldest = p
	} else {
		ls.newest.next = p
	}
	ls.newest = p
	ls.len++
	ls.bytes += d.weight()
	ls.list(l)
}

// list puts a lane with messages into ready, unless a runner has taken it.
func (ls *lanes) list(l *lane) {
	if !l.taken && !l.listed {
		l.listed = true
		ls.ready = append(ls.ready, l)
	}
}

// takeReady takes the lane that has waited longest, or returns nil.
func (ls *lanes) takeReady() *lane {
	for len(ls.ready) > 0 {
		l := ls.ready[0]
		ls.ready[0] = nil
		ls.ready = ls.ready[1:]
		l.listed = false
		if l.first != nil {
			l.taken = true
			return l
		}
		delete(ls.byKey, l.key)
	}
	return nil
}

// pop takes the first message of a lane out.
func (ls *lanes) pop(l *lane) *delivery {
	p := l.first
	l.first = p.behind
	if l.first == nil {
		l.last = nil
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		ls.oldest = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		ls.newest = p.prev
	}
	ls.len--
	ls.bytes -= p.delivery.weight()
	return p.delivery
}

// popOldest takes the message out that has waited longest, which is the first
// of its lane, or returns nil.
func (ls *lanes) popOldest() *delivery {
	if ls.oldest == nil {
		return nil
	}
	return ls.pop(ls.oldest.lane) // leave or takeReady drops a lane that is empty now
}

// leave gives the lane back that r has taken, if any.
func (ls *lanes) leave(r *runner) {
	l := r.lane
	if l == nil {
		return
	}
	r.lane, l.taken = nil, false
	if l.first == nil {
		delete(ls.byKey, l.key)
		return
	}
	ls.list(l)
}
