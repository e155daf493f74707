package table

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

const (
	// slack is how long an unused expired entry may stay. It limits how often a
	// shard is swept, and so the cost of sweeping.
	slack = 5 * time.Second
	// spares is the number of unused entries, and of tickets, that a shard keeps.
	spares = 16
	// roomy is the size from which an emptied map is replaced, because maps do
	// not free their memory.
	roomy = 64
)

// shard is a part of the table, with its own mutex. Its methods lock it; the
// methods of entry and departed expect it locked.
type shard struct {
	mu      sync.Mutex        // guards everything below, the entries and tickets included
	entries map[string]*entry // in use, or in kept
	peak    int               // maximum of entries since the map was made
	gone    departed
	runs    map[string]*recorded // the last runs, by key; nil for none
	clock   *clock
	fences  *fences
	index   int // among the shards
	window  time.Duration
	shut    bool // requests are queued and not granted
	closed  bool
	outbox  []Event // delivered by unlock

	// One timer removes the expired entries of all keys. A release does not
	// move it, so that a lease costs no timer operation.
	sweeper *time.Timer
	sweptBy instant // the first expiry that it is armed for; zero while not armed

	// The newest entries stay after their use, because a key is often locked
	// again soon: kept[oldest] is the next one to make room.
	kept   [spares]*entry
	oldest int

	spareTickets []*ticket

	_ [64]byte // keeps other shards off this cache line
}

func (s *shard) open(t *Table, index int, c Config) {
	s.entries = make(map[string]*entry)
	s.clock, s.fences = &t.clock, &t.fences
	s.index, s.window, s.shut = index, c.Window, c.Shut
}

// acquire writes a grant to g, or returns a queued ticket, or an error. With a
// ticket it writes only the earlier size of the pool.
func (s *shard) acquire(r *driver.Request, now instant, g *driver.Grant) (*ticket, error) {
	s.mu.Lock()
	defer s.unlock()
	t, err := s.request(r, nil, 0, now)
	switch {
	case err != nil:
		return nil, err
	case t.state == granted:
		*g = t.grant
		return nil, nil
	case t.done == nil:
		t.done = make(chan struct{})
	}
	g.Resized = t.grant.Resized
	t.calls++
	return t, nil
}

// ask returns a grant, or an error, or reports in wait that r is queued; o is
// then notified of the outcome.
func (s *shard) ask(r *driver.Request, o *Owner, since int64, now instant) (g driver.Grant, wait bool, err error) {
	s.mu.Lock()
	defer s.unlock()
	t, err := s.request(r, o, since, now)
	if err != nil {
		return driver.Grant{}, false, err
	}
	s.own(t, o)
	if t.state == granted {
		return t.grant, false, nil
	}
	return driver.Grant{Resized: t.grant.Resized}, true, nil
}

// request returns the ticket of r, granted or queued. For a repeated request,
// the ticket already exists.
func (s *shard) request(r *driver.Request, o *Owner, since int64, now instant) (*ticket, error) {
	if s.closed {
		return nil, driver.ErrClosed
	}
	if err := s.gone.find(r.Token); err != nil {
		return nil, err
	}
	e := s.entryFor(r, now)
	e.settle(now)
	if t := e.find(r.Token); t != nil {
		return t, nil
	}
	if r.Fixed && e.size != r.Slots && e.used() { // P9
		return nil, &driver.PoolSizeError{Key: r.Key, Size: e.size, Asked: r.Slots}
	}
	newest := o == nil || e.queue.len == 0 || since >= e.queue.tail.since // L15
	resized := e.configure(r, newest, now)
	slot := e.room(r.Pool) // if there is one, the queue is empty
	if slot < 0 && !r.At.IsZero() {
		now = s.clock.now() // as in release: the caller may have been stopped since it read the clock
		e.settle(now)
		slot = e.room(r.Pool)
	}
	if slot < 0 && !s.shut {
		if err := e.refusal(r, resized, now); err != nil {
			return nil, err
		}
	}
	t := s.ticket(r)
	t.grant.Resized = resized
	if slot >= 0 {
		t.local = o == nil
		e.grant(t, slot, t.grant.TTL, now)
		s.sweepBy(t.expires)
		return t, nil
	}
	t.local, t.hasty, t.since = o == nil, r.Wait == 0, since
	e.enqueue(t, now)
	return t, nil
}

// entryFor returns the entry of the key of r, which it adds if there is none.
func (s *shard) entryFor(r *driver.Request, now instant) *entry {
	e := s.entries[r.Key]
	if e != nil && e.pool != nil && s.tidy(e, now) { // P10: the sweeper comes later
		e = nil
	}
	if e == nil {
		e = s.add(r.Key, r.Slots)
	}
	return e
}

// configure gives e the size and the quarantine of r, if r is the newest request. It
// returns the size before, or 0 if it did not change.
func (e *entry) configure(r *driver.Request, newest bool, now instant) (resized int) {
	if newest {
		resized = e.resize(r.Slots, now)
	}
	if r.Pool != nil {
		if p := e.track(); newest {
			p.quarantine = r.Pool.Quarantine
		}
	}
	return resized
}

// refusal returns why r, for which there is no room, is not queued either; or nil.
// Requests that are repeated at a shut table, after a take-over, are not refused.
func (e *entry) refusal(r *driver.Request, resized int, now instant) error {
	withdrawn := e.pool != nil && e.pool.exhausted(e.size)  // P8
	full := r.Wait != 0 && e.queue.len >= driver.MaxTickets // L10
	if r.Wait != 0 && !withdrawn && !full {
		return nil
	}
	err := e.busy(nil, now, nil)
	err.Full, err.Resized = full && !withdrawn, resized
	return err
}

