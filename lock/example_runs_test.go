package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

func ExampleLocker_Once() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	report := func(context.Context) error { fmt.Println("report sent"); return nil }
	for range 3 { // as three processes would call it
		ran, err := locker.Once(ctx, "report", 365*24*time.Hour, report)
		fmt.Println(ran, err)
	}
	state, _ := locker.Inspect(ctx, "report")
	fmt.Println(state.LastRun.Outcome)
	// Output:
	// report sent
	// true <nil>
	// false <nil>
	// false <nil>
	// done
}

func ExampleLocker_Every() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx, stop := context.WithCancel(context.Background())
	defer locker.Close(context.Background())

	runs := 0
	err := locker.Every(ctx, "cleanup", 10*time.Millisecond, func(context.Context) error {
		if runs++; runs == 3 {
			stop()
		}
		return nil
	})
	fmt.Println(runs, errors.Is(err, context.Canceled))
	// Output: 3 true
}

func ExampleLocker_Lead() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	err := locker.Lead(ctx, "reaper", func(ctx context.Context) error {
		term, _ := lock.LeaseFrom(ctx)
		fmt.Println("leads", term.Key()) // until ctx ends
		return nil
	})
	fmt.Println(err)
	// Output:
	// leads reaper
	// <nil>
}

func ExampleCooldown() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	refresh := func(context.Context) error { fmt.Println("refreshed"); return nil }
	for range 2 { // at most once in a minute, whoever asks
		err := locker.With(ctx, "rates", refresh, lock.Cooldown(time.Minute), lock.Wait(0))
		fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	}
	// Output:
	// refreshed
	// false
	// true
}
