package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

func Example() {
	locker, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer locker.Close(ctx)

	stock := 3
	err = locker.With(ctx, "product:42", func(ctx context.Context) error {
		stock-- // ctx ends if the lease is lost
		return nil
	})
	fmt.Println(stock, err)
	// Output: 2 <nil>
}

func ExampleLocker_TryAcquire() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	lease, _ := locker.Acquire(ctx, "report", lock.Label("nightly"))
	defer lease.Release()

	_, err := locker.TryAcquire(ctx, "report")
	if busy, ok := errors.AsType[*lock.NotAcquiredError](err); ok {
		fmt.Println("busy with", busy.Holders[0].Label)
	}
	// Output: busy with nightly
}

func ExampleSlots() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	for range 2 {
		lease, _ := locker.Acquire(ctx, "sandbox", lock.Slots(2))
		defer lease.Release()
		fmt.Println("port", 9000+lease.Slot())
	}
	_, err := locker.Acquire(ctx, "sandbox", lock.Slots(2), lock.Wait(time.Millisecond))
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	// Output:
	// port 9000
	// port 9001
	// true
}

func ExampleLocker_WithSlot() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	boxes := &lock.Pool{
		Key:     "boxes",
		Size:    10,
		Init:    func(ctx context.Context, s *lock.Slot) error { fmt.Println("prepare box", s.Number()); return nil },
		Cleanup: func(ctx context.Context, s *lock.Slot) error { fmt.Println("clean box", s.Number()); return nil },
	}
	judge := func(ctx context.Context, s *lock.Slot) error { fmt.Println("work in box", s.Number()); return nil }
	for range 2 {
		if err := locker.WithSlot(ctx, boxes, judge); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// clean box 0
	// prepare box 0
	// work in box 0
	// clean box 0
	// prepare box 0
	// work in box 0
	// clean box 0
}

func ExampleLease_Fence() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	var newest uint64 // stored beside the data that the lock guards
	write := func(fence uint64) error {
		if fence < newest {
			return errors.New("a later lease has written already")
		}
		newest = fence
		return nil
	}
	late, _ := locker.Acquire(ctx, "page")
	late.Release()
	next, _ := locker.Acquire(ctx, "page")
	defer next.Release()

	fmt.Println(write(next.Fence()))
	fmt.Println(write(late.Fence()))
	// Output:
	// <nil>
	// a later lease has written already
}

func ExampleLocker_WithAll() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	balance := map[string]int{"a": 10, "b": 0}
	err := locker.WithAll(ctx, []string{"account:b", "account:a"}, func(ctx context.Context) error {
		balance["a"] -= 3 // ctx ends if either of the leases is lost
		balance["b"] += 3
		return nil
	})
	fmt.Println(balance["a"], balance["b"], err)
	// Output: 7 3 <nil>
}

func ExampleLocker_AcquireAll() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	leases, err := locker.AcquireAll(ctx, []string{"account:b", "account:a", "account:b"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer leases.Release()
	fmt.Println(leases.Fence("account:a") > 0, len(lock.LeasesFrom(leases.Context())))
	// Output: true 2
}
