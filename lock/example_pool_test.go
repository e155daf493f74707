package lock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

// The next holder of a slot that was lost cleans it first.
func ExamplePool() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	boxes := &lock.Pool{Key: "boxes", Size: 1}
	boxes.Init = func(context.Context, *lock.Slot) error { fmt.Println("prepare"); return nil }
	boxes.Cleanup = func(_ context.Context, s *lock.Slot) error {
		if left := s.Left(); left != nil {
			fmt.Println("clean, left:", left.Why)
			return nil
		}
		fmt.Println("clean")
		return nil
	}
	lose := func(ctx context.Context, _ *lock.Slot) error {
		_, err := locker.ForceRelease(ctx, "boxes", "it hangs") // as if its process had crashed
		<-ctx.Done()
		return err
	}
	work := func(context.Context, *lock.Slot) error { fmt.Println("work"); return nil }
	fmt.Println(errors.Is(locker.WithSlot(ctx, boxes, lose), lock.ErrLost))
	fmt.Println(locker.WithSlot(ctx, boxes, work))
	fmt.Println(locker.WithSlot(ctx, boxes, work))
	// Output:
	// clean, left: unknown
	// prepare
	// true
	// clean, left: forced
	// prepare
	// work
	// clean, left: forced
	// <nil>
	// prepare
	// work
	// clean
	// <nil>
}

// A slot that cannot be cleaned is withdrawn until an operator heals it.
func ExampleLocker_Heal() {
	locker, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	defer locker.Close(ctx)

	full := true
	boxes := &lock.Pool{Key: "boxes", Size: 1, Cleanup: func(context.Context, *lock.Slot) error {
		if full {
			return errors.New("the disk is full")
		}
		return nil
	}}
	work := func(context.Context, *lock.Slot) error { fmt.Println("work"); return nil }

	err := locker.WithSlot(ctx, boxes, work)
	coded, _ := errors.AsType[interface {
		error
		Code() string
	}](err)
	state, _ := locker.Inspect(ctx, "boxes")
	fmt.Println(coded.Code(), state.Tally().Withdrawn)

	full = false
	fmt.Println(locker.Heal(ctx, "boxes", 0, "the disk was emptied"))
	fmt.Println(locker.WithSlot(ctx, boxes, work))
	// Output:
	// lock.pool_withdrawn 1
	// <nil>
	// work
	// <nil>
}
