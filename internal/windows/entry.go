package windows

import (
	"cmp"
	"slices"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

// entry is the state of one key. Its methods expect its shard locked.
type entry struct {
	key     string
	kept    bool  // in the map of its shard
	logs    []log // one for each Per
	tickets []ticket

	latest int64 // greatest time of any operation
	lead   int64 // of the key's time over the clock, after a step back

	pausedTo int64
	pause    driver.Pause

	// reset is the time of the last ResetAt. After resetUntil nothing from before it
	// counts in any copy, and both are 0.
	reset, resetUntil int64
}

// ticket is the place of a process in the queue of a key, or the memory of the
// last grant that it had. Queued tickets are in the order of service.
type ticket struct {
	id      string
	seq     uint64
	waiting bool
	cost    int64
	waiter  driver.Holder
	until   int64 // dead or forgotten from this time on
	at      int64 // of the last grant; 0 if it was withdrawn
}

// settle returns the time of the key, after it has trimmed its logs and dropped
// dead tickets. clock is the time of the backend.
func (e *entry) settle(clock int64) (now int64) {
	now = clock + e.lead
	if now < e.latest { // W10
		e.lead += e.latest - now
		now = e.latest
	}
	e.latest = now
	for i := range e.logs {
		e.logs[i].trim(now)
	}
	e.tickets = slices.DeleteFunc(e.tickets, func(t ticket) bool { return t.until <= now }) // W7
	if e.resetUntil <= now {
		e.reset, e.resetUntil = 0, 0
	}
	return now
}

// due returns the time, on the backend's clock, at which nothing of the key is
// left unless there is another operation.
func (e *entry) due() int64 {
	due := max(e.pausedTo, e.resetUntil)
	for i := range e.logs {
		due = max(due, e.logs[i].end(), e.logs[i].last+e.logs[i].per)
	}
	for i := range e.tickets {
		due = max(due, e.tickets[i].until)
	}
	return due - e.lead
}

func (e *entry) log(per int64) *log {
	for i := range e.logs {
		if e.logs[i].per == per {
			return &e.logs[i]
		}
	}
	return nil
}

// begin returns a new log, which has no grants from before now.
func (e *entry) begin(per, now int64) *log {
	e.logs = append(e.logs, log{per: per, last: now, gone: now - 1})
	return &e.logs[len(e.logs)-1]
}

func (e *entry) find(id string) *ticket {
	for i := range e.tickets {
		if e.tickets[i].id == id {
			return &e.tickets[i]
		}
	}
	return nil
}

// ahead returns the units of the tickets before id; of all tickets, if id has
// none.
func (e *entry) ahead(id string) (units int64) {
	for i := range e.tickets {
		t := &e.tickets[i]
		if t.waiting && t.id == id {
			break
		}
		if t.waiting {
			units += t.cost
		}
	}
	return units
}

// take decides about r at now.
func (e *entry) take(r *driver.Request, now int64) driver.Answer {
	t := e.known(r.Ticket)
	if t != nil && r.Seq <= t.seq && !t.waiting { // W9
		return e.again(t, r, now)
	}
	if t != nil && r.Seq < t.seq {
		return driver.Answer{} // a late copy
	}
	ahead := e.ahead(r.Ticket)
	a, at := e.decide(r, ahead, now)
	a.Granted = ahead == 0 && at <= now // W5
	if r.Cost == 0 {
		a.Wait = micros(max(at-now, 0))
		return a
	}
	if a.Granted {
		e.grant(r, now)
		a.At = time.UnixMicro(now)
		e.measure(&a, r.Rates, now)
		return a
	}
	a.Wait = micros(max(at-now, 0))
	if r.Ticket != "" {
		e.queue(r, t, &a, now)
	}
	return a
}

func (e *entry) known(id string) *ticket {
	if id == "" {
		return nil
	}
	return e.find(id)
}

// again answers a request that repeats the last grant of its ticket, or comes
// after it.
func (e *entry) again(t *ticket, r *driver.Request, now int64) driver.Answer {
	if r.Seq < t.seq || t.at == 0 {
		return driver.Answer{}
	}
	a := driver.Answer{Granted: true, At: time.UnixMicro(t.at)}
	e.measure(&a, r.Rates, now)
	return a
}

// decide returns the time at which r can be granted after ahead units, and the
// index of the rate that decides. A request of cost 0 asks for one unit.
func (e *entry) decide(r *driver.Request, ahead, now int64) (a driver.Answer, at int64) {
	e.measure(&a, r.Rates, now)
	at = now
	cost := int64(max(r.Cost, 1))
	for i, rate := range r.Rates {
		l, n := e.log(rate.Per.Microseconds()), int64(rate.N)
		if l == nil {
			l = &log{per: rate.Per.Microseconds(), last: now}
		}
		free := l.earliest(ahead+cost, n, now)
		if r.Smooth {
			free = max(free, l.spaced(ahead, n, now))
		}
		if free > at {
			at, a.By = free, i
			a.Reset = micros(max(l.end()-now, 0))
		}
	}
	if e.pausedTo > now {
		p := e.paused(now)
		a.Paused = &p
		if e.pausedTo > at {
			at, a.By = e.pausedTo, -1 // W13
		}
	}
	return a, at
}

// measure sets what the rates have left, and the rate that has the least.
func (e *entry) measure(a *driver.Answer, rates []driver.Rate, now int64) {
	for i, rate := range rates {
		left, end := rate.N, now
		if l := e.log(rate.Per.Microseconds()); l != nil {
			left, end = int(max(int64(rate.N)-l.used(), 0)), max(l.end(), now)
		}
		if i == 0 || left < a.Remaining {
			a.By, a.Remaining, a.Reset = i, left, micros(end-now)
		}
	}
}

// grant records the units of r in all logs (W3), and what its ticket got.
func (e *entry) grant(r *driver.Request, now int64) {
	for _, rate := range r.Rates {
		per, n := rate.Per.Microseconds(), int64(rate.N)
		l := e.log(per)
		if l == nil {
			l = e.begin(per, now)
		}
		l.add(int64(r.Cost), n, now)
		l.n, l.last, l.granted, l.smooth = n, now, int64(r.Cost), r.Smooth
	}
	if r.Ticket != "" {
		e.leave(r.Ticket)
		e.tickets = append(e.tickets, ticket{
			id: r.Ticket, seq: r.Seq, cost: int64(r.Cost), at: now, until: now + driver.TicketMemory.Microseconds(),
		})
	}
}

// leave removes the ticket.
func (e *entry) leave(id string) {
	e.tickets = slices.DeleteFunc(e.tickets, func(t ticket) bool { return t.id == id })
}

// queue gives r a place, or refuses it if a.Wait is too long (W6). t is its
// ticket, or nil.
func (e *entry) queue(r *driver.Request, t *ticket, a *driver.Answer, now int64) {
	if t != nil && !t.waiting { // the memory of an older request
		e.leave(r.Ticket)
		t = nil
	}
	a.Full = t == nil && e.waiting() >= driver.MaxTickets
	if a.Full || r.MaxWait >= 0 && a.Wait > r.MaxWait {
		e.leave(r.Ticket)
		return
	}
	if t == nil {
		e.tickets = append(e.tickets, ticket{id: r.Ticket, waiting: true})
		t = &e.tickets[len(e.tickets)-1]
	}
	a.Again = driver.Again(a.Wait)
	t.seq, t.cost, t.waiter = r.Seq, int64(r.Cost), r.Waiter
	t.until = now + (a.Again + driver.TicketGrace).Microseconds()
}

func (e *entry) waiting() (n int) {
	for i := range e.tickets {
		if e.tickets[i].waiting {
			n++
		}
	}
	return n
}

// withdraw ends r, returns its units if it was granted, and bars copies of it.
func (e *entry) withdraw(r *driver.Request, now int64) {
	t := e.find(r.Ticket)
	switch {
	case t != nil && r.Seq < t.seq:
		return
	case t != nil && r.Seq == t.seq && t.at != 0:
		e.refund(r.Rates, t.cost, t.at, now)
	}
	e.leave(r.Ticket)
	e.tickets = append(e.tickets, ticket{id: r.Ticket, seq: r.Seq, until: now + driver.TicketMemory.Microseconds()})
}

func (e *entry) refund(rates []driver.Rate, units, at, now int64) {
	for _, rate := range rates {
		if l := e.log(rate.Per.Microseconds()); l != nil {
			l.refund(units, int64(rate.N), at, now)
		}
	}
}

// correct applies s: it returns units to their own windows, or records a debt
// now (W7).
func (e *entry) correct(s *driver.Settlement, now int64) {
	debt := int64(s.Actual - s.Cost)
	if debt <= 0 {
		e.refund(s.Rates, -debt, s.At.UnixMicro(), now)
		return
	}
	for _, rate := range s.Rates {
		l := e.log(rate.Per.Microseconds())
		if l == nil {
			l = e.begin(rate.Per.Microseconds(), now)
			l.n = int64(rate.N)
		}
		l.add(debt, int64(rate.N), now)
	}
}

// stop pauses the key, unless it has a longer pause.
func (e *entry) stop(p driver.Pause, now int64) {
	if to := now + p.Left.Microseconds(); to > e.pausedTo {
		e.pausedTo, e.pause = to, p
	}
}

func (e *entry) paused(now int64) driver.Pause {
	p := e.pause
	p.Left = micros(e.pausedTo - now)
	return p
}

// state returns the state of the key for these rates; without rates, for all
// rates that have used units (W14).
func (e *entry) state(rates []driver.Rate, now int64) driver.State {
	s := driver.State{Key: e.key}
	if rates == nil {
		rates = e.rates()
	}
	for _, rate := range rates {
		l := e.log(rate.Per.Microseconds())
		if l == nil {
			s.Rates = append(s.Rates, driver.RateState{Rate: rate, Remaining: rate.N})
			continue
		}
		n := int64(rate.N)
		free := l.earliest(1, n, now)
		if l.smooth {
			free = max(free, l.spaced(0, n, now))
		}
		s.Rates = append(s.Rates, driver.RateState{
			Rate: rate, Used: int(l.used()), Remaining: int(max(n-l.used(), 0)), NextFree: micros(free - now),
		})
	}
	for i := range e.tickets {
		if t := &e.tickets[i]; t.waiting {
			s.Waiters = append(s.Waiters, driver.Waiter{Holder: t.waiter, Cost: int(t.cost)})
		}
	}
	if e.pausedTo > now {
		p := e.paused(now)
		s.Paused = &p
	}
	return s
}

// rates returns the rates of which units are used, by Per.
func (e *entry) rates() []driver.Rate {
	rates := make([]driver.Rate, 0, len(e.logs))
	for i := range e.logs {
		if l := &e.logs[i]; l.used() > 0 {
			rates = append(rates, driver.Rate{N: int(l.n), Per: micros(l.per)})
		}
	}
	slices.SortFunc(rates, func(a, b driver.Rate) int { return cmp.Compare(a.Per, b.Per) })
	return rates
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
