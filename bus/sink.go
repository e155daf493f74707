package bus

import "github.com/megaframework/mega/bus/driver"

// sink is a Sub as its driver sees it: a queue that never blocks.
type sink Sub

var _ driver.Sink = (*sink)(nil)

// Deliver implements [driver.Sink]. The publisher's goroutine calls it, so it
// calls nothing but the scheduler.
func (k *sink) Deliver(m driver.Message) bool {
	s := (*Sub)(k)
	if s.stopped.Load() {
		return false
	}
	d := s.newDelivery(&m)
	s.mu.Lock()
	if s.phase >= emptying {
		s.mu.Unlock()
		return false
	}
	s.received++
	full := !s.fits(d.weight())
	if full {
		s.overflow(d)
	} else {
		s.queue.push(d)
	}
	r := s.hire()
	s.mu.Unlock()
	if r != nil {
		go s.run(r)
	}
	if full {
		s.overflown()
	}
	return true
}

// fits reports whether the buffer has room. The caller holds s.mu.
func (s *Sub) fits(weight int) bool {
	// The buffer nearly always has room even if the runner has started nothing
	// of its batch. The check of its progress is left to the other case, because
	// that counter is in the cache of another core.
	if s.queue.len+s.batch.len+s.lanes.len < s.maxMessages && s.queue.bytes+s.batch.bytes+s.lanes.bytes+weight <= s.maxBytes {
		return true
	}
	messages, bytes := s.waiting()
	return messages == 0 || messages < s.maxMessages && bytes+weight <= s.maxBytes
}

// waiting returns the number and size of messages that wait for the handler. The
// caller holds s.mu.
func (s *Sub) waiting() (messages, bytes int) {
	n, size := s.batch.left()
	return s.queue.len + s.lanes.len + n, s.queue.bytes + s.lanes.bytes + size
}

func (s *Sub) pending() int {
	n, _ := s.waiting()
	return n
}

// overflow applies the policy to a message that does not fit. The caller holds
// s.mu.
func (s *Sub) overflow(d *delivery) {
	if s.onFull != DropOldest {
		s.queue.mark(1)
		s.countDrop(d)
		return
	}
	for !s.fits(d.weight()) {
		oldest := s.loseOldest()
		if oldest == nil {
			break // the remaining messages are being sorted by OrderBy
		}
		s.countDrop(oldest)
	}
	s.queue.push(d)
}

// loseOldest takes the message out that has waited longest, if there is one,
// and marks its place. The caller holds s.mu.
func (s *Sub) loseOldest() *delivery {
	d := s.lanes.popOldest()
	if d == nil {
		return s.queue.lose()
	}
	s.lost = merged(s.lost, d.msg.Missed)
	s.loseNext(1)
	return d
}

// countDrop counts a message that was dropped, and refuses it if it is a
// request. The caller holds s.mu.
func (s *Sub) countDrop(d *delivery) {
	if s.drops.subject == "" {
		s.drops.subject = d.msg.Subject
	}
	s.dropped++ // S4: a drop is counted
	s.bus.refuse(d, ErrOverloaded)
}

// overflown reports a loss, or ends the subscription if that is the policy.
func (s *Sub) overflown() {
	if s.onFull != Terminate {
		s.reportFirstDrop()
		return
	}
	s.abort(ErrTerminated)
}

// Gap implements [driver.Sink].
func (k *sink) Gap(lost int) {
	if lost == 0 {
		return
	}
	s := (*Sub)(k)
	s.mu.Lock()
	s.addGap(lost)
	retired := s.retired
	r := s.hire()
	s.mu.Unlock()
	if r != nil {
		go s.run(r)
	}
	if retired {
		s.bus.addGap(lost)
	}
	s.bus.notify(Missed{SubID: s.subID(), Count: lost})
}

// addGap counts lost messages and marks their place. The caller holds s.mu.
func (s *Sub) addGap(lost int) {
	countGap(lost, &s.missed, &s.gaps)
	if s.phase < emptying {
		s.queue.mark(lost) // S10
	}
}

// addGap counts lost messages of a subscription that is over.
func (b *Bus) addGap(lost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	countGap(lost, &b.gone.Missed, &b.gone.Gaps)
}

func countGap(lost int, missed, gaps *uint64) {
	if lost < 0 {
		*gaps++
		return
	}
	*missed += uint64(lost)
}

// Load implements [driver.Sink].
func (k *sink) Load() int {
	s := (*Sub)(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending() + len(s.runners) - s.idle
}

// Fail implements [driver.Sink].
func (k *sink) Fail(err error) {
	s := (*Sub)(k)
	s.abort(classify(s.ctx, err)) // S27
}

// abort ends a subscription that nobody has stopped. The driver, which may be
// the caller, learns of it later.
func (s *Sub) abort(why error) {
	if s.halt(why) {
		s.bus.notify(Ended{SubID: s.subID(), Err: why})
		s.bus.endLater(s)
	}
}
