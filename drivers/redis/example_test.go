package redis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock"
)

func ExampleOpenLock() {
	ctx := context.Background()
	d, err := redis.OpenLock(ctx, redis.Config{URL: shared.URL()})
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := lock.New(d, lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(ctx)

	err = locks.With(ctx, "product:1", func(ctx context.Context) error {
		lease, _ := lock.LeaseFrom(ctx)
		fmt.Println("holding", lease.Key())
		return nil
	}, lock.TTL(10*time.Second), lock.Wait(2*time.Second))
	fmt.Println(err)
	// Output:
	// holding product:1
	// <nil>
}

// A service that moves from redislock step by step: the same names, the same
// exclusion, and fences on top.
func ExampleOpenLock_redislock() {
	ctx := context.Background()
	d, err := redis.OpenLock(ctx, redis.Config{
		URL:    shared.URL(),
		Key:    "%s",
		Engine: redis.EngineRedislock,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close(ctx)
	for _, lack := range d.Info().Lacks {
		fmt.Println(lack.Rule + ": " + lack.Why)
	}
	// Output:
	// L7: no order across processes: the first one that finds the lock free gets it; FIFO is refused
	// L9: waiting polls, after pauses of 4 to 256 ms
	// L10: a process has no ticket: it polls for each key that it waits for
	// L15: redislock has no pools; Slots above 1 are refused, and slots with states (P1 to P11)
	// O1: the engine redislock records no runs; Once and Every are refused
}
