package table

import (
	"errors"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// A table takes over from another one that has ended in four steps: New with
// Shut, Raise with the highest fence that the other one may have given, Restore
// with the grants that the owners report, and Open when all owners have
// reported.

// ErrShut is the error of a call that needs all grants or runs, which a shut table
// may not know yet.
var ErrShut = errors.New("the lock table is being taken over")

// Lease is a grant that an owner reports.
type Lease struct {
	Grant   driver.Grant
	Slots   int          // the size of the pool
	Pool    *driver.Pool // of the request, if the slots have states
	Holder  driver.Holder
	Expires time.Time // on the table's clock
}

// Raise makes all later fences greater than last.
func (t *Table) Raise(last uint64) { t.fences.raise(last) }

// HighestFence returns the highest fence that was reserved so far.
func (t *Table) HighestFence() uint64 { return t.fences.last.Load() }

// Restore gives o the grant l that it reports, and returns the grant in its
// current state. The error wraps driver.ErrLost if the grant has expired or was
// taken away, or if it conflicts with a grant that has a higher fence. The
// table accepts an unknown grant only while it is shut: later, the key may have
// had another holder in between.
func (t *Table) Restore(l Lease, o *Owner) (driver.Grant, error) {
	return t.shard(l.Grant.Key).restore(&l, o, t.clock.now())
}

// Open lets a shut table grant, and serves all queues. A queued request that
// does not wait is refused now if its key is busy.
func (t *Table) Open() {
	for i := range t.shards {
		t.shards[i].admit(t.clock.now())
	}
}

func (s *shard) restore(l *Lease, o *Owner, now instant) (driver.Grant, error) {
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
	err := s.gone.find(l.Grant.Token)
	if err == nil && (!s.shut || now >= s.clock.at(l.Expires)) {
		err = &driver.LostError{Key: l.Grant.Key, Cause: driver.Expired}
	}
	if err != nil {
		return driver.Grant{}, err
	}
	return s.reinstate(e, l, o, now)
}

// reinstate gives l its slot again, unless a later grant has the slot.
func (s *shard) reinstate(e *entry, l *Lease, o *Owner, now instant) (driver.Grant, error) {
	newest := e == nil || e.queue.len == 0 && l.Grant.Fence > e.newest() // a queued request is newer than every grant
	switch {
	case e == nil:
		e = s.add(l.Grant.Key, l.Slots)
	case newest:
		e.resize(l.Slots, now) // L15
	}
	lost := &driver.LostError{Key: l.Grant.Key, Cause: driver.Expired}
	if other := e.at(l.Grant.Slot); other != nil {
		if other.grant.Fence > l.Grant.Fence {
			return driver.Grant{}, lost
		}
		e.free(other)
		s.gone.add(other.grant.Token, lost, now)
		s.notify(Lost, other, lost)
		s.own(other, nil)
	}
	if l.Pool != nil {
		if p := e.track(); newest {
			p.quarantine = l.Pool.Quarantine
		}
	}
	t := s.restored(l)
	s.own(t, o)
	e.reinstate(t)
	s.fences.raise(l.Grant.Fence + uint64(max(l.Grant.Fences, 1)) - 1)
	s.sweepBy(t.expires)
	return t.grant, nil
}

func (s *shard) restored(l *Lease) *ticket {
	t := &ticket{holder: l.Holder, grant: l.Grant, state: granted, expires: s.clock.at(l.Expires)}
	t.grant.Deadline = l.Expires.Add(-driver.Margin(l.Grant.TTL))
	return t
}

// newest returns the highest fence of the holders.
func (e *entry) newest() (fence uint64) {
	for _, t := range e.slots {
		if t != nil {
			fence = max(fence, t.grant.Fence)
		}
	}
	return fence
}

// at returns the ticket in the slot, or nil.
func (e *entry) at(slot int) *ticket {
	if slot < len(e.slots) {
		return e.slots[slot]
	}
	return nil
}

// reinstate puts t into its slot, which must be free.
func (e *entry) reinstate(t *ticket) {
	e.register(t)
	e.put(t)
	if e.pool != nil {
		r := e.pool.record(t.grant.Slot)
		r.status, r.last = driver.SlotHeld, t.holder
	}
	e.dueBy(t.expires)
}

// admit opens the shard and serves its queues.
func (s *shard) admit(now instant) {
	s.mu.Lock()
	defer s.unlock()
	s.shut = false
	for _, e := range s.entries {
		e.settle(now)
		e.serve(now)
		e.refuseHasty(now)
		s.tidy(e, now)
	}
}

// refuseHasty refuses the queued requests that do not wait.
func (e *entry) refuseHasty(now instant) {
	var next *ticket
	for t := e.queue.head; t != nil; t = next {
		next = t.next
		if t.hasty {
			e.refuse(t, e.busy(t, now, nil))
		}
	}
}
