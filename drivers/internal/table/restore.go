package table

import (
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// How a table takes over from another one that has ended: it is made shut, is
// told the highest fence that the other may have given, takes what the owners
// say that they have, and opens when all of them have been heard.

// Lease is a grant that an owner says it has.
type Lease struct {
	Grant   driver.Grant
	Slots   int // the size of the pool
	Holder  driver.Holder
	Expires time.Time // on the table's clock
}

// Raise keeps fences above last.
func (t *Table) Raise(last uint64) { t.fences.raise(last) }

// HighestFence returns the highest fence that any grant may use so far.
func (t *Table) HighestFence() uint64 { return t.fences.last.Load() }

// Restore gives o the grant that it says it has, and returns the grant as it is.
// The error wraps driver.ErrLost if the grant has expired or was taken away, or
// if it contradicts one with a higher fence. A grant that the table does not know
// is believed only while the table is shut: later its key may have been somebody
// else's in between.
func (t *Table) Restore(l Lease, o *Owner) (driver.Grant, error) {
	return t.shard(l.Grant.Key).restore(&l, o, t.now())
}

// Open lets a table that was made shut grant, and serves all queues. A request
// that does not wait is refused now if it finds its key busy.
func (t *Table) Open() {
	for i := range t.shards {
		t.shards[i].admit(t.now())
	}
}

func (s *shard) restore(l *Lease, o *Owner, now time.Time) (driver.Grant, error) {
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return driver.Grant{}, driver.ErrClosed
	}
	e := s.settled(l.Grant.Key, now)
	if e != nil {
		if t := e.find(l.Grant.Token); t != nil && t.state == granted {
			s.own(t, o)
			return t.grant, nil
		}
	}
	err := s.gone.find(l.Grant.Token, now)
	if err == nil && (!s.shut || !now.Before(l.Expires)) {
		err = &driver.LostError{Key: l.Grant.Key, Cause: driver.Expired}
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return s.reinstate(e, l, o, now)
}

// reinstate gives l its slot again, if the slot is not with a later grant.
func (s *shard) reinstate(e *entry, l *Lease, o *Owner, now time.Time) (driver.Grant, error) {
	if e == nil {
		e = s.add(l.Grant.Key, l.Slots)
	}
	lost := &driver.LostError{Key: l.Grant.Key, Cause: driver.Expired}
	if other := e.at(l.Grant.Slot); other != nil {
		if other.grant.Fence > l.Grant.Fence {
			return driver.Grant{}, lost
		}
		e.free(other)
		s.gone.add(other.grant.Token, lost, now)
		s.tell(Lost, other, lost)
		s.own(other, nil)
	}
	t := s.restored(l)
	s.own(t, o)
	e.reinstate(t)
	s.fences.raise(l.Grant.Fence + uint64(max(l.Grant.Fences, 1)) - 1)
	s.sweepBy(t.expires)
	return t.grant, nil
}

func (s *shard) restored(l *Lease) *ticket {
	t := &ticket{holder: l.Holder, grant: l.Grant, state: granted, expires: l.Expires}
	t.grant.Deadline = l.Expires.Add(-driver.Margin(l.Grant.TTL))
	return t
}

// at returns who has the slot, or nil.
func (e *entry) at(slot int) *ticket {
	if slot < len(e.slots) {
		return e.slots[slot]
	}
	return nil
}

// reinstate puts t into its slot, which is free.
func (e *entry) reinstate(t *ticket) {
	e.register(t)
	for len(e.slots) <= t.grant.Slot {
		e.slots = append(e.slots, nil)
	}
	e.slots[t.grant.Slot] = t
	e.held++
	e.dueBy(t.expires)
}

// admit opens the shard.
func (s *shard) admit(now time.Time) {
	s.mu.Lock()
	defer s.unlock()
	if !s.shut {
		return
	}
	s.shut = false
	for _, e := range s.entries {
		e.settle(now)
		e.serve(now)
		e.refuseHasty(now)
		s.tidy(e)
	}
}

// refuseHasty refuses the requests that would not have waited.
func (e *entry) refuseHasty(now time.Time) {
	var next *ticket
	for t := e.queue.head; t != nil; t = next {
		next = t.next
		if t.hasty {
			e.refuse(t, e.busy(t, now, now, nil))
		}
	}
}
