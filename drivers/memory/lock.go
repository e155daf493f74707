package memory

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// shardCount is how many keys can be worked on at once; a power of two.
const shardCount = 64

// Lock is a lock driver of scope Process. Its queue is always strict.
type Lock struct {
	seed   maphash.Seed
	clock  clock
	fences fences
	shards [shardCount]shard
}

var _ driver.Driver = (*Lock)(nil)

// NewLock returns an empty driver. Two of them know nothing of each other: a
// process makes one.
func NewLock() *Lock {
	l := &Lock{seed: maphash.MakeSeed(), clock: clock{time.Now()}}
	for i := range l.shards {
		l.shards[i].open(l.clock, &l.fences)
	}
	return l
}

// clock is time.Now at half its price: only the monotonic clock is read.
type clock struct{ base time.Time }

func (c clock) now() time.Time { return c.base.Add(time.Since(c.base)) }

func (l *Lock) shard(key string) *shard {
	return &l.shards[maphash.String(l.seed, key)%shardCount]
}

// Info names the driver.
func (l *Lock) Info() driver.Info {
	return driver.Info{Name: "memory", Scope: driver.Process}
}

// Acquire implements [driver.Driver]. When ctx ends its wait the outcome is
// known: nothing is held and nothing queued, and the error is a
// *driver.NotAcquiredError around ctx's.
func (l *Lock) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, &driver.NotAcquiredError{Key: r.Key, Err: err}
	}
	s := l.shard(r.Key)
	now := l.clock.now()
	g, queued, err := s.acquire(&r, now)
	if queued == nil {
		return g, err
	}
	return s.wait(ctx, queued, now, r.Wait)
}

// Renew implements [driver.Driver].
func (l *Lock) Renew(_ context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	for i := range grants {
		g := &grants[i]
		renewals[i].Deadline, renewals[i].Err = l.shard(g.Key).renew(g, l.clock.now())
	}
	return renewals
}

// Release implements [driver.Driver].
func (l *Lock) Release(_ context.Context, g driver.Grant) error {
	return l.shard(g.Key).release(g.Key, g.Token, l.clock.now())
}

// ForceRelease implements [driver.Driver].
func (l *Lock) ForceRelease(_ context.Context, key, reason string, by driver.Holder) (int, error) {
	lost := &driver.LostError{Key: key, Cause: driver.Forced, Reason: reason, By: by}
	return l.shard(key).force(lost, l.clock.now())
}

// Inspect implements [driver.Driver].
func (l *Lock) Inspect(_ context.Context, key string) (driver.State, error) {
	return l.shard(key).inspect(key, l.clock.now())
}

// List implements [driver.Driver]. Each state is of one instant, not all of
// the same.
func (l *Lock) List(_ context.Context, prefix string) ([]driver.State, error) {
	var states []driver.State
	for i := range l.shards {
		more, err := l.shards[i].list(prefix, l.clock.now())
		if err != nil {
			return nil, err
		}
		states = append(states, more...)
	}
	slices.SortFunc(states, func(a, b driver.State) int { return cmp.Compare(a.Key, b.Key) })
	return states, nil
}

// Close implements [driver.Driver]. Grants can still be renewed and released
// until they expire.
func (l *Lock) Close(context.Context) error {
	for i := range l.shards {
		l.shards[i].close()
	}
	return nil
}
