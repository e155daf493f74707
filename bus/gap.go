package bus

import (
	"math/rand/v2"
	"time"
)

// The pauses after calls of OnGap that fail.
const (
	firstRepair = time.Second
	lastRepair  = time.Minute
)

// gap is the state of a subscription's calls of OnGap. The subscription's mu
// guards it.
type gap struct {
	due     int  // lost right before the next message that starts; 0 is no gap
	owed    int  // lost before a call that failed, for the next one
	running bool // OnGap is being called
	pausing bool // the last call failed, and the timer has not fired
	failed  int  // calls in a row
	ended   bool // no call starts any more
	timer   *time.Timer
}

// merged returns the loss of two adjacent marks, where -1 is an unknown number.
func merged(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

func newMark(lost int) *delivery { return &delivery{mark: true, msg: Msg{Missed: lost}} }

// loseNext records a loss right before the next message that starts. The caller
// holds s.mu.
func (s *Sub) loseNext(n int) {
	s.lost = merged(s.lost, n)
	switch g := &s.gap; {
	case s.onGap == nil || g.ended:
	case g.pausing: // messages go on meanwhile
		g.owed = merged(g.owed, n)
	default:
		g.due = merged(g.due, n)
	}
}

// reachMark takes the mark at the head of the queue, if all messages before it
// have started. The caller holds s.mu.
func (s *Sub) reachMark() {
	if s.lanes.len == 0 {
		s.loseNext(s.queue.passMark())
	}
}

// isAtBarrier reports whether a mark at the head of the queue holds up the
// messages behind it. The caller holds s.mu.
func (s *Sub) isAtBarrier() bool { return s.onGap != nil && s.queue.atMark() }

// isBarred reports whether no message may start: OnGap is being called, or is
// due and waits, for earlier handlers, for the end of Subscribe or for the backend. If
// OnGap fetched the state before the subscription is active, it would miss the
// messages that are published in between. The caller holds s.mu.
func (s *Sub) isBarred() bool {
	g := &s.gap
	if g.running {
		return true
	}
	return g.due != 0 && (s.busy > 0 || s.registration == nil || g.due < 0 && s.phase == active && s.bus.link.down.Load())
}

// beginRepair returns the mark for the call of OnGap that is due. The caller
// holds s.mu.
func (s *Sub) beginRepair() *delivery {
	d := newMark(s.gap.due)
	d.sub = s
	d.msg.Subject, d.msg.bus, d.msg.delivery = s.pattern, s.bus, d
	s.gap.due, s.gap.running = 0, true
	return d
}

// repair calls OnGap. A panic counts as an error of the call, unless s.crash lets it
// end the process.
func (s *Sub) repair(r *runner, d *delivery) {
	var err error
	returned := false
	defer func() {
		if !returned {
			err = s.survive(recover())
		}
		s.endRepair(d.msg.Missed, err)
	}()
	if !s.stopped.Load() && s.ctx.Err() == nil {
		r.current.Store(d)
		if err = s.onGap(d, d.msg.Missed); err != nil { // S10
			err, _ = examined(err)
		}
	}
	returned = true
}

// endRepair lets messages start again. A call that has failed is repeated after
// a pause.
func (s *Sub) endRepair(missed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &s.gap
	g.running = false
	if err == nil {
		g.failed = 0
		return
	}
	if g.ended {
		s.bus.notify(GapFailed{SubID: s.subID(), Missed: missed, Err: err})
		return
	}
	pause := g.pause()
	s.bus.notify(GapFailed{SubID: s.subID(), Missed: missed, Err: err, Again: pause})
	g.pausing = true
	g.owed, g.due = merged(merged(g.owed, missed), g.due), 0
	if g.timer == nil {
		g.timer = time.AfterFunc(pause, s.repairAgain)
		return
	}
	g.timer.Reset(pause)
}

// pause returns how long to wait after one more failure. A random part keeps
// the processes of a fleet from fetching at the same moment.
func (g *gap) pause() time.Duration {
	const most = 6 // doublings
	d := firstRepair << min(g.failed, most)
	g.failed++
	return min(d+rand.N(d/4), lastRepair)
}

// repairAgain runs in the timer's goroutine.
func (s *Sub) repairAgain() {
	if !s.bus.group.Begin() {
		return
	}
	defer s.bus.group.Done()
	s.mu.Lock()
	g := &s.gap
	if g.pausing && !g.ended {
		g.pausing, g.due, g.owed = false, g.owed, 0
	}
	s.mu.Unlock()
	s.wake()
}

// end stops the calls of OnGap. The caller holds s.mu.
func (g *gap) end() {
	g.ended, g.due = true, 0
	if g.timer != nil {
		g.timer.Stop()
	}
}

// wake starts a runner if there is work that has waited for the backend, or for
// the end of a pause.
func (s *Sub) wake() {
	if s.onGap == nil {
		return
	}
	s.mu.Lock()
	r := s.hire()
	s.mu.Unlock()
	if r != nil {
		go s.run(r)
	}
}
