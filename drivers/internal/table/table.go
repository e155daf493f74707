// Package table keeps locks in memory: the holders of a key, its waiters in
// order, the next fence, and the tokens that must not be used again.
//
// It is the engine of the memory driver and of the hub of the cluster driver. A
// caller in the same process waits in Acquire. A hub, which must never wait,
// calls Ask on behalf of an [Owner] and receives the outcome as an event. The
// order is always strict.
package table

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// shardCount is the number of shards, which can be used concurrently; a power
// of two.
const shardCount = 64

// Table is a table of locks. Its methods may be called concurrently.
type Table struct {
	seed   maphash.Seed
	clock  clock
	fences fences // shared by all keys
	shards [shardCount]shard
}

// Config configures a table.
type Config struct {
	// Now is the clock of all TTLs. It is monotonic. Nil means time.Now.
	Now func() time.Time
	// Micros returns the microseconds since 1970, the lower bound of fences. Nil
	// takes the time of day once, and adds what Now counts.
	Micros func() uint64
	// Window, if it is not 0, is the initial life of an owner's grant after a
	// wait, except under NoRenew. It limits the delay that others have when a
	// process is stopped at the moment of its grant.
	Window time.Duration
	// Shut makes a table that grants nothing until Open is called.
	Shut bool
}

// New returns an empty table.
func New(c Config) *Table {
	t := &Table{seed: maphash.MakeSeed(), clock: newClock(c)}
	t.fences.clock = &t.clock
	for i := range t.shards {
		t.shards[i].open(t, i, c)
	}
	return t
}

func (t *Table) shard(key string) *shard {
	return &t.shards[maphash.String(t.seed, key)%shardCount]
}

// Request implements Ask of [driver.Asker]. A free key is granted without a look at
// a context, at which the front has just looked. If its context ends the wait, the
// outcome is known: nothing is held or queued, and the error is a
// *driver.NotAcquiredError that wraps the context's error.
func (t *Table) Request(r *driver.Request) (g driver.Grant, wait func(context.Context) (driver.Grant, error), err error) {
	s := t.shard(r.Key)
	now, patience := t.clock.called(r.At), r.Wait
	queued, err := s.acquire(r, now, &g)
	if queued != nil {
		wait = func(ctx context.Context) (driver.Grant, error) { return s.wait(ctx, queued, now, patience) }
	}
	return g, wait, err
}

// Ask requests a lease on behalf of o and does not wait. It returns the grant,
// or reports in wait that the request is queued: o then receives the outcome as
// an event, and may end the wait with Leave. While the table is shut, a request
// that does not wait is queued too.
//
// The queue of a key is in the order of since, the time of the first request,
// in units of the caller's choice: a request that is repeated at another table,
// with the original time, gets its place back (L7).
func (t *Table) Ask(r *driver.Request, o *Owner, since int64) (g driver.Grant, wait bool, err error) {
	return t.shard(r.Key).ask(r, o, since, t.clock.now())
}

// Leave withdraws a request, and returns the holders ahead of it in a
// *driver.NotAcquiredError. If the request was granted at the same instant,
// Leave returns the grant.
func (t *Table) Leave(key, token string) (driver.Grant, error) {
	return t.shard(key).giveUp(key, token, t.clock.now())
}

// Renew sets the life of a grant to its TTL from now, unless g has NoRenew set
// or a lower Rev than an earlier call, and returns the time until which the
// grant is surely live.
func (t *Table) Renew(g *driver.Grant) (time.Time, error) {
	return t.shard(g.Key).renew(g, t.clock.now())
}

// Release ends the grant or withdraws the request with g's key and token, and
// stores g.Handback, which may be nil. Without a grant and a request, the table
// refuses the token from now on.
func (t *Table) Release(g *driver.Grant) error {
	return t.shard(g.Key).release(g, t.clock.called(g.At))
}

// Force ends the grants of key that f covers, notifies the owners, and serves the
// queue. It returns the number of ended grants. If first is not nil, it is called
// with that number before any owner is notified, because the caller may depend on a
// grant that it ends. While the table is shut, the error is ErrShut.
func (t *Table) Force(key string, f driver.Force, first func(n int)) (int, error) {
	s := t.shard(key)
	n, events, err := s.force(key, &f, t.clock.now())
	if err == nil && first != nil {
		first(n)
	}
	deliver(events)
	return n, err
}

// Heal makes a withdrawn or resting slot dirty, and serves the queue.
func (t *Table) Heal(key string, slot int, by driver.Holder) error {
	return t.shard(key).heal(key, slot, by, t.clock.now())
}

// Inspect returns the holders of key by slot, and its waiters in order.
func (t *Table) Inspect(key string) (driver.State, error) {
	return t.shard(key).inspect(key, t.clock.now())
}

// List returns the state of every key in use that begins with prefix, sorted.
// Each state is of one instant, but not all of the same instant.
func (t *Table) List(prefix string) ([]driver.State, error) {
	var states []driver.State
	for i := range t.shards {
		more, err := t.shards[i].list(prefix, t.clock.now())
		if err != nil {
			return nil, err
		}
		states = append(states, more...)
	}
	slices.SortFunc(states, func(a, b driver.State) int { return cmp.Compare(a.Key, b.Key) })
	return states, nil
}

// Close ends the waiters with driver.ErrClosed, and refuses new ones. Grants can
// still be renewed and released until they expire.
func (t *Table) Close() {
	for i := range t.shards {
		t.shards[i].close()
	}
}

// Size returns the number of keys in use, of tokens that must not be used
// again, and of armed timers. It is for tests of leaks.
func (t *Table) Size() (keys, gone, timers int) {
	for i := range t.shards {
		k, g, n := t.shards[i].count()
		keys, gone, timers = keys+k, gone+g, timers+n
	}
	return keys, gone, timers
}
