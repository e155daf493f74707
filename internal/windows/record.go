package windows

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

// Record is the state of a key, or a part of it, without the requests that wait:
// what another table needs to go on in place of this one. Times are microseconds
// on the clock that both tables share.
type Record struct {
	Key      string         `json:"key"`
	Logs     []LogRecord    `json:"logs,omitempty"`
	Tickets  []TicketRecord `json:"tickets,omitempty"`
	PausedTo int64          `json:"paused_to,omitempty"`
	Pause    driver.Pause   `json:"pause,omitzero"`

	// Reset is the time of the last Reset: a record with an earlier one is older. Copies
	// remember it until ResetUntil, when what was before it has left every window.
	Reset      int64 `json:"reset,omitempty"`
	ResetUntil int64 `json:"reset_until,omitempty"`
}

// LogRecord is the log of one Per.
type LogRecord struct {
	Per     int64        `json:"per"`
	N       int64        `json:"n"`
	Last    int64        `json:"last"`
	Granted int64        `json:"granted"`
	Smooth  bool         `json:"smooth,omitempty"` // the last grant was spaced
	Gone    int64        `json:"gone,omitempty"`   // grants until then have left the window
	Grants  []MarkRecord `json:"grants"`           // in the order of their times
	// Returned are the units that grants have given back, and that Grants does
	// not contain any more.
	Returned []MarkRecord `json:"returned,omitempty"`
}

// MarkRecord is the units that were granted at a time, or given back of them.
type MarkRecord struct {
	At    int64 `json:"at"`
	Units int64 `json:"units"`
}

// TicketRecord is the memory of the last grant of a ticket.
type TicketRecord struct {
	ID    string `json:"id"`
	Seq   uint64 `json:"seq"`
	Cost  int64  `json:"cost"`
	At    int64  `json:"at"`
	Until int64  `json:"until"`
}

// Learn records a grant of r at the time at, which another table has made. A
// grant of a ticket is recorded once.
func (t *Table) Learn(r *driver.Request, at time.Time) error {
	if r.Cost == 0 { // a look
		return nil
	}
	return t.change(r.Key, func(e *entry, _ int64) {
		if known := e.known(r.Ticket); known != nil && !known.waiting && known.seq >= r.Seq {
			return
		}
		when := at.UnixMicro()
		for _, rate := range r.Rates {
			if l := e.log(rate.Per.Microseconds()); l != nil {
				when = max(when, l.last) // two grants may be learned in another order; later is safe (W1)
			}
		}
		e.grant(r, when)
	})
}

// SettleAt is Settle at the time at of another table: a debt belongs to it.
func (t *Table) SettleAt(s *driver.Settlement, at time.Time) error {
	return t.change(s.Key, func(e *entry, _ int64) { e.correct(s, at.UnixMicro()) })
}

// PauseAt is Pause at the time at of another table.
func (t *Table) PauseAt(key string, p driver.Pause, at time.Time) error {
	return t.change(key, func(e *entry, _ int64) { e.stop(p, at.UnixMicro()) })
}

// ResetAt is Reset at the time at of another table. It is remembered until nothing that
// it has forgotten would count: a copy from before it does not undo it (W13).
func (t *Table) ResetAt(key string, at time.Time) error {
	return t.change(key, func(e *entry, _ int64) {
		e.reset, e.resetUntil = at.UnixMicro(), e.due()+e.lead
		e.logs, e.pausedTo = nil, 0
	})
}

// Records yields the records of all keys in use, in no order: one or more of each
// key with grants, a pause or the memory of a ticket. The records of one key belong
// to one instant; other calls may change the next key meanwhile.
func (t *Table) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for i := range t.shards {
			for _, r := range t.shards[i].records() {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func (s *shard) records() (all []Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clock := s.now()
	for _, e := range s.entries {
		all = e.records(all, clock)
	}
	return all
}

// RecordsOf returns the records of one key.
func (t *Table) RecordsOf(key string) []Record {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		return e.records(nil, s.now())
	}
	return nil
}

// Keys returns all keys in use, in no order.
func (t *Table) Keys() (keys []string) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		keys = slices.AppendSeq(keys, maps.Keys(s.entries))
		s.mu.Unlock()
	}
	return keys
}

// records appends the records of the key: one, unless it has so many logs that
// readers would refuse the record.
func (e *entry) records(all []Record, clock int64) []Record {
	now := e.settle(clock)
	r := Record{Key: e.key, Reset: e.reset, ResetUntil: e.resetUntil}
	for logs := range slices.Chunk(e.logs, driver.MaxRates) {
		if len(r.Logs) > 0 {
			all = append(all, r)
		}
		r.Logs = make([]LogRecord, 0, len(logs))
		for i := range logs {
			r.Logs = append(r.Logs, logs[i].record())
		}
	}
	if e.pausedTo > now {
		r.PausedTo, r.Pause = e.pausedTo, e.pause
	}
	for _, t := range e.tickets {
		if !t.waiting {
			r.Tickets = append(r.Tickets, TicketRecord{t.id, t.seq, t.cost, t.at, t.until})
		}
	}
	if len(r.Logs)+len(r.Tickets) > 0 || r.PausedTo != 0 || r.Reset != 0 {
		all = append(all, r)
	}
	return all
}

