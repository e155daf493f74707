// Package locks measures locks: in memory, on Redis, on a node and around a store.
package locks

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

// The contestants in memory.
const (
	keyedMutex     = "keyed mutex"
	keyedSemaphore = "keyed semaphore"
)

// The ways to take mega's lock: on a context that nothing ends, as the others
// do, on a request's, which the lease has to watch, and around a function.
const (
	megaRequest = "mega, request"
	megaWith    = "mega, With"
)

// MemoryAlone takes and releases one free key. Batches of the contestants
// alternate; each batch's time is divided by its operations.
func MemoryAlone(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		return nil, err
	}
	plain, fn := context.Background(), func(context.Context) error { return nil }
	batches := map[string]measure.Batch{
		measure.Mega:   measure.Each(func() error { return acquireRelease(plain, locks) }),
		megaRequest:    measure.Each(func() error { return acquireRelease(ctx, locks) }),
		megaWith:       measure.Each(func() error { return locks.With(ctx, "product:42", fn) }),
		keyedMutex:     measure.Each(newKeyed(func() *sync.Mutex { return new(sync.Mutex) }).cycle((*sync.Mutex).Lock, (*sync.Mutex).Unlock)),
		keyedSemaphore: measure.Each(newKeyed(func() *semaphore.Weighted { return semaphore.NewWeighted(1) }).cycle(enter(plain), leave)),
	}
	times, allocs := measure.Samples{}, measure.Samples{}
	for range l.Reps(5) {
		if err := measure.QuietRep(l.Scale, batches, times, allocs); err != nil {
			return nil, errors.Join(err, locks.Close(ctx))
		}
	}
	return []measure.Claim{
		times.Absolute("Acquire + Release", "ns", keyedMutex, keyedSemaphore, megaRequest, megaWith).AtMost(500),
		times.Ratio("the same, as a multiple", "ns", keyedSemaphore),
		allocs.Absolute("allocations", "", megaRequest, megaWith).AtMost(3),
	}, locks.Close(ctx)
}

func acquireRelease(ctx context.Context, locks *lock.Locker) error {
	lease, err := locks.Acquire(ctx, "product:42")
	if err != nil {
		return err
	}
	return lease.Release()
}

// keyed is the lock by name that people write themselves: a map of locks that
// exist while they are used.
type keyed[L any] struct {
	mu     sync.Mutex // guards the map and the users in it
	locks  map[string]*used[L]
	create func() L
}

type used[L any] struct {
	lock  L
	users int
}

func newKeyed[L any](create func() L) *keyed[L] {
	return &keyed[L]{locks: map[string]*used[L]{}, create: create}
}

func (k *keyed[L]) cycle(take, leave func(L)) func() error {
	return func() error {
		l := k.enter("product:42")
		take(l)
		leave(l)
		k.exit("product:42")
		return nil
	}
}

func (k *keyed[L]) enter(key string) L {
	k.mu.Lock()
	defer k.mu.Unlock()
	u, ok := k.locks[key]
	if !ok {
		u = &used[L]{lock: k.create()}
		k.locks[key] = u
	}
	u.users++
	return u.lock
}

func (k *keyed[L]) exit(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.locks[key]
	if u.users--; u.users == 0 {
		delete(k.locks, key)
	}
}

func enter(ctx context.Context) func(*semaphore.Weighted) {
	return func(s *semaphore.Weighted) { _ = s.Acquire(ctx, 1) } // it is free
}

func leave(s *semaphore.Weighted) { s.Release(1) }
