package table

import (
	"github.com/megaframework/mega/lock/driver"
)

// Owner represents a process that a hub serves. Grants and tickets of an owner
// can be freed in one call.
type Owner struct {
	notify func(Event)
	first  [shardCount]*ticket // its tickets, by shard, each list guarded by its shard
}

// NewOwner returns an owner without grants or tickets. The table calls notify for
// each event, on the goroutine that caused it and without a lock of the table.
// notify must not block. Calls may be concurrent, so a later event of a grant can
// arrive before the reply with the grant.
func NewOwner(notify func(Event)) *Owner { return &Owner{notify: notify} }

// Kind is the kind of an event.
type Kind int

// The kinds of events.
const (
	Granted Kind = iota // the request was granted: Grant is complete
	Refused             // the request was refused, because of Err
	Lost                // the grant was taken away, because of Err
)

// Event notifies an owner of a change of a grant or ticket. Key and Token of
// Grant identify it.
type Event struct {
	Kind  Kind
	Grant driver.Grant
	Err   error
	owner *Owner
}

// Drop ends all grants of o, except those that Rest has released, withdraws its
// tickets, and serves the waiters for its keys. It is for a process that has died.
// No call may be made on behalf of o at the same time or later.
func (t *Table) Drop(o *Owner) { t.disown(o, true) }

// Disown withdraws the tickets of o and leaves its grants to their TTL. It is
// for a process that cannot be reached but may be alive. No call may be made on
// behalf of o at the same time or later.
func (t *Table) Disown(o *Owner) { t.disown(o, false) }

func (t *Table) disown(o *Owner, free bool) {
	for i := range t.shards {
		t.shards[i].disown(o, free, t.clock.now())
	}
}

func (s *shard) disown(o *Owner, free bool, now instant) {
	s.mu.Lock()
	defer s.unlock()
	s.withdrawAll(o)
	for t := o.first[s.index]; t != nil; t = o.first[s.index] {
		s.own(t, nil)
		if !free || t.rests { // O5
			continue
		}
		e := t.entry
		e.free(t)
		e.abandoned(t, driver.LeftDied, now)
		e.serve(now)
		s.tidy(e, now)
	}
}

// withdrawAll removes the owner's tickets from their queues before any of its
// grants is freed, so that none of them is served.
func (s *shard) withdrawAll(o *Owner) {
	var next *ticket
	for t := o.first[s.index]; t != nil; t = next {
		next = t.ownNext
		if t.state == queued {
			e := t.entry
			e.withdraw(t, driver.ErrClosed)
			s.tidy(e, s.clock.now())
		}
	}
}

// own sets the owner of t to o, which may be nil, and removes t from its
// previous owner.
func (s *shard) own(t *ticket, o *Owner) {
	if t.owner != nil {
		s.unlink(t)
	}
	if t.owner = o; o == nil {
		return
	}
	t.ownNext = o.first[s.index]
	if t.ownNext != nil {
		t.ownNext.ownPrev = t
	}
	o.first[s.index] = t
}

func (s *shard) unlink(t *ticket) {
	if t.ownPrev == nil {
		t.owner.first[s.index] = t.ownNext
	} else {
		t.ownPrev.ownNext = t.ownNext
	}
	if t.ownNext != nil {
		t.ownNext.ownPrev = t.ownPrev
	}
	t.ownPrev, t.ownNext = nil, nil
}

// notify adds an event for the owner of t, if it has one, to the outbox.
func (s *shard) notify(k Kind, t *ticket, why error) {
	if t.owner != nil {
		s.outbox = append(s.outbox, Event{Kind: k, Grant: t.grant, Err: why, owner: t.owner})
	}
}

// unlock unlocks the shard and then delivers the events in the outbox.
func (s *shard) unlock() {
	if s.outbox == nil {
		s.mu.Unlock()
		return
	}
	events := s.takeEvents()
	s.mu.Unlock()
	deliver(events)
}

// takeEvents empties the outbox. The caller holds s.mu.
func (s *shard) takeEvents() []Event {
	events := s.outbox
	s.outbox = nil
	return events
}

func deliver(events []Event) {
	for i := range events {
		events[i].owner.notify(events[i])
	}
}
