package windows

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

const (
	// slack is how long an entry may stay after it has passed. It bounds how
	// often a shard is swept, and so the cost of sweeping.
	slack = 5 * time.Second
	// roomy is the size from which an emptied map is replaced, because maps do
	// not free their memory.
	roomy = 64
	// maxNap bounds the time of the sweeper's timer, because a clock that steps
	// would make a longer one late.
	maxNap = time.Hour
)

// shard is a part of the table, with its own mutex.
type shard struct {
	mu      sync.Mutex // guards everything below, the entries included
	entries map[string]*entry
	peak    int    // maximum of entries since the map was made
	spare   *entry // of the last key without a state
	now     func() int64
	closed  bool

	// One timer removes what has passed of all keys.
	sweeper *time.Timer
	sweepAt int64 // 0 while not armed

	_ [64]byte // keeps other shards off this cache line
}

// open returns the entry of key, a new one if there is none, and its time. The
// caller holds s.mu, and calls keep after the operation.
func (s *shard) open(key string) (*entry, int64, error) {
	if s.closed {
		return nil, 0, driver.ErrClosed
	}
	e := s.entries[key]
	if e == nil {
		e, s.spare = s.spare, nil
		if e == nil {
			e = new(entry)
		}
		e.key = key
	}
	return e, e.settle(s.now()), nil
}

// keep stores e if its key has a state, and forgets it otherwise. The caller
// holds s.mu.
func (s *shard) keep(e *entry) {
	if due := e.due(); due+e.lead > e.latest {
		s.sweepBy(due)
		if !e.kept {
			e.kept, s.entries[e.key] = true, e
			s.peak = max(s.peak, len(s.entries))
		}
		return
	}
	if e.kept {
		delete(s.entries, e.key)
	}
	*e = entry{logs: e.logs[:0]}
	s.spare = e
}

func (s *shard) list(prefix string) (states []driver.State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, driver.ErrClosed
	}
	for key, e := range s.entries {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		// A key may be kept for the memory of a ticket alone.
		if state := e.state(nil, e.settle(s.now())); len(state.Rates)+len(state.Waiters) > 0 || state.Paused != nil {
			states = append(states, state)
		}
	}
	return states, nil
}

func (s *shard) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		e.tickets = slices.DeleteFunc(e.tickets, func(t ticket) bool { return t.id == id && t.waiting })
	}
}

func (s *shard) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.entries = nil
	if s.sweeper != nil {
		s.sweeper.Stop()
	}
	s.sweepAt = 0
}

func (s *shard) count() (keys, marks, timers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweepAt != 0 {
		timers++
	}
	for _, e := range s.entries {
		for i := range e.logs {
			marks += len(e.logs[i].marks) - e.logs[i].first
		}
	}
	return len(s.entries), marks, timers
}

// sweepBy arms the sweeper so that an entry that has passed at due is removed
// within slack. The caller holds s.mu.
func (s *shard) sweepBy(due int64) {
	if s.sweepAt != 0 && due+slack.Microseconds() >= s.sweepAt {
		return
	}
	now := s.now()
	nap := min(max(micros(due-now), 0)+slack, maxNap)
	s.sweepAt = now + nap.Microseconds()
	if s.sweeper == nil {
		s.sweeper = time.AfterFunc(nap, s.sweep)
	} else {
		s.sweeper.Reset(nap)
	}
}

// sweep forgets the keys without a state.
func (s *shard) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.sweepAt = 0
	clock, next := s.now(), int64(0)
	for _, e := range s.entries {
		now := e.settle(clock)
		e.logs = slices.DeleteFunc(e.logs, func(l log) bool { return max(l.end(), l.last+l.per) <= now })
		if due := e.due(); due+e.lead <= now {
			delete(s.entries, e.key)
		} else if next == 0 || due < next {
			next = due
		}
	}
	if s.peak > roomy && len(s.entries) < s.peak/8 {
		entries := make(map[string]*entry, len(s.entries))
		maps.Copy(entries, s.entries)
		s.entries, s.peak = entries, len(entries)
	}
	if next != 0 {
		s.sweepBy(next)
	}
}
