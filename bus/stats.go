package bus

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Stats holds the counters of a [Bus] since New. The numbers are read one after
// the other without a common lock, so each is correct, but not their sums.
type Stats struct {
	Driver string `json:"driver"`
	State  State  `json:"state"`
	Cuts   uint64 `json:"cuts"` // how often the backend was lost

	Published uint64 `json:"published"`
	Lost      uint64 `json:"lost"`       // published messages that may not have arrived, an upper bound
	LostBytes uint64 `json:"lost_bytes"` // their size
	Refused   uint64 `json:"refused"`    // published messages that the backend refused
	Expired   uint64 `json:"expired"`    // published messages that expired before they were sent

	Requested    uint64 `json:"requested"`
	InFlight     int    `json:"in_flight"`     // requests waiting now
	NoResponders uint64 `json:"no_responders"` // requests without a responder
	TimedOut     uint64 `json:"timed_out"`     // requests whose time was over before an answer came
	Late         uint64 `json:"late"`          // answers without a waiting request, second answers included

	Unreported uint64 `json:"unreported"` // events dropped because the observer was too slow

	// Total is the sum over all subscriptions, those that have ended included.
	Total SubStats `json:"total"`
	// Subs has the subscriptions that have not ended, by name.
	Subs []SubStats `json:"subs"`
}

// SubStats holds the counters of a subscription. At rest, Received is the sum
// of Handled, Dropped, Expired and Discarded.
type SubStats struct {
	SubID

	Received  uint64 `json:"received"`
	Handled   uint64 `json:"handled"`
	Failed    uint64 `json:"failed"`    // of Handled, those with an error
	Panicked  uint64 `json:"panicked"`  // of Failed, those with a panic
	Dropped   uint64 `json:"dropped"`   // because the buffer was full
	Expired   uint64 `json:"expired"`   // before they were handled
	Discarded uint64 `json:"discarded"` // because the subscription was stopped

	Missed uint64 `json:"missed"` // lost on the way to the subscription
	Gaps   uint64 `json:"gaps"`   // losses of an unknown number of messages

	Pending      int `json:"pending"` // waiting now
	PendingBytes int `json:"pending_bytes"`
	Running      int `json:"running"` // being handled now
}

func (t *SubStats) add(s SubStats) {
	t.Received += s.Received
	t.Handled += s.Handled
	t.Failed += s.Failed
	t.Panicked += s.Panicked
	t.Dropped += s.Dropped
	t.Expired += s.Expired
	t.Discarded += s.Discarded
	t.Missed += s.Missed
	t.Gaps += s.Gaps
	t.Pending += s.Pending
	t.PendingBytes += s.PendingBytes
	t.Running += s.Running
}

// counters are the live numbers behind Stats that are of no subscription.
type counters struct {
	published, requested, noResponders, timedOut atomic.Uint64
	lost, lostBytes, refused, expired            atomic.Uint64
}

// Stats returns the counters of the Bus and its subscriptions. It never blocks.
func (b *Bus) Stats() Stats {
	subs, gone := b.enrolled()
	st := Stats{
		Driver:       b.info.Name,
		Published:    b.counters.published.Load(),
		Lost:         b.counters.lost.Load(),
		LostBytes:    b.counters.lostBytes.Load(),
		Refused:      b.counters.refused.Load(),
		Expired:      b.counters.expired.Load(),
		Requested:    b.counters.requested.Load(),
		NoResponders: b.counters.noResponders.Load(),
		TimedOut:     b.counters.timedOut.Load(),
		Total:        gone,
	}
	for _, s := range subs {
		one := s.Stats()
		st.Total.add(one)
		st.Subs = append(st.Subs, one)
	}
	slices.SortFunc(st.Subs, func(a, b SubStats) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Site, b.Site)) })
	st.State, _ = b.State()
	st.Cuts = b.link.count()
	st.InFlight, st.Late = b.calls.count()
	st.Unreported = b.notifier.missed()
	return st
}

// enrolled returns the subscriptions that have not ended, and the numbers of the
// others.
func (b *Bus) enrolled() ([]*Sub, SubStats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*Sub, 0, len(b.subs))
	for s := range b.subs {
		all = append(all, s)
	}
	return all, b.gone
}

func (l *link) count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cuts
}

func (cs *calls) count() (inFlight int, late uint64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.byID), cs.late
}

func (t *notifier) missed() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unreported
}

// Stats returns the counters of the subscription.
func (s *Sub) Stats() SubStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats()
}

// stats needs s.mu held.
func (s *Sub) stats() SubStats {
	panicked := s.panicked.Load() // once, so that Failed less Panicked never decreases
	st := SubStats{
		SubID:     s.subID(),
		Received:  s.received,
		Handled:   s.handled.Load(),
		Failed:    s.erred.Load() + panicked,
		Panicked:  panicked,
		Dropped:   s.dropped,
		Expired:   s.expired.Load(),
		Discarded: s.discarded,
		Missed:    s.missed,
		Gaps:      s.gaps,
		Running:   len(s.runners) - s.idle,
	}
	st.Pending, st.PendingBytes = s.waiting()
	return st
}
