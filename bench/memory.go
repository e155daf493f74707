package main

import (
	"context"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

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

// memoryAlone takes and releases one free key. Batches of the contestants
// alternate; each batch's time is divided by its operations.
func memoryAlone(ctx context.Context, l *lab) ([]claim, error) {
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		return nil, err
	}
	plain, fn := context.Background(), func(context.Context) error { return nil }
	batches := map[string]batch{
		mega:           each(func() error { return acquireRelease(plain, locks) }),
		megaRequest:    each(func() error { return acquireRelease(ctx, locks) }),
		megaWith:       each(func() error { return locks.With(ctx, "product:42", fn) }),
		keyedMutex:     each(newKeyed(func() *sync.Mutex { return new(sync.Mutex) }).cycle((*sync.Mutex).Lock, (*sync.Mutex).Unlock)),
		keyedSemaphore: each(newKeyed(func() *semaphore.Weighted { return semaphore.NewWeighted(1) }).cycle(enter(plain), leave)),
	}
	times, allocs := samples{}, samples{}
	for range l.reps(9) {
		if err := memoryRep(l, batches, times, allocs); err != nil {
			return nil, errors.Join(err, locks.Close(ctx))
		}
	}
	return []claim{
		times.absolute("Acquire + Release", "ns", keyedMutex, keyedSemaphore, megaRequest, megaWith).atMost(500),
		times.ratio("the same, as a multiple", "ns", keyedSemaphore),
		allocs.absolute("allocations", "", megaRequest, megaWith).atMost(3),
	}, locks.Close(ctx)
}

func acquireRelease(ctx context.Context, locks *lock.Locker) error {
	lease, err := locks.Acquire(ctx, "product:42")
	if err != nil {
		return err
	}
	return lease.Release()
}

// batch does an operation n times, and returns when all of it is done.
type batch func(n int) error

// each is a batch of operations one after the other.
func each(op func() error) batch {
	return func(n int) error {
		for range n {
			if err := op(); err != nil {
				return err
			}
		}
		return nil
	}
}

// memoryRep adds a quiet batch of each contestant, and its allocations. A batch
// lasts less than a millisecond, so other work on the machine disturbs some
// batches and not others; the tenth percentile is an undisturbed one.
func memoryRep(l *lab, batches map[string]batch, times, allocs samples) error {
	if err := quietBatches(l.scaled(200), batches, times); err != nil {
		return err
	}
	for name, do := range batches {
		n, err := allocations(l.scaled(10_000), do)
		if err != nil {
			return err
		}
		allocs.add(name, n)
	}
	return nil
}

// quietBatches adds the nanoseconds of an operation in a quiet batch of each
// contestant.
func quietBatches(rounds int, batches map[string]batch, times samples) error {
	const size = 500
	names := slices.Sorted(maps.Keys(batches))
	perOp := samples{}
	for round := range rounds {
		for _, i := range turn(len(names), round) {
			start := time.Now()
			if err := batches[names[i]](size); err != nil {
				return err
			}
			perOp.add(names[i], float64(time.Since(start))/size)
		}
	}
	for _, name := range names {
		times.add(name, quantile(perOp[name], 0.1))
	}
	return nil
}

// allocations is the number of objects that one operation allocates, on average
// and to two places: allocations made once per batch, such as a goroutine, do
// not count.
func allocations(n int, do batch) (float64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := do(n); err != nil {
		return 0, err
	}
	runtime.ReadMemStats(&after)
	return math.Round(100*float64(after.Mallocs-before.Mallocs)/float64(n)) / 100, nil
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
