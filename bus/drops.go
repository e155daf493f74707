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

// reportFirstDrop reports a loss at once. Within dropInterval of the last report,
// the timer reports it.
func (s *Sub) reportFirstDrop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops.armed || s.phase >= stopping {
		return
	}
	s.reportDropsLocked()
	s.drops.armed = true
	if s.drops.timer == nil {
		s.drops.timer = time.AfterFunc(dropInterval, s.reportMoreDrops)
		return
	}
	s.drops.timer.Reset(dropInterval)
}

// reportMoreDrops runs in the timer's goroutine.
func (s *Sub) reportMoreDrops() {
	if !s.bus.group.Begin() {
		return
	}
	defer s.bus.group.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops.armed = s.reportDropsLocked()
	if s.drops.armed {
		s.drops.timer.Reset(dropInterval)
	}
}

// reportLastDrops reports the unreported drops when the subscription ends. The
// caller holds s.mu.
func (s *Sub) reportLastDrops() {
	s.reportDropsLocked()
	if s.drops.timer != nil {
		s.drops.timer.Stop()
	}
}

// reportDropsLocked reports whether there were unreported drops.
func (s *Sub) reportDropsLocked() bool {
	n := s.dropped - s.drops.reported
	if n == 0 {
		return false
	}
	s.bus.notify(Dropped{SubID: s.subID(), Subject: s.drops.subject, Count: n})
	s.drops.reported, s.drops.subject = s.dropped, ""
	return true
}
