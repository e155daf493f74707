// Package windows keeps limits in memory: for each key the logs of its grants,
// the queue of the processes that wait, and its pause. Package limit/driver
// describes what the methods do.
//
// It is the engine of the memory driver and of the hub of the cluster driver,
// and package limit uses it where each process allows a share by itself. No
// method waits: a process that waits asks again, as it does on every driver.
//
// # How it works
//
// A key has one log for each Per, which is a list of times and of the sums of
// the units granted until then. Units in a window are the difference of two
// sums, so a decision costs one comparison if the request is granted, and one
// search if it is not, for any N (log.go). Above N = 128 times are rounded
// up to Per/128, so that a log has at most 129 entries more than its debts.
//
// An entry holds the logs of a key, and the tickets in their order (entry.go).
// Everything that has passed is dropped by the next operation of its key, or by
// the sweeper of its shard (shard.go).
package windows

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

// shardCount is the number of shards, which can be used concurrently; a power
// of two.
const shardCount = 64

// Table is a table of limits. Its methods may be called concurrently.
type Table struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

// New returns an empty table. now is its clock, in microseconds since 1970; it
// may step. Nil means the time of day at the call and the time since then, which does
// not step.
func New(now func() int64) *Table {
	if now == nil {
		base := time.Now()
		now = func() int64 { return base.UnixMicro() + time.Since(base).Microseconds() }
	}
	t := &Table{seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].entries = make(map[string]*entry)
		t.shards[i].now = now
	}
	return t
}

func (t *Table) shard(key string) *shard {
	return &t.shards[maphash.String(t.seed, key)%shardCount]
}

// Take decides about r. It does not keep r.
func (t *Table) Take(r *driver.Request) (driver.Answer, error) {
	s := t.shard(r.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now, err := s.open(r.Key)
	if err != nil {
		return driver.Answer{}, err
	}
	a := e.take(r, now)
	s.keep(e)
	return a, nil
}

// Withdraw ends a request of a ticket, and returns its units if it was granted.
func (t *Table) Withdraw(r *driver.Request) error {
	return t.change(r.Key, func(e *entry, now int64) { e.withdraw(r, now) })
}

// Settle changes the units of a grant.
func (t *Table) Settle(s *driver.Settlement) error {
	return t.change(s.Key, func(e *entry, now int64) { e.correct(s, now) })
}

// Pause grants nothing of key for p.Left.
func (t *Table) Pause(key string, p driver.Pause) error {
	return t.change(key, func(e *entry, now int64) { e.stop(p, now) })
}

// Reset forgets the logs and the pause of key.
func (t *Table) Reset(key string) error {
	return t.change(key, func(e *entry, _ int64) { e.logs, e.pausedTo = nil, 0 })
}

// change runs f on the entry of key.
func (t *Table) change(key string, f func(e *entry, now int64)) error {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now, err := s.open(key)
	if err == nil {
		f(e, now)
		s.keep(e)
	}
	return err
}

// Inspect returns the state of key for these rates; without rates, for all rates
// that have used units.
func (t *Table) Inspect(key string, rates []driver.Rate) (state driver.State, err error) {
	err = t.change(key, func(e *entry, now int64) { state = e.state(rates, now) })
	return state, err
}

// List returns the state of every key in use that begins with prefix, sorted.
// Each state is of one instant, but not all of the same instant.
func (t *Table) List(prefix string) ([]driver.State, error) {
	var states []driver.State
	for i := range t.shards {
		more, err := t.shards[i].list(prefix)
		if err != nil {
			return nil, err
		}
		states = append(states, more...)
	}
	slices.SortFunc(states, func(a, b driver.State) int { return cmp.Compare(a.Key, b.Key) })
	return states, nil
}

// Drop removes the queued tickets of a process that has gone, from all keys, and
// costs a look at each of them.
func (t *Table) Drop(ticket string) {
	for i := range t.shards {
		t.shards[i].drop(ticket)
	}
}

// Close ends the timers. Later calls return driver.ErrClosed.
func (t *Table) Close() {
	for i := range t.shards {
		t.shards[i].close()
	}
}

// Size returns the number of keys, of the entries in their logs, and of armed
// timers. It is for tests of leaks.
func (t *Table) Size() (keys, marks, timers int) {
	for i := range t.shards {
		k, m, n := t.shards[i].count()
		keys, marks, timers = keys+k, marks+m, timers+n
	}
	return keys, marks, timers
}
