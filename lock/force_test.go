package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

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

// L4: a holder that asks only its lease, or only the Err of its context, learns of a
// force by push and not at its next renewal. In memory the force is over when
// ForceRelease returns: the first answer reports it, since the key may have another
// holder already.
func TestFirstErrAfterAForceReportsIt(t *testing.T) {
	for name, ask := range map[string]func(*lock.Lease) error{
		"the lease":   (*lock.Lease).Err,
		"its context": func(l *lock.Lease) error { _ = l.Context().Err(); return context.Cause(l.Context()) },
	} {
		l := process(t, memory.NewLock(), lock.Config{})
		lease := acquire(t, l, "k")
		if _, err := l.ForceRelease(t.Context(), "k", "test"); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, l, "k")
		if lost, ok := errors.AsType[*lock.LostError](ask(lease)); !ok || lost.Cause != lock.Forced || lost.Reason != "test" {
			t.Errorf("%s reports %v after a force", name, lost)
		}
		if err := next.Err(); err != nil {
			t.Errorf("the next lease reports %v", err)
		}
		_ = lease.Release()
		release(t, next)
	}
}