func (l *log) record() LogRecord {
	r := LogRecord{
		Per: l.per, N: l.n, Last: l.last, Granted: l.granted, Smooth: l.smooth, Gone: l.gone, Returned: slices.Clone(l.returned),
		Grants: make([]MarkRecord, 0, len(l.marks)-l.first),
	}
	sum := l.base
	for _, m := range l.marks[l.first:] {
		r.Grants = append(r.Grants, MarkRecord{m.at, m.sum - sum})
		sum = m.sum
	}
	return r
}

// Restore adds what r has to its key, and reports whether that was anything new.
// Two records of one key are copies of one history, of which each may lack the
// end: an entry of one of them counts, an entry of both counts once, and an entry from
// before a Reset in one of them does not count.
func (t *Table) Restore(r Record) (news bool, err error) {
	err = t.change(r.Key, func(e *entry, now int64) {
		if r.ResetUntil <= now {
			r.Reset = 0
		}
		switch {
		case r.Reset > e.reset:
			e.forgetUntil(r.Reset)
			e.reset, e.resetUntil, news = r.Reset, r.ResetUntil, true
		case r.Reset < e.reset: // the copy lacks the Reset, and so all that followed
			r.Logs, r.PausedTo = nil, 0
		}
		for _, from := range r.Logs {
			news = e.merge(from) || news
		}
		for _, x := range r.Tickets {
			news = e.mergeTicket(ticket{id: x.ID, seq: x.Seq, cost: x.Cost, at: x.At, until: x.Until}) || news
		}
		if r.PausedTo > max(e.pausedTo, now) {
			e.pausedTo, e.pause, news = r.PausedTo, r.Pause, true
		}
		e.settle(now - e.lead)
	})
	return news, err
}

// forgetUntil forgets what was granted, and the pause that was made, until at. Above
// N = 128 the grants of the last Per/128 stay, because their times are rounded up.
func (e *entry) forgetUntil(at int64) {
	before := func(granted, _ int64) bool { return granted <= at }
	for i := range e.logs {
		l := &e.logs[i]
		granted, returned := l.record().sums()
		maps.DeleteFunc(granted, before)
		maps.DeleteFunc(returned, before)
		l.gone = max(l.gone, at)
		l.rebuild(granted, returned)
	}
	e.logs = slices.DeleteFunc(e.logs, func(l log) bool { return l.last <= at && l.used() == 0 })
	if e.pausedTo-e.pause.Left.Microseconds() <= at {
		e.pausedTo = 0
	}
}

// mergeTicket adds the memory of a ticket unless it or a later one is known. A
// request is withdrawn after its grant.
func (e *entry) mergeTicket(x ticket) (news bool) {
	if known := e.find(x.id); known != nil {
		if x.seq < known.seq || x.seq == known.seq && !known.waiting && (x.at != 0 || known.at == 0) {
			return false
		}
		e.leave(x.id)
	}
	e.tickets = append(e.tickets, x)
	return true
}

// merge adds the grants of a record. Grants of one time are the same grants.
// Their number and the number of units that were given back only ever grow, so
// the greater one of each is the later one.
func (e *entry) merge(from LogRecord) (news bool) {
	l := e.log(from.Per)
	if l == nil {
		e.logs = append(e.logs, log{per: from.Per, gone: from.Gone})
		l = &e.logs[len(e.logs)-1]
	}
	granted, returned := l.record().sums()
	moreGranted, moreReturned := from.sums()
	news = raise(granted, moreGranted)
	news = raise(returned, moreReturned) || news
	switch {
	case from.Last > l.last || l.n == 0:
		l.n, l.last, l.granted, l.smooth = from.N, from.Last, from.Granted, from.Smooth
	case from.Last == l.last:
		l.granted = min(l.granted, from.Granted) // one of them may lack what was given back
	}
	if news {
		l.gone = min(l.gone, from.Gone)
		l.rebuild(granted, returned)
	}
	return news
}

// sums returns the number of units that were granted at each time, and of those
// that were given back.
func (r LogRecord) sums() (granted, returned map[int64]int64) {
	granted, returned = make(map[int64]int64), make(map[int64]int64)
	for _, m := range r.Grants {
		granted[m.At] = m.Units
	}
	for _, m := range r.Returned {
		granted[m.At] += m.Units
		returned[m.At] = m.Units
	}
	return granted, returned
}

// raise sets the numbers of sums that are greater in more, and reports whether
// there are any.
func raise(sums, more map[int64]int64) (any bool) {
	for at, units := range more {
		if units > sums[at] {
			sums[at], any = units, true
		}
	}
	return any
}

// rebuild replaces the marks.
func (l *log) rebuild(granted, returned map[int64]int64) {
	l.marks, l.first, l.base, l.total, l.returned = nil, 0, 0, 0, nil
	for i, at := range slices.Sorted(maps.Keys(granted)) {
		if i == 0 && l.gone == 0 { // a record of an earlier build
			l.gone = at - 1
		}
		if units := granted[at] - returned[at]; units > 0 {
			l.total += units
			l.marks = append(l.marks, mark{at, l.total})
		}
		if returned[at] > 0 {
			l.returned = append(l.returned, MarkRecord{at, returned[at]})
		}
	}
}
