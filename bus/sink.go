package bus

import (
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
)

// sink is a Sub as its driver sees it: a queue that never blocks.
type sink Sub

var _ driver.Sink = (*sink)(nil)

// Deliver implements [driver.Sink]. It is called by whoever publishes, so it
// calls nothing but the scheduler.
func (k *sink) Deliver(m driver.Message) bool {
	s := (*Sub)(k)
	weight := weigh(&m)
	s.mu.Lock()
	if s.phase >= emptying {
		s.mu.Unlock()
		return false
	}
	s.received++
	full := !s.fits(weight)
	if full {
		s.overflow(&m, weight)
	} else {
		s.queue.push(&m, weight)
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

// fits says whether the buffer has room. The caller holds s.mu.
func (s *Sub) fits(weight int) bool {
	// Nearly always there is, whatever the runner has done since it took its
	// batch, and then its progress is not looked at: it is another core's.
	if s.queue.len()+s.batch.len+s.lanes.len < s.maxMessages && s.queue.bytes+s.batch.bytes+s.lanes.bytes+weight <= s.maxBytes {
		return true
	}
	messages, bytes := s.waiting()
	return messages == 0 || messages < s.maxMessages && bytes+weight <= s.maxBytes
}

// waiting is what waits for the handler. The caller holds s.mu.
func (s *Sub) waiting() (messages, bytes int) {
	n, size := s.batch.left()
	return s.queue.len() + s.lanes.len + n, s.queue.bytes + s.lanes.bytes + size
}

func (s *Sub) pending() int {
	n, _ := s.waiting()
	return n
}

// overflow does what the policy says with a message that does not fit. The
// caller holds s.mu.
func (s *Sub) overflow(m *driver.Message, weight int) {
	if s.drops.subject == "" {
		s.drops.subject = m.Subject
	}
	switch s.onFull {
	case DropOldest:
		s.makeRoom(weight)
		s.queue.push(m, weight)
	default:
		s.lose(m)
	}
}

// makeRoom drops the oldest until so much fits. The caller holds s.mu.
func (s *Sub) makeRoom(weight int) {
	for !s.fits(weight) {
		d := s.lanes.popOldest()
		switch {
		case d != nil:
			s.lose(d.request)
		case s.queue.len() > 0:
			m := s.queue.pop()
			s.lose(&m)
		default:
			return // what remains is in the hands of OrderBy
		}
	}
}

// lose counts a message that was dropped; the next one that is handled says so.
// The caller holds s.mu.
func (s *Sub) lose(m *driver.Message) {
	s.dropped++
	s.miss(1)
	s.bus.refuse(m, s)
}

// miss adds to what the next message that is handled says to have been lost.
// The caller holds s.mu.
func (s *Sub) miss(n int) {
	if n < 0 || s.lost < 0 {
		s.lost = -1
	} else {
		s.lost += n
	}
	s.lossy.Store(true)
}

// overflown tells a loss, or ends the subscription where that is the policy.
func (s *Sub) overflown() {
	if s.onFull != Terminate {
		s.tellFirstDrop()
		return
	}
	if s.halt(ErrTerminated) {
		s.bus.endLater(s)
	}
}

// Gap implements [driver.Sink].
func (k *sink) Gap(lost int) {
	if lost == 0 {
		return
	}
	s := (*Sub)(k)
	s.mu.Lock()
	s.miss(lost)
	if lost < 0 {
		s.gaps++
	} else {
		s.missed += uint64(lost)
	}
	s.mu.Unlock()
	s.bus.tell(Missed{Who: s.who(), Count: lost})
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
	if s.halt(classify(s.ctx, err)) {
		s.bus.endLater(s)
	}
}

// batch is what the one runner of a subscription has taken out of its queue,
// and how far it is with it.
type batch struct {
	items []driver.Message // the runner's alone
	at    int              // the next one; the runner's alone

	len, bytes int // when it was taken; guarded by the subscription's mu
	// started is how many of them were started, and their weight, in one word,
	// so that a publisher that finds the buffer nearly full can see how full.
	// The runner alone writes it.
	started atomic.Uint64
}

const (
	weightBits = 40 // a terabyte
	maxWeight  = 1<<weightBits - 1
)

// left is what has not been started. The caller holds the subscription's mu.
func (b *batch) left() (messages, bytes int) {
	if b.len == 0 {
		return 0, 0
	}
	s := b.started.Load()
	return b.len - int(s>>weightBits), b.bytes - int(s&maxWeight)
}

// next takes the next message out. The runner alone calls it.
func (b *batch) next() (m driver.Message, ok bool) {
	if b.at == len(b.items) {
		return m, false
	}
	m = b.items[b.at]
	b.items[b.at] = driver.Message{} // its data may go when it is handled
	b.at++
	b.started.Store(b.started.Load() + 1<<weightBits + uint64(weigh(&m)))
	return m, true
}

// fill takes all of a queue; the batch before is done. The caller holds the
// subscription's mu.
func (b *batch) fill(q *fifo) {
	b.len, b.bytes = q.len(), q.bytes
	b.items, b.at = q.swap(b.items), 0
	b.started.Store(0)
}

// rest forgets a batch that is done. The caller holds the subscription's mu.
func (b *batch) rest() {
	b.items, b.at = kept(b.items), 0
	b.len, b.bytes = 0, 0
}
