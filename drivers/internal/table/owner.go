package table

import (
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Owner is on whose behalf grants and tickets exist: a process that a hub
// serves. All that is its own can be freed in one go.
type Owner struct {
	tell  func(Event)
	first [shardCount]*ticket // its tickets, by shard, each list guarded by its shard
}

// NewOwner returns an owner of nothing. tell is called by whoever brings the
// event about, while nothing of the table is locked. It must not block. Calls may
// be concurrent, so that the event of a grant can come before the answer that
// brought it.
func NewOwner(tell func(Event)) *Owner { return &Owner{tell: tell} }

// Kind is what an event says.
type Kind int

// The kinds of events.
const (
	Granted Kind = iota // the request has its turn: Grant is whole
	Refused             // the request is no longer queued, because of Err
	Lost                // the grant was taken away, because of Err
)

// Event is what an owner is told of a grant or a ticket. Key and Token of Grant
// say of which.
type Event struct {
	Kind  Kind
	Grant driver.Grant
	Err   error
	owner *Owner
}

// Drop frees whatever o holds, withdraws what it waits for, and serves those who
// wait for it: its process has died. Nothing may be asked on its behalf at the
// same time or later.
func (t *Table) Drop(o *Owner) { t.disown(o, true) }

// Disown withdraws what o waits for and leaves its grants to their TTL: its
// process is out of reach, but may be alive. The same holds as for Drop.
func (t *Table) Disown(o *Owner) { t.disown(o, false) }

func (t *Table) disown(o *Owner, free bool) {
	for i := range t.shards {
		t.shards[i].disown(o, free, t.now())
	}
}

func (s *shard) disown(o *Owner, free bool, now time.Time) {
	s.mu.Lock()
	defer s.unlock()
	s.withdrawAll(o)
	for t := o.first[s.index]; t != nil; t = o.first[s.index] {
		s.own(t, nil)
		if !free {
			continue
		}
		e := t.entry
		e.free(t)
		s.recycle(t)
		e.serve(now)
		s.tidy(e)
	}
}

// withdrawAll takes the owner's tickets out of their queues, before any of its
// grants is freed: none of them shall be served.
func (s *shard) withdrawAll(o *Owner) {
	var next *ticket
	for t := o.first[s.index]; t != nil; t = next {
		next = t.ownNext
		if t.state == queued {
			e := t.entry
			e.withdraw(t, driver.ErrClosed)
			s.tidy(e)
		}
	}
}

// own makes t the owner's, or nobody's, whosever it was.
func (s *shard) own(t *ticket, o *Owner) {
	if t.owner == o {
		return
	}
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

// tell notes an event for the owner of t, if it has one.
func (s *shard) tell(k Kind, t *ticket, why error) {
	if t.owner != nil {
		s.outbox = append(s.outbox, Event{Kind: k, Grant: t.grant, Err: why, owner: t.owner})
	}
}

// unlock unlocks the shard and then delivers what it has noted for owners.
func (s *shard) unlock() {
	if s.outbox == nil {
		s.mu.Unlock()
		return
	}
	events := s.takeEvents()
	s.mu.Unlock()
	deliver(events)
}

// takeEvents expects s locked.
func (s *shard) takeEvents() []Event {
	events := s.outbox
	s.outbox = nil
	return events
}

func deliver(events []Event) {
	for i := range events {
		events[i].owner.tell(events[i])
	}
}
