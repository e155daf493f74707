package bus

import "time"

// dropInterval is how often a subscription that loses messages says so at most.
const dropInterval = time.Second

// drops is what was told of the messages that a subscription has dropped. The
// subscription's mu guards it.
type drops struct {
	subject string // of the first one that has not been told
	told    uint64 // how many were told
	timer   *time.Timer
	armed   bool // the timer will look for more
}

// tellFirstDrop tells a loss at once, unless one was told a short while ago;
// then the timer does.
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
	if !s.bus.crew.begin() {
		return
	}
	defer s.bus.crew.done()
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

// tellLastDrops tells what has not been told when the subscription ends. The
// caller holds s.mu.
func (s *Sub) tellLastDrops() {
	s.tellDropsLocked()
	s.drops.armed = false
	if s.drops.timer != nil {
		s.drops.timer.Stop()
	}
}

// tellDropsLocked says whether there was anything to tell.
func (s *Sub) tellDropsLocked() bool {
	n := s.dropped - s.drops.told
	if n == 0 {
		return false
	}
	s.bus.tell(Dropped{Who: s.who(), Subject: s.drops.subject, Count: n})
	s.drops.told, s.drops.subject = s.dropped, ""
	return true
}