// wait waits until t is served, the wait has passed or ctx has ended.
func (s *shard) wait(ctx context.Context, t *ticket, since instant, wait time.Duration) (driver.Grant, error) {
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait - s.clock.now().sub(since))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-t.done:
	case <-over:
	case <-ctx.Done():
		if driver.Paused(ctx) {
			return driver.Grant{}, driver.ErrPaused
		}
	}
	return s.leave(t, ctx.Err())
}

// leave ends the wait of t and returns its outcome. A grant that arrived at the
// same instant as the end of the wait is not lost: leave returns it.
func (s *shard) leave(t *ticket, cause error) (driver.Grant, error) {
	s.mu.Lock()
	defer s.unlock()
	switch t.state {
	case granted:
		return t.grant, nil
	case refused:
		return driver.Grant{}, t.err
	}
	e := t.entry
	now := s.clock.now()
	err := e.busy(t, now, cause)
	if t.calls--; t.calls == 0 {
		e.withdraw(t, err)
		s.tidy(e, now)
	}
	return driver.Grant{}, err
}

// giveUp removes a ticket that has an owner, as leave does for others.
func (s *shard) giveUp(key, token string, now instant) (driver.Grant, error) {
	s.mu.Lock()
	defer s.unlock()
	t := s.find(key, token, now)
	if t == nil {
		return driver.Grant{}, s.bar(key, token, now)
	}
	if t.state == granted {
		return t.grant, nil
	}
	e := t.entry
	err := e.busy(t, now, nil)
	e.withdraw(t, err)
	s.tidy(e, now)
	return driver.Grant{}, err
}

func (s *shard) renew(g *driver.Grant, now instant) (time.Time, error) {
	s.mu.Lock()
	defer s.unlock()
	t, err := s.live(g, now)
	if err != nil {
		return time.Time{}, err
	}
	if g.Rev < t.grant.Rev {
		return t.grant.Deadline, nil // L12: a late copy of an older request changes nothing
	}
	t.grant.Rev = g.Rev
	if !g.NoRenew {
		t.entry.extend(t, g.TTL, now)
		s.sweepBy(t.expires)
	}
	return t.grant.Deadline, nil
}

func (s *shard) release(g *driver.Grant, now instant) error {
	s.mu.Lock()
	defer s.unlock()
	t := s.find(g.Key, g.Token, now)
	if t == nil {
		return s.bar(g.Key, g.Token, now)
	}
	e := t.entry
	if t.state == queued {
		e.withdraw(t, &driver.LostError{Key: g.Key, Cause: driver.Expired})
	} else {
		e.free(t)
		if e.pool != nil {
			e.handedBack(t, g.Handback, now)
		}
		s.own(t, nil)
		if e.queue.len > 0 {
			now = s.clock.now() // the caller may have been stopped since it read the clock, and timers are set by this time
		}
		e.serve(now)
		s.recycle(t)
	}
	s.tidy(e, now)
	return nil
}

// bar refuses all later requests with token, which was released before its
// request arrived.
func (s *shard) bar(key, token string, now instant) error {
	err := s.lost(key, token)
	s.gone.add(token, err, now)
	s.sweepBy(now.add(remembered))
	return err
}

// lost returns the error for a grant that is not live.
func (s *shard) lost(key, token string) error {
	if err := s.gone.find(token); err != nil {
		return err
	}
	return &driver.LostError{Key: key, Cause: driver.Expired}
}

// force ends the grants of the key that f covers. It also returns the events for
// the owners.
func (s *shard) force(key string, f *driver.Force, now instant) (int, []Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, nil, driver.ErrClosed
	}
	if s.shut { // L16: a lease may not be reported yet
		return 0, nil, ErrShut
	}
	e := s.settled(key, now)
	if e == nil {
		return 0, s.takeEvents(), nil
	}
	lost := &driver.LostError{Key: key, Cause: driver.Forced, Reason: f.Reason, By: f.By}
	taken := e.freeByForce(f, now)
	for _, t := range taken {
		s.gone.add(t.grant.Token, lost, now)
		s.notify(Lost, t, lost)
		s.own(t, nil)
		if t.lost != nil {
			close(t.lost)
		}
	}
	s.sweepBy(now.add(remembered))
	e.serve(now)
	s.tidy(e, now)
	return len(taken), s.takeEvents(), nil
}

func (s *shard) heal(key string, slot int, by driver.Holder, now instant) error {
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return driver.ErrClosed
	}
	if e := s.settled(key, now); e != nil {
		e.heal(slot, by, now)
		s.tidy(e, now) // a pool without a withdrawn slot is forgotten again
	}
	return nil
}

func (s *shard) inspect(key string, now instant) (driver.State, error) {
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return driver.State{}, driver.ErrClosed
	}
	if e := s.settled(key, now); e != nil {
		return e.state(now), nil
	}
	return driver.State{Key: key, Size: 1, LastRun: s.lastRun(key, now)}, nil
}

func (s *shard) list(prefix string, now instant) ([]driver.State, error) {
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return nil, driver.ErrClosed
	}
	var states []driver.State
	for key := range s.entries {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if e := s.settled(key, now); e != nil {
			states = append(states, e.state(now))
		}
	}
	return states, nil
}

func (s *shard) close() {
	s.mu.Lock()
	defer s.unlock()
	s.closed = true
	if s.sweeper != nil {
		s.sweeper.Stop()
	}
	for _, e := range s.entries {
		e.close()
		s.tidy(e, s.clock.now())
	}
}

func (s *shard) count() (keys, gone, timers int) {
	s.mu.Lock()
	defer s.unlock()
	if s.sweptBy != 0 {
		timers++
	}
	for _, e := range s.entries {
		if !e.idle() {
			keys++
		}
		if e.timerAt != 0 {
			timers++
		}
	}
	return keys, len(s.gone.order), timers
}
