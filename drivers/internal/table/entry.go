package table

import (
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// indexed is the number of tickets from which an entry uses a map to find them.
const indexed = 8

// entry is a key with holders or waiters: a pool of slots, and a queue.
type entry struct {
	shard *shard
	key   string
	size  int       // of the pool, from the newest request
	slots []*ticket // the holders by slot; longer than size while the pool drains
	held  int       // number of slots that are not nil
	low   int       // no slot below it is free
	due   instant   // no holder expires and no rest ends before it; zero only if neither will
	pool  *pool     // the records of the slots; nil for a plain key

	spot  int // of the shard's kept entries
	queue queue
	index map[string]*ticket // by token; nil for few tickets

	// The timer runs while there are waiters, until the first expiry. It
	// belongs to one generation: an entry that was removed and reused ignores
	// its old timer.
	timer      *time.Timer
	timerAt    instant
	generation uint64
}

func (e *entry) used() bool { return e.held > 0 || e.queue.len > 0 }

// idle reports whether e has nothing but its place among the kept entries.
func (e *entry) idle() bool { return !e.used() && e.pool == nil }

// reset prepares the unused entry e for its next use. It clears the fields that
// are set one by one: clearing the whole struct costs more during a garbage
// collection.
func (e *entry) reset() {
	if e.timer != nil {
		e.timer.Stop()
		e.timer, e.timerAt = nil, 0
	}
	if e.index != nil {
		e.index = nil
	}
	if e.pool != nil {
		e.pool = nil
	}
	if cap(e.slots) > spares {
		e.slots = nil
	}
	e.slots, e.low, e.due = e.slots[:0], 0, 0
	e.generation++
}

// find returns the holder or waiter with token.
func (e *entry) find(token string) *ticket {
	if e.index != nil {
		return e.index[token]
	}
	for _, t := range e.slots {
		if t != nil && t.grant.Token == token {
			return t
		}
	}
	for t := e.queue.head; t != nil; t = t.next {
		if t.grant.Token == token {
			return t
		}
	}
	return nil
}

// register makes t a holder or waiter of e, which is in use from now on.
func (e *entry) register(t *ticket) {
	t.entry = e
	if e.pool != nil {
		e.pool.forgetAt = 0
	}
	if e.index != nil {
		e.index[t.grant.Token] = t
	} else if e.held+e.queue.len >= indexed {
		e.buildIndex()
		e.index[t.grant.Token] = t
	}
}

func (e *entry) buildIndex() {
	e.index = make(map[string]*ticket, 2*indexed)
	for _, t := range e.slots {
		if t != nil {
			e.index[t.grant.Token] = t
		}
	}
	for t := e.queue.head; t != nil; t = t.next {
		e.index[t.grant.Token] = t
	}
}

// settle updates e to the state at now: it ends expired grants and rests, and
// serves the queue.
func (e *entry) settle(now instant) {
	if e.due == 0 || now < e.due {
		return
	}
	e.due = 0
	for _, t := range e.slots {
		switch {
		case t == nil:
		case now < t.expires:
			e.dueBy(t.expires)
		default:
			e.free(t)
			e.abandoned(t, driver.LeftExpired, now)
			e.shard.own(t, nil)
		}
	}
	if e.pool != nil {
		e.endRests(now)
	}
	e.serve(now)
}

func (e *entry) dueBy(at instant) {
	if e.due == 0 || at < e.due {
		e.due = at
	}
}

// resize sets the size of the pool to n. It returns the previous size, or 0 if
// it did not change or nobody uses the pool.
func (e *entry) resize(n int, now instant) int {
	if e.size == n {
		return 0
	}
	before := e.size
	e.size = n
	if e.pool != nil {
		e.pool.shrink(n, e.shard.wall(now))
	}
	if !e.used() {
		return 0 // L15: its last lease has expired, or only its records are left
	}
	e.serve(now)
	return before
}

// room returns the slot for a request with want, which may be nil, or -1 if it
// cannot be granted now: of a pool with states the slot that the pool chooses,
// else the lowest free one.
func (e *entry) room(want *driver.Pool) int {
	if e.held >= e.size || e.shard.shut { // L1
		return -1
	}
	if e.pool != nil {
		return e.pool.choose(want, e.size)
	}
	for e.low < len(e.slots) && e.slots[e.low] != nil {
		e.low++
	}
	return e.low
}

// grant gives t the slot, which must be free, for the time life.
func (e *entry) grant(t *ticket, slot int, life time.Duration, now instant) {
	e.register(t)
	t.grant.Slot = slot
	e.put(t)
	if e.pool != nil {
		e.pool.lend(t, now)
	}
	t.grant.Fence = e.shard.fences.reserve(t.grant.Fences, now)
	if t.local && t.lost == nil {
		t.lost = make(chan error)
	}
	t.grant.Lost = t.lost
	t.state = granted
	e.expireAfter(t, life, now)
}

// expireAfter sets the end of t, and the time until which its grant is surely
// live.
func (e *entry) expireAfter(t *ticket, life time.Duration, now instant) {
	t.expires = now.add(life)
	t.grant.Deadline = e.shard.clock.time(now.add(life - driver.Margin(life)))
	e.dueBy(t.expires)
}

// put puts t into its slot, which must be free.
func (e *entry) put(t *ticket) {
	for len(e.slots) <= t.grant.Slot {
		e.slots = append(e.slots, nil)
	}
	e.slots[t.grant.Slot] = t
	e.held++
}

// free takes back the slot of t. The caller must then note the state of the
// slot, and serve the queue.
func (e *entry) free(t *ticket) {
	slot := t.grant.Slot
	e.slots[slot] = nil
	e.low = min(e.low, slot)
	e.held--
	delete(e.index, t.grant.Token)
}

// freeByForce takes back the slots whose grants f covers.
func (e *entry) freeByForce(f *driver.Force, now instant) []*ticket {
	taken := make([]*ticket, 0, e.held)
	for _, t := range e.slots {
		if t != nil && f.Covers(&t.grant) {
			taken = append(taken, t)
			e.free(t)
			e.abandoned(t, driver.LeftForced, now)
		}
	}
	return taken
}

// extend sets the life of t to ttl from now, which may shorten it.
func (e *entry) extend(t *ticket, ttl time.Duration, now instant) {
	t.grant.TTL = ttl
	e.expireAfter(t, ttl, now)
	e.watch(now)
}

// enqueue puts t in its place in the queue.
func (e *entry) enqueue(t *ticket, now instant) {
	e.register(t)
	t.grant.Queued = true
	e.queue.push(t)
	e.watch(now)
}

// withdraw removes a waiter from the queue and ends its local calls with the
// error why.
func (e *entry) withdraw(t *ticket, why error) {
	e.queue.remove(t)
	delete(e.index, t.grant.Token)
	t.state, t.err = refused, why
	e.shard.own(t, nil)
	if t.done != nil {
		close(t.done)
	}
}

// refuse withdraws a waiter and notifies its owner too.
func (e *entry) refuse(t *ticket, why error) {
	e.shard.notify(Refused, t, why)
	e.withdraw(t, why)
}

// serve grants free slots to the head of the queue.
func (e *entry) serve(now instant) {
	for e.queue.len > 0 {
		t := e.queue.head
		slot := e.room(t.pool)
		if slot < 0 {
			break
		}
		e.queue.remove(t)
		e.grant(t, slot, e.life(t), now)
		if t.done != nil {
			close(t.done)
		}
		e.shard.notify(Granted, t, nil)
		e.shard.sweepBy(t.expires)
	}
	if e.pool != nil && !e.shard.shut && e.pool.exhausted(e.size) {
		e.refuseAll(now)
	}
	e.watch(now)
}

// life returns the initial life of the grant of t after a wait.
func (e *entry) life(t *ticket) time.Duration {
	if window := e.shard.window; window > 0 && t.owner != nil && !t.grant.NoRenew {
		return min(t.grant.TTL, window)
	}
	return t.grant.TTL
}

// watch arms the timer if there are waiters and an expiry, or the end of a rest,
// before the timer's time (P11).
func (e *entry) watch(now instant) {
	if e.queue.len == 0 || e.due == 0 {
		return
	}
	if e.timerAt != 0 && e.due >= e.timerAt {
		return // it fires in time, and is then set again
	}
	e.timerAt = e.due
	if e.timer != nil {
		e.timer.Reset(e.due.sub(now))
		return
	}
	s, generation := e.shard, e.generation
	e.timer = time.AfterFunc(e.due.sub(now), func() { s.expire(e, generation) })
}

// expire runs when the timer of e fires. It is a method of the shard because
// the shard's mutex guards e.
func (s *shard) expire(e *entry, generation uint64) {
	s.mu.Lock()
	defer s.unlock()
	if e.generation != generation {
		return
	}
	now := s.clock.now()
	e.timerAt = 0
	e.settle(now)
	e.watch(now)
	s.tidy(e, now)
}

// close ends the waiters and stops the timer. Holders keep their grants.
func (e *entry) close() {
	if e.timer != nil {
		e.timer.Stop()
	}
	for e.queue.len > 0 {
		e.refuse(e.queue.head, driver.ErrClosed)
	}
}

// busy returns the error with the holders ahead of t, or ahead of a request
// that does not wait if t is nil.
func (e *entry) busy(t *ticket, now instant, cause error) *driver.NotAcquiredError {
	err := &driver.NotAcquiredError{Key: e.key, Err: cause}
	if t != nil {
		err.Position = e.queue.position(t)
		err.Resized = t.grant.Resized
	}
	if e.pool != nil && e.pool.exhausted(e.size) { // P8: holders of numbers beyond the size are not in the way
		err.Withdrawn = true
		return err
	}
	for _, h := range e.slots {
		if h != nil && len(err.Holders) < driver.MaxHolders {
			err.Holders = append(err.Holders, h.holding(now))
		}
	}
	return err
}

func (e *entry) state(now instant) driver.State {
	s := driver.State{Key: e.key, Size: e.size, LastRun: e.shard.lastRun(e.key, now)} // O4
	for _, t := range e.slots {
		if t != nil {
			s.Holders = append(s.Holders, t.holding(now))
		}
	}
	for t := e.queue.head; t != nil; t = t.next {
		s.Waiters = append(s.Waiters, t.holder)
	}
	if e.pool != nil {
		s.Slots = e.pool.states(e.size, now, e.shard.wall(now))
	}
	return s
}
