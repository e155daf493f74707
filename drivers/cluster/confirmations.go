package cluster

import (
	"fmt"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// confirmations counts the events that were passed to a line and that the hub has
// not confirmed: these may be lost when the line ends (S28). The outbox's mutex
// guards it.
type confirmations struct {
	bus       *Bus
	line      *protocol.Line // the line that the tallies belong to
	handed    tally
	confirmed tally // the part of handed that the hub has confirmed
	lost      int   // lost messages since the bus was opened
	reported  int   // the value of lost at the start of the last Flush that reported all losses before it
	mark      *time.Timer
	marking   bool // a question to the hub is due or sent
}

// tally is a number of messages and of bytes.
type tally struct{ messages, bytes int }

// markPause is the delay from an event to the question whether the hub has it.
const markPause = 20 * time.Millisecond

func (l *confirmations) open(b *Bus) {
	l.bus = b
	l.mark = time.AfterFunc(time.Hour, l.ask)
	l.mark.Stop()
}

// end forgets the line and its tallies: no hub is asked about them any more.
func (l *confirmations) end() {
	l.line, l.handed, l.confirmed, l.marking = nil, tally{}, tally{}, false
}

func (l *confirmations) add(n int) {
	l.handed.messages++
	l.handed.bytes += n
	l.remind()
}

// remind schedules a question to the hub, unless one is pending.
func (l *confirmations) remind() {
	if !l.marking && l.handed != l.confirmed {
		l.marking = true
		l.mark.Reset(markPause)
	}
}

// ask asks the hub to confirm the events that were passed to the line so far.
func (l *confirmations) ask() {
	o := &l.bus.out
	o.mu.Lock()
	line, given := l.line, l.handed
	o.mu.Unlock()
	if line == nil {
		return
	}
	l.bus.syncs.begin(line, func(err error) {
		if err == nil {
			l.confirm(line, given, true)
		}
	})
}

// confirm records that the hub has the events up to given. asked reports
// whether this is the answer to ask.
func (l *confirmations) confirm(line *protocol.Line, given tally, asked bool) {
	o := &l.bus.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.line != line {
		return
	}
	if given.messages > l.confirmed.messages {
		l.confirmed = given
	}
	if asked {
		l.marking = false
		l.remind()
	}
}

// losses returns how many events may have been lost so far, and how many of these were
// reported.
func (l *confirmations) losses() (all, reported int) {
	o := &l.bus.out
	o.mu.Lock()
	defer o.mu.Unlock()
	return l.lost, l.reported
}

// report returns an error about the losses that were not reported when this Flush began
// (S28). all and reported are the results of losses at that time, and complete reports
// whether the Flush has reached the hub.
func (l *confirmations) report(all, reported int, complete bool) error {
	o := &l.bus.out
	o.mu.Lock()
	defer o.mu.Unlock()
	lost := l.lost - reported
	if complete {
		l.reported = max(l.reported, all)
	}
	if lost == 0 {
		return nil
	}
	return fmt.Errorf("%w: the hub ended before it confirmed %d messages", driver.ErrDisconnected, lost)
}

// cut handles the end of the line, and returns the number of events that may be
// lost.
func (l *confirmations) cut() tally {
	may := tally{l.handed.messages - l.confirmed.messages, l.handed.bytes - l.confirmed.bytes}
	l.end()
	l.lost += may.messages
	return may
}
