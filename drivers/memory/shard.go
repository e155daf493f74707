package memory

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

const (
	// slack is how long an expired entry that nobody asks for may lie about.
	// It bounds how often a shard is swept, and so what sweeping costs.
	slack = 5 * time.Second
	// spares is how many unused entries and tickets a shard keeps.
	spares = 16
	// roomy is the size from which a map that has emptied is made anew, since
	// maps do not give memory back by themselves.
	roomy = 64
)

// shard is a part of the table, with a lock of its own. Its methods lock it;
// those of entry and departed expect it locked.
type shard struct {
	mu      sync.Mutex // guards everything below, the entries and tickets included
	entries map[string]*entry
	peak    int // most entries since the map was made
	gone    departed
	clock   clock
	fences  *fences
	closed  bool

	// One timer collects the expired entries of all keys. It is not moved when
	// a lease is released, so that a lease costs no timer.
	sweeper *time.Timer
	sweepAt time.Time // zero while not armed

	spareEntries []*entry
	spareTickets []*ticket

	_ [64]byte // keeps neighbours off this cache line
}

func (s *shard) open(c clock, f *fences) {
	s.entries = make(map[string]*entry)
	s.clock, s.fences = c, f
}

// acquire returns a grant, or a ticket to wait for, or an error.
func (s *shard) acquire(r *driver.Request, now time.Time) (driver.Grant, *ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.Grant{}, nil, driver.ErrClosed
	}
	if err := s.gone.find(r.Token, now); err != nil {
		return driver.Grant{}, nil, err
	}
	e := s.entries[r.Key]
	if e == nil {
		e = s.add(r.Key, r.Slots)
	}
	e.settle(now)
	if t := e.find(r.Token); t != nil {
		return t.again()
	}
	resized := e.resize(r.Slots, now)
	if e.hasRoom() {
		t := s.ticket(r)
		t.grant.Resized = resized
		e.grant(t, now)
		s.sweepBy(t.expires)
		return t.grant, nil, nil
	}
	if r.Wait == 0 {
		return driver.Grant{}, nil, e.busy(nil, now, nil)
	}
	t := s.ticket(r)
	t.grant.Resized = resized
	e.enqueue(t, now)
	return driver.Grant{}, t, nil
}

// wait waits until t is served, the wait has passed or ctx has ended.
func (s *shard) wait(ctx context.Context, t *ticket, since time.Time, wait time.Duration) (driver.Grant, error) {
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-t.done:
	case <-over:
	case <-ctx.Done():
	}
	return s.leave(t, since, ctx.Err())
}

// leave takes what t has come to. A grant that arrived in the same instant in
// which the wait ended is kept: it is either with the caller or in the queue,
// never nowhere.
func (s *shard) leave(t *ticket, since time.Time, cause error) (driver.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t.state {
	case granted:
		return t.grant, nil
	case refused:
		return driver.Grant{}, t.err
	}
	e := t.entry
	err := e.busy(t, since, cause)
	if t.calls--; t.calls == 0 {
		e.withdraw(t, err)
		s.tidy(e)
	}
	return driver.Grant{}, err
}

func (s *shard) renew(g *driver.Grant, now time.Time) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.settled(g.Key, now)
	if e == nil {
		return time.Time{}, s.lost(g.Key, g.Token, now)
	}
	t := e.find(g.Token)
	if t == nil || t.state != granted {
		return time.Time{}, s.lost(g.Key, g.Token, now)
	}
	if !g.NoRenew {
		e.extend(t, g.TTL, now)
		s.sweepBy(t.expires)
	}
	return t.grant.Deadline, nil
}

func (s *shard) release(key, token string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.settled(key, now)
	if e == nil {
		return s.bar(key, token, now)
	}
	t := e.find(token)
	if t == nil {
		return s.bar(key, token, now)
	}
	if t.state == queued {
		e.withdraw(t, &driver.LostError{Key: key, Cause: driver.Expired})
	} else {
		e.free(t)
		e.serve(now)
		s.recycle(t)
	}
	s.tidy(e)
	return nil
}

// bar refuses whatever comes with token from now on: it was released before it
// was seen.
func (s *shard) bar(key, token string, now time.Time) error {
	err := s.lost(key, token, now)
	s.gone.add(token, err, now)
	s.sweepBy(now.Add(remembered))
	return err
}

// lost says what became of a grant that is not live.
func (s *shard) lost(key, token string, now time.Time) error {
	if err := s.gone.find(token, now); err != nil {
		return err
	}
	return &driver.LostError{Key: key, Cause: driver.Expired}
}

func (s *shard) force(lost *driver.LostError, now time.Time) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, driver.ErrClosed
	}
	e := s.settled(lost.Key, now)
	if e == nil {
		return 0, nil
	}
	taken := e.freeAll()
	for _, t := range taken {
		s.gone.add(t.grant.Token, lost, now)
		close(t.lost)
	}
	s.sweepBy(now.Add(remembered))
	e.serve(now)
	s.tidy(e)
	return len(taken), nil
}

func (s *shard) inspect(key string, now time.Time) (driver.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.State{}, driver.ErrClosed
	}
	if e := s.settled(key, now); e != nil {
		return e.state(now), nil
	}
	return driver.State{Key: key}, nil
}

func (s *shard) list(prefix string, now time.Time) ([]driver.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	defer s.mu.Unlock()
	s.closed = true
	if s.sweeper != nil {
		s.sweeper.Stop()
	}
	for _, e := range s.entries {
		e.close()
		s.tidy(e)
	}
}
