package lock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// silenced is a backend in memory whose requests have no answer while it stalls.
type silenced struct {
	*memory.Lock
	stalls bool
}

func (s *silenced) Info() driver.Info { return driver.Info{Name: "silenced", Scope: driver.Fleet} }

func (s *silenced) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	if s.stalls {
		<-ctx.Done()
		return driver.Grant{}, nil, ctx.Err()
	}
	g, wait, err := s.Lock.Ask(ctx, r)
	g.Deadline = g.Deadline.Add(time.Until(driver.Now()).Truncate(time.Millisecond))
	return g, wait, err
}

func (s *silenced) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	all := s.Lock.Renew(ctx, grants)
	for i := range all {
		all[i].Deadline = all[i].Deadline.Add(time.Until(driver.Now()).Truncate(time.Millisecond))
	}
	return all
}

// A waiter that asks the backend itself may be handed a lease of its process
// meanwhile. If it gives up before it has an answer, the lease is handed on.
func TestAWaiterThatGivesUpHandsOnWhatItWasHanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &silenced{Lock: memory.NewLock()}
		l := raw(t, d, lock.Config{TTL: 10 * time.Second})
		lease := acquire(t, l, "k")
		d.stalls = true
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, "k", lock.TTL(20*time.Second)) // the TTL differs, so it asks
			waited <- err
		}()
		synctest.Wait()
		if err := lease.Extend(t.Context(), 20*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(); err != nil { // to the waiter
			t.Fatal(err)
		}
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if s, err := d.Inspect(t.Context(), "k"); err != nil || len(s.Holders) != 0 {
			t.Errorf("nobody has the lease, and the key is held by %+v, %v", s.Holders, err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A waiter that keeps its process's ticket may be handed a lease of its process
// meanwhile. It returns at once, and the ticket stays for the next waiter.
func TestAWaiterWithATicketTakesWhatItIsHanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := raw(t, &silenced{Lock: memory.NewLock()}, lock.Config{TTL: 10 * time.Second})
		held := acquire(t, l, "k")
		served := make(chan *lock.Lease)
		for range 2 {
			go func() {
				lease, err := l.Acquire(t.Context(), "k", lock.TTL(20*time.Second)) // the TTL differs, so the first one asks
				if err != nil {
					t.Error(err)
				}
				served <- lease
			}()
			synctest.Wait()
		}
		if err := held.Extend(t.Context(), 20*time.Second); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		if err := held.Release(); err != nil { // to the first waiter
			t.Fatal(err)
		}
		for range 2 {
			lease := <-served
			if took := time.Since(released); took > 0 {
				t.Errorf("served after %v", took)
			}
			if err := lease.Release(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A lease that was handed on inside a process is the holder in each report of the process, and
// the only one that a force by its fence ends (L16).
func TestTheHolderIsTheLeaseThatWasHandedOn(t *testing.T) {
	onFleet(t, func(t *testing.T, a, _ *lock.Locker) {
		first := acquire(t, a, "k", lock.Label("first"))
		next := make(chan *lock.Lease)
		go func() { next <- acquire(t, a, "k", lock.Label("second")) }()
		synctest.Wait()
		release(t, first)
		second := <-next
		if second.Fence() != first.Fence()+1 {
			t.Fatalf("the fences are %d and %d: the lease was not handed on", first.Fence(), second.Fence())
		}
		check := func(what string, holders []lock.Holding) {
			t.Helper()
			if len(holders) != 1 || holders[0].Label != "second" || holders[0].Fence != second.Fence() {
				t.Errorf("%s: the holders are %+v", what, holders)
			}
		}
		s, err := a.Inspect(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		check("Inspect", s.Holders)
		_, err = a.Acquire(t.Context(), "k", lock.Wait(time.Second))
		busy, ok := errors.AsType[*lock.NotAcquiredError](err)
		if !ok {
			t.Fatalf("got %v", err)
		}
		check("a wait", busy.Holders)
		for _, c := range []struct {
			lease *lock.Lease
			ends  int
		}{{first, 0}, {second, 1}} {
			n, err := a.ForceRelease(t.Context(), "k", "test", lock.OnlyFence(c.lease.Fence()))
			if n != c.ends || err != nil {
				t.Errorf("a force by the fence %d: %d, %v", c.lease.Fence(), n, err)
			}
		}
		if err := second.Release(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the release of the forced lease: %v", err)
		}
	})
}

// The holders that a wait names are those of its end, although waiters that end together share
// one look at the backend.
func TestAWaitNamesTheHoldersOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, b, c := process(t, f, lock.Config{}), process(t, f, lock.Config{}), process(t, f, lock.Config{})
		check := func(label string) {
			t.Helper()
			_, err := c.Acquire(t.Context(), "k", lock.Wait(time.Second))
			busy, ok := errors.AsType[*lock.NotAcquiredError](err)
			if !ok || len(busy.Holders) != 1 || busy.Holders[0].Label != label {
				t.Errorf("held by %s: got %v", label, err)
			}
		}
		first := acquire(t, a, "k", lock.Label("first"))
		next := make(chan *lock.Lease)
		go func() { next <- acquire(t, b, "k", lock.Label("second"), lock.Wait(lock.Forever)) }()
		synctest.Wait()
		go func() { next <- acquire(t, c, "k", lock.Wait(lock.Forever)) }() // keeps the queue of its process
		synctest.Wait()
		check("first")
		release(t, first)
		second := <-next
		check("second")
		release(t, second)
		release(t, <-next)
	})
}

// One goroutine listens for the loss of a lease that is handed on from caller to caller,
// and ends with it (L18).
func TestAHandedOnLeaseLeavesNoListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := raw(t, &silenced{Lock: memory.NewLock()}, lock.Config{})
		lease := acquire(t, l, "k")
		before := runtime.NumGoroutine()
		for range 10 {
			next := make(chan *lock.Lease)
			go func() { next <- acquire(t, l, "k") }()
			synctest.Wait()
			_ = lease.Context().Done() // begins to listen
			release(t, lease)
			lease = <-next
		}
		release(t, lease)
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines, %d before", after, before)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
