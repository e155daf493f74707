package bus

import "time"

// dropInterval is the shortest time between two Dropped events of a
// subscription.
const dropInterval = time.Second

// drops records which dropped messages of a subscription were reported. The
// subscription's mu guards it.
type drops struct {
	subject  string // of the first unreported drop
	reported uint64 // number of reported drops
	timer    *time.Timer
	armed    bool // the timer will look for more
}

// tellFirstDrop reports a loss at once. Within dropInterval of the last report,
// the timer reports it.
func (s *Sub) tellFirstDrop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops.armed || s.phase >= stopping {
		return
	}
	s.tellDropsLocked()
	s.drops.armed = true
	if s.drops.timer == nil {
		s.drops.timer = time.AfterFunc(dropInterval, s.tellMoreDrops)
		return
	}
	s.drops.timer.Reset(dropInterval)
}

// tellMoreDrops runs in the timer's goroutine.
func (s *Sub) tellMoreDrops() {
	if !s.bus.group.Begin() {
		return
	}
	defer s.bus.group.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.drops.armed {
		return
	}
	s.drops.armed = s.tellDropsLocked()
	if s.drops.armed {
		s.drops.timer.Reset(dropInterval)
	}
}

// tellLastDrops reports the unreported drops when the subscription ends. The
// caller holds s.mu.
func (s *Sub) tellLastDrops() {
	s.tellDropsLocked()
	s.drops.armed = false
	if s.drops.timer != nil {
		s.drops.timer.Stop()
	}
}

// tellDropsLocked reports whether there were unreported drops.
func (s *Sub) tellDropsLocked() bool {
	n := s.dropped - s.drops.reported
	if n == 0 {
		return false
	}
	s.bus.notify(Dropped{Who: s.who(), Subject: s.drops.subject, Count: n})
	s.drops.reported, s.drops.subject = s.dropped, ""
	return true
}
