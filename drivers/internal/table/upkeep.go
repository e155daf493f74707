package table

import (
	"maps"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// The functions below keep a shard small: an entry exists only while its key
// has holders or waiters, except the kept ones. All except sweep expect the shard locked.

// settled returns the entry of key in its state at now, or nil if it is unused.
func (s *shard) settled(key string, now instant) *entry {
	e := s.entries[key]
	if e == nil {
		return nil
	}
	e.settle(now)
	if s.tidy(e, now) {
		return nil
	}
	return e
}

// find returns the holder or waiter of key with token in its state at now, or nil.
func (s *shard) find(key, token string, now instant) *ticket {
	if e := s.settled(key, now); e != nil {
		return e.find(token)
	}
	return nil
}

// add returns the entry of a key that has none, or an idle one.
func (s *shard) add(key string, slots int) *entry {
	e := s.entries[key]
	if e == nil {
		e = s.vacant()
		e.key = key
		s.entries[key] = e
		s.peak = max(s.peak, len(s.entries))
	}
	e.size = slots
	return e
}

// vacant returns an entry that is not in the map, in the place of the oldest of
// the kept ones.
func (s *shard) vacant() *entry {
	spot := s.oldest
	s.oldest = (spot + 1) % spares
	if s.kept[spot] != nil && s.kept[spot].idle() {
		delete(s.entries, s.kept[spot].key)
	} else {
		s.kept[spot] = &entry{shard: s, spot: spot}
	}
	return s.kept[spot]
}

// tidy clears e if it is unused, and removes it unless it is kept. It reports
// whether e was unused.
func (s *shard) tidy(e *entry, now instant) bool {
	if e.used() || e.pool != nil && e.remembers(now) {
		return false
	}
	e.reset()
	if s.kept[e.spot] == e {
		return true
	}
	delete(s.entries, e.key)
	if s.peak > roomy && len(s.entries) < s.peak/8 {
		s.shrink()
	}
	return true
}

func (s *shard) shrink() {
	entries := make(map[string]*entry, len(s.entries))
	maps.Copy(entries, s.entries)
	s.entries, s.peak = entries, len(entries)
}

func (s *shard) ticket(r *driver.Request) *ticket {
	var t *ticket
	if n := len(s.spareTickets); n > 0 {
		t, s.spareTickets = s.spareTickets[n-1], s.spareTickets[:n-1]
	} else {
		t = new(ticket)
	}
	t.state, t.holder, t.pool, t.rests = queued, r.Holder, r.Pool, false
	t.grant = driver.Grant{Key: r.Key, Token: r.Token, Fences: max(r.Fences, 1), TTL: r.TTL, NoRenew: r.NoRenew}
	return t
}

// recycle keeps the ticket of a released grant for the next request. It ignores
// a ticket that was queued, because its waiter may be about to read it. The
// channel of the ticket was not closed and can serve another grant: a previous
// listener may then receive a hint of a loss that is not its own, and checks it
// with a renewal.
func (s *shard) recycle(t *ticket) {
	if t.done == nil && len(s.spareTickets) < spares {
		s.spareTickets = append(s.spareTickets, t)
	}
}

// sweepBy arms the sweeper so that an entry or token with this expiry is removed
// within slack of it.
func (s *shard) sweepBy(expiry instant) {
	if s.closed || s.sweptBy != 0 && expiry >= s.sweptBy {
		return
	}
	s.sweptBy = expiry
	if left := expiry.sub(s.clock.now()) + slack; s.sweeper == nil {
		s.sweeper = time.AfterFunc(left, s.sweep)
	} else {
		s.sweeper.Reset(left)
	}
}

// sweepTime returns when the sweeper has to look at e again, or zero.
func (e *entry) sweepTime() instant {
	if e.pool != nil && !e.used() {
		return e.pool.forgetAt
	}
	return e.due
}

func (s *shard) sweep() {
	s.mu.Lock()
	defer s.unlock()
	now := s.clock.now()
	s.sweptBy = 0
	if next, any := s.gone.purge(now); any {
		s.sweepBy(next)
	}
	if next, any := s.purgeRuns(now); any {
		s.sweepBy(next)
	}
	var next instant
	for key := range s.entries {
		e := s.settled(key, now)
		if e == nil {
			continue
		}
		if due := e.sweepTime(); due != 0 && (next == 0 || due < next) {
			next = due
		}
	}
	if next != 0 {
		s.sweepBy(next)
	}
}
