package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// lateForce answers a force after the push has ended the context of the lease.
type lateForce struct {
	driver.Driver
	after func()
}

func (d *lateForce) ForceRelease(ctx context.Context, key string, f driver.Force) (int, error) {
	n, err := d.Driver.ForceRelease(ctx, key, f)
	d.after()
	return n, errors.Join(err, ctx.Err())
}

func TestForceUnderItsOwnLeaseReturnsItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &lateForce{Driver: memory.NewLock()}
		l := process(t, d, lock.Config{})
		lease, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx := lease.Context()
		d.after = func() { <-ctx.Done(); synctest.Wait() }
		if n, err := l.ForceRelease(ctx, "k", "test"); n != 1 || err != nil {
			t.Errorf("released %d, %v; want 1", n, err)
		}
		if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release: %v, want ErrLost", err)
		}
	})
}

func TestTheLossThatAReleaseFindsNamesItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: memory.NewLock(), scope: driver.Process,
			release: func(context.Context, driver.Driver, driver.Grant) error { return &lock.LostError{Cause: lock.Expired} }}
		var seen recorder
		l := process(t, d, lock.Config{Observer: &seen})
		err := acquire(t, l, "k").Release()
		if lost, ok := errors.AsType[*lock.LostError](err); !ok || lost.Key != "k" || lost.Cause != lock.Expired {
			t.Errorf("got %+v", err)
		}
		if lost := eventsOf[lock.Lost](&seen); len(lost) != 1 || lost[0].Key != "k" || l.Stats().Lost != 1 {
			t.Errorf("reported %+v", lost)
		}
	})
}

func TestForceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := &lateForce{Driver: memory.NewLock(), after: func() { cancel(); synctest.Wait() }}
		l := process(t, d, lock.Config{})
		if _, err := l.ForceRelease(ctx, "k", "test"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the end of the context", err)
		}
	})
}

// L4: a holder that asks only its lease, and uses no context, learns of a force by
// push and not at its next renewal.
func TestErrOfALeaseFindsAForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		lease := acquire(t, l, "k")
		if _, err := l.ForceRelease(t.Context(), "k", "test"); err != nil {
			t.Fatal(err)
		}
		_ = lease.Err() // in memory the push is a hint, which a renewal confirms
		time.Sleep(time.Millisecond)
		if lost, ok := errors.AsType[*lock.LostError](lease.Err()); !ok || lost.Cause != lock.Forced {
			t.Errorf("Err returns %v after a force", lost)
		}
		_ = lease.Release()
	})
}
