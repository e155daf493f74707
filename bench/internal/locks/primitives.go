package locks

import (
	"context"
	"errors"

	_ "modernc.org/sqlite"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock"
)

// The contestants among mega's own primitives: a pool and several keys are
// compared with With on one key.
const (
	plainLock  = "a plain lock"
	poolCycle  = "a pool"
	hookedPool = "a pool with Init and Cleanup"
	threeKeys  = "3 keys"
)

// cycles returns the cycles of the contestants.
func cycles(ctx context.Context, locks *lock.Locker) map[string]func() error {
	keys := []string{"order:1", "stock:2", "user:3"}
	fn := func(context.Context) error { return nil }
	inSlot := func(context.Context, *lock.Slot) error { return nil }
	pool := &lock.Pool{Key: "worker", Size: 10}
	hooked := &lock.Pool{Key: "sandbox", Size: 10, Init: inSlot, Cleanup: inSlot}
	return map[string]func() error{
		plainLock:  func() error { return locks.With(ctx, "product:42", fn) },
		poolCycle:  func() error { return locks.WithSlot(ctx, pool, inSlot) },
		hookedPool: func() error { return locks.WithSlot(ctx, hooked, inSlot) },
		threeKeys:  func() error { return locks.WithAll(ctx, keys, fn) },
	}
}

// primitiveClaims are the promises about a cycle of a pool and of three keys. A
// pool without functions does what a plain lock does. Its functions have a
// context of their own and may panic, and before Cleanup the lease is checked.
func primitiveClaims(times measure.Samples, unit string) []measure.Claim {
	return []measure.Claim{
		times.Beside(poolCycle, plainLock).Ratio("a cycle of a pool", unit, plainLock, plainLock).AtMost(1.2),
		times.Beside(hookedPool, plainLock).Ratio("a cycle of a pool with Init and Cleanup", unit, plainLock, plainLock).AtMost(1.4),
		times.Beside(threeKeys, plainLock).Ratio("WithAll of 3 keys", unit, plainLock, plainLock).AtMost(3.2),
	}
}

// MemoryPrimitives runs batches of the contestants in turn.
func MemoryPrimitives(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		return nil, err
	}
	batches := map[string]measure.Batch{}
	for name, cycle := range cycles(ctx, locks) {
		batches[name] = measure.Each(cycle)
	}
	times, allocs := measure.Samples{}, measure.Samples{}
	for range l.Reps(5) {
		if err := measure.QuietRep(l.Scale, batches, times, allocs); err != nil {
			return nil, errors.Join(err, locks.Close(ctx))
		}
	}
	plain := allocs.Beside(plainLock, hookedPool)
	plain[threeKeys] = allocs[threeKeys]
	return append(primitiveClaims(times, "ns"),
		plain.Absolute("allocations of a plain lock", "", hookedPool, threeKeys).AtMost(3),
	), locks.Close(ctx)
}

// RedisPrimitives runs the contestants operation by operation in turn.
func RedisPrimitives(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	server, err := l.Redis()
	if err != nil {
		return nil, err
	}
	d, err := redis.OpenLock(ctx, redis.Config{URL: server.URL()})
	if err != nil {
		return nil, err
	}
	locks, err := lock.New(d, lock.Config{TTL: peers.TTL})
	if err != nil {
		return nil, err
	}
	times, err := measure.Alternately(l.Scale, cycles(ctx, locks), plainLock, poolCycle, hookedPool, threeKeys)
	return primitiveClaims(times, "µs"), errors.Join(err, locks.Close(ctx))
}
