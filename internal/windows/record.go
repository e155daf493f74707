package windows

import (
	"slices"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

// Record is the state of a key without the requests that wait: what another
// table needs to go on in place of this one. Times are microseconds on the clock
// that both tables share.
type Record struct {
	Key      string         `json:"key"`
	Logs     []LogRecord    `json:"logs,omitempty"`
	Tickets  []TicketRecord `json:"tickets,omitempty"`
	PausedTo int64          `json:"paused_to,omitempty"`
	Pause    driver.Pause   `json:"pause,omitzero"`
}

// LogRecord is the log of one Per.
type LogRecord struct {
	Per     int64        `json:"per"`
	N       int64        `json:"n"`
	Last    int64        `json:"last"`
	Granted int64        `json:"granted"`
	Grants  []MarkRecord `json:"grants"` // in the order of their times
}

// MarkRecord is the units that were granted at a time.
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

// Records returns a record of each key in use, in no order.
func (t *Table) Records() (all []Record) {
	for i := range t.shards {
		all = t.shards[i].records(all)
	}
	return all
}

func (s *shard) records(all []Record) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	clock := s.now()
	for _, e := range s.entries {
		now := e.settle(clock)
		r := Record{Key: e.key}
		if e.pausedTo > now {
			r.PausedTo, r.Pause = e.pausedTo, e.pause
		}
		for i := range e.logs {
			r.Logs = append(r.Logs, e.logs[i].record())
		}
		for _, t := range e.tickets {
			if !t.waiting {
				r.Tickets = append(r.Tickets, TicketRecord{t.id, t.seq, t.cost, t.at, t.until})
			}
		}
		all = append(all, r)
	}
	return all
}

func (l *log) record() LogRecord {
	r := LogRecord{Per: l.per, N: l.n, Last: l.last, Granted: l.granted, Grants: make([]MarkRecord, 0, len(l.marks)-l.first)}
	sum := l.base
	for _, m := range l.marks[l.first:] {
		r.Grants = append(r.Grants, MarkRecord{m.at, m.sum - sum})
		sum = m.sum
	}
	return r
}

// Restore adds what r has to its key. Two records of one key are copies of one
// history, of which each may lack a part: a grant that is in one of them counts,
// and a grant that is in both counts once.
func (t *Table) Restore(r Record) error {
	return t.change(r.Key, func(e *entry, now int64) {
		for _, from := range r.Logs {
			e.merge(from)
		}
		for _, x := range r.Tickets {
			if known := e.find(x.ID); known == nil {
				e.tickets = append(e.tickets, ticket{id: x.ID, seq: x.Seq, cost: x.Cost, at: x.At, until: x.Until})
			}
		}
		if r.PausedTo > max(e.pausedTo, now) {
			e.pausedTo, e.pause = r.PausedTo, r.Pause
		}
		e.settle(now - e.lead)
	})
}

// merge adds the grants of a record. Grants of one time are the same grants, and
// the greater number is the one before a refund.
func (e *entry) merge(from LogRecord) {
	l := e.log(from.Per)
	if l == nil {
		e.logs = append(e.logs, log{per: from.Per})
		l = &e.logs[len(e.logs)-1]
	}
	units := map[int64]int64{}
	for _, m := range slices.Concat(l.record().Grants, from.Grants) {
		units[m.At] = max(units[m.At], m.Units)
	}
	times := make([]int64, 0, len(units))
	for at := range units {
		times = append(times, at)
	}
	slices.Sort(times)
	l.marks, l.first, l.base, l.total, l.gone = nil, 0, 0, 0, 0
	for _, at := range times {
		l.total += units[at]
		l.marks = append(l.marks, mark{at, l.total})
	}
	if len(times) > 0 {
		l.gone = times[0] - 1
	}
	if from.Last >= l.last {
		l.n, l.last, l.granted = from.N, from.Last, from.Granted
	}
}
