package table

import (
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// pool holds the records of the slots of a key that was requested with
// driver.Pool; see driver.PoolDriver for their states. Any other entry has none,
// and pays nothing for it.
type pool struct {
	quarantine time.Duration // of the newest request
	records    []record      // by number; a number beyond has no record and is unknown
	lasting    bool          // a slot may be resting or withdrawn
	forgetAt   instant       // of an unused pool; zero while it is used or has a withdrawn slot
}

// record is the state of one slot. The zero value is an unknown slot.
type record struct {
	status  driver.SlotStatus // "" means unknown
	until   instant           // the end of the rest
	left    *driver.Leaving   // of a dirty or resting slot
	found   *driver.Found     // of the last grant, which the next one shares if nothing has changed
	reason  string            // of a withdrawal
	note    string
	strikes int
	last    driver.Holder
}

func (r *record) dirty() bool { return r.status == "" || r.status == driver.SlotDirty }

// soil makes the slot dirty.
func (r *record) soil(by driver.Holder, at time.Time, why string) {
	r.status, r.left = driver.SlotDirty, &driver.Leaving{By: by, At: at, Why: why}
}

// track makes e a pool whose slots have states, if it is not one yet. The slots
// that are held become known by it.
func (e *entry) track() *pool {
	if e.pool == nil {
		e.pool = &pool{}
		for _, t := range e.slots {
			if t != nil {
				r := e.pool.record(t.grant.Slot)
				r.status, r.last = driver.SlotHeld, t.holder
			}
		}
	}
	return e.pool
}

// record returns the record of the slot, which it makes if there is none.
func (p *pool) record(slot int) *record {
	for len(p.records) <= slot {
		p.records = append(p.records, record{})
	}
	return &p.records[slot]
}

// choose returns the slot below size for a request with want, which may be nil,
// or -1 if none can be granted (P7).
func (p *pool) choose(want *driver.Pool, size int) int {
	prefer, avoid := -1, -1
	if want != nil {
		prefer, avoid = want.Prefer, want.Avoid
	}
	known := min(size, len(p.records))
	if 0 <= prefer && prefer < known && prefer != avoid && p.records[prefer].status == driver.SlotFree {
		return prefer
	}
	dirty := -1
	for i := range known {
		r := &p.records[i]
		switch {
		case i == avoid:
		case r.status == driver.SlotFree:
			return i
		case dirty < 0 && r.dirty():
			dirty = i
		}
	}
	if dirty < 0 {
		dirty = p.unknown(avoid, size)
	}
	if dirty < 0 && 0 <= avoid && avoid < size && p.available(avoid) {
		return avoid
	}
	return dirty
}

// unknown returns the lowest slot below size without a record, or -1.
func (p *pool) unknown(avoid, size int) int {
	slot := len(p.records)
	if slot == avoid {
		slot++
	}
	if slot < size {
		return slot
	}
	return -1
}

// available reports whether the slot can be granted.
func (p *pool) available(slot int) bool {
	return slot >= len(p.records) || p.records[slot].status == driver.SlotFree || p.records[slot].dirty()
}

// exhausted reports whether every slot below size is withdrawn (P8).
func (p *pool) exhausted(size int) bool {
	if !p.lasting || len(p.records) < size {
		return false
	}
	for i := range size {
		if p.records[i].status != driver.SlotWithdrawn {
			return false
		}
	}
	return true
}

// lend notes that t has its slot, and describes to t how it found the slot.
func (p *pool) lend(t *ticket, now instant) {
	r := p.record(t.grant.Slot)
	if t.pool != nil {
		t.grant.Found = r.seen(t.entry.shard, now)
	}
	r.status, r.left, r.last = driver.SlotHeld, nil, t.holder
}

// seen returns the record as a grant has it.
func (r *record) seen(s *shard, now instant) *driver.Found {
	left := r.left
	if r.status == "" {
		left = &driver.Leaving{At: s.wall(now), Why: driver.LeftUnknown} // P10
	}
	if f := r.found; f == nil || f.Left != left || f.Note != r.note || f.Strikes != r.strikes {
		r.found = &driver.Found{Left: left, Note: r.note, Strikes: r.strikes}
	}
	return r.found
}

// abandoned notes that the slot of t was lost or released without a Handback.
// The slot rests from now on (P6).
func (e *entry) abandoned(t *ticket, why string, now instant) {
	if e.pool == nil {
		return
	}
	r := e.pool.record(t.grant.Slot)
	r.soil(t.holder, e.shard.wall(now), why)
	if e.pool.quarantine > 0 {
		r.status, r.until, e.pool.lasting = driver.SlotResting, now.add(e.pool.quarantine), true
		e.dueBy(r.until)
	}
}

// handedBack notes what the holder t makes of its slot (P5).
func (e *entry) handedBack(t *ticket, h *driver.Handback, now instant) {
	if h == nil {
		e.abandoned(t, driver.LeftReleased, now)
		return
	}
	r := e.pool.record(t.grant.Slot)
	known := h.Status == driver.SlotFree || h.Status == driver.SlotWithdrawn || h.Status == driver.SlotDirty && h.Left != nil
	if !known { // also a status of a newer build, which does not show that the slot is clean (P10)
		r.soil(driver.Holder{}, e.shard.wall(now), driver.LeftUnknown)
		return
	}
	r.note, r.strikes = h.Note, h.Strikes
	switch {
	case h.Status == driver.SlotWithdrawn:
		r.status, r.left, r.reason, e.pool.lasting = driver.SlotWithdrawn, nil, h.Reason, true
	case h.Status == driver.SlotDirty:
		r.status, r.left = driver.SlotDirty, h.Left
	case t.grant.Slot >= e.size: // P9: the number may come back
		r.soil(t.holder, e.shard.wall(now), driver.LeftShrunk)
	default:
		r.status, r.left = driver.SlotFree, nil
	}
}

// shrink makes the clean slots from size on dirty (P9).
func (p *pool) shrink(size int, wall time.Time) {
	for i := size; i < len(p.records); i++ {
		if r := &p.records[i]; r.status == driver.SlotFree {
			r.soil(r.last, wall, driver.LeftShrunk)
		}
	}
}

// endRests ends the rests that are over, and sets e.due for the others.
func (e *entry) endRests(now instant) {
	if !e.pool.lasting {
		return
	}
	e.pool.lasting = false
	for i := range e.pool.records {
		r := &e.pool.records[i]
		switch {
		case r.status == driver.SlotWithdrawn:
			e.pool.lasting = true
		case r.status != driver.SlotResting:
		case now < r.until:
			e.pool.lasting = true
			e.dueBy(r.until)
		default:
			r.status = driver.SlotDirty
		}
	}
}

// heal puts the slot back into circulation.
func (e *entry) heal(slot int, by driver.Holder, now instant) {
	if e.pool == nil || slot < 0 || slot >= len(e.pool.records) {
		return
	}
	r := &e.pool.records[slot]
	if r.status == driver.SlotWithdrawn || r.status == driver.SlotResting {
		r.soil(by, e.shard.wall(now), driver.LeftHealed)
		r.strikes = 0
		e.serve(now)
	}
}

// refuseAll refuses the waiters of a pool without a slot in circulation (P8).
func (e *entry) refuseAll(now instant) {
	for e.queue.len > 0 {
		e.refuse(e.queue.head, e.busy(e.queue.head, now, nil))
	}
}

// remembers reports whether the unused entry e must stay for its records: for
// driver.PoolMemory from the end of its rests, and while a slot is withdrawn.
func (e *entry) remembers(now instant) bool {
	p := e.pool
	if p.forgetAt == 0 {
		rested, withdrawn := p.lasts(now)
		if withdrawn {
			return true // P8
		}
		p.forgetAt = rested.add(driver.PoolMemory)
		e.shard.sweepBy(p.forgetAt)
	}
	return now < p.forgetAt
}

// lasts returns the end of the last rest, at least at, or reports that a slot is
// withdrawn.
func (p *pool) lasts(at instant) (end instant, withdrawn bool) {
	if !p.lasting {
		return at, false
	}
	for i := range p.records {
		switch r := &p.records[i]; {
		case r.status == driver.SlotWithdrawn:
			return at, true
		case r.status == driver.SlotResting && r.until > at:
			at = r.until
		}
	}
	return at, false
}

// states returns the states of the slots below size, and of those above it that
// are held.
func (p *pool) states(size int, now instant, wall time.Time) []driver.SlotState {
	states := make([]driver.SlotState, 0, size)
	for i := range max(size, len(p.records)) {
		s := driver.SlotState{Number: i, Status: driver.SlotDirty, Reason: driver.LeftUnknown}
		if i < len(p.records) && p.records[i].status != "" {
			s = p.records[i].state(i)
			if s.Status == driver.SlotResting {
				s.Until = wall.Add(p.records[i].until.sub(now))
			}
		}
		if i < size || s.Status == driver.SlotHeld {
			states = append(states, s)
		}
	}
	return states
}

func (r *record) state(number int) driver.SlotState {
	s := driver.SlotState{Number: number, Status: r.status, LastHolder: r.last, Note: r.note, Strikes: r.strikes}
	switch r.status {
	case driver.SlotWithdrawn:
		s.Reason = r.reason
	case driver.SlotResting, driver.SlotDirty:
		s.Reason = r.left.Why
	}
	return s
}
