package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// silence is a fleet whose backend swallows requests while it is away.
func silence(away *atomic.Bool, releases *atomic.Int64) *hooked {
	return &hooked{Driver: newFleet(), scope: driver.Fleet,
		acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			if away.Load() {
				return driver.Grant{}, fmt.Errorf("%w: no route to host", driver.ErrUnavailable)
			}
			return d.Acquire(ctx, r)
		},
		release: func(ctx context.Context, d driver.Driver, g driver.Grant) error {
			releases.Add(1)
			if away.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return d.Release(ctx, g)
		},
	}
}

func TestAnOutageCostsABoundedNumberOfGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var releases atomic.Int64
		l := process(t, silence(&away, &releases), lock.Config{TTL: time.Minute})
		release(t, acquire(t, l, "k"))
		away.Store(true)
		const bound = 40
		before, most := suite.Goroutines(0), 0
		for i := range 5000 {
			if _, err := l.Acquire(t.Context(), fmt.Sprint("k", i)); !errors.Is(err, lock.ErrUnavailable) {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Millisecond)
			most = max(most, suite.Goroutines(before+bound))
		}
		if most-before > bound {
			t.Errorf("5000 failed calls in an outage have %d goroutines", most-before)
		}
		away.Store(false)
		sent := releases.Load()
		time.Sleep(5 * time.Second)
		if got := releases.Load() - sent; got < 5000-64 {
			t.Errorf("after the outage %d of 5000 failed calls were cleaned up", got)
		}
		synctest.Wait()
		// The runtime counts its own goroutines for finalizers and cleanups while
		// they run, and the garbage collector starts them at any time.
		const ofTheRuntime = 8
		if got := suite.Goroutines(before+ofTheRuntime) - before; got > ofTheRuntime {
			t.Errorf("%d goroutines are left", got)
		}
	})
}

// A server that was stopped executes the requests in its buffers when it continues. L6
func TestALateGrantAfterALongStandstillIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var releases atomic.Int64
		var late func() error
		d := silence(&away, &releases)
		d.acquire = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			if !away.Load() {
				return d.Acquire(ctx, r)
			}
			if r.Key == "k" { // the probes of the outage acquire, too
				late = func() error { _, err := d.Acquire(context.Background(), r); return err }
			}
			return driver.Grant{}, fmt.Errorf("%w: no answer", driver.ErrUnavailable)
		}
		l := process(t, d, lock.Config{TTL: 10 * time.Second})
		away.Store(true)
		if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		away.Store(false)
		if err := late(); err != nil {
			t.Fatal(err)
		}
		release(t, acquire(t, l, "k", lock.Wait(5*time.Second)))
	})
}

func TestTheFirstReleaseOfAnExpiredLeaseStillSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var releases atomic.Int64
		l := process(t, silence(&away, &releases), lock.Config{})
		lease := acquire(t, l, "k", lock.NoRenew(), lock.TTL(time.Second))
		time.Sleep(time.Hour)
		if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := releases.Load(); got != 1 {
			t.Errorf("%d releases were sent, want 1", got)
		}
	})
}

func TestOneReleaseThatFailsDoesNotHoldUpAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		released := map[string]time.Time{}
		d := &hooked{Driver: newFleet(), scope: driver.Fleet,
			release: func(ctx context.Context, d driver.Driver, g driver.Grant) error {
				if g.Key == "bad" {
					<-ctx.Done()
					return ctx.Err()
				}
				mu.Lock()
				defer mu.Unlock()
				released[g.Key] = time.Now()
				return d.Release(ctx, g)
			}}
		l := process(t, d, lock.Config{TTL: time.Minute})
		bad := acquire(t, l, "bad")
		_ = bad.Release()
		start := time.Now()
		for i := range 20 {
			lease := acquire(t, l, fmt.Sprint("k", i), lock.NoRenew(), lock.TTL(lock.MinTTL))
			time.Sleep(time.Second)
			_ = lease.Release()
		}
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for i := range 20 {
			due := start.Add(time.Duration(i+1) * time.Second)
			if late := released[fmt.Sprint("k", i)].Sub(due); late > 1100*time.Millisecond {
				t.Errorf("the release of k%d came after %v", i, late)
			}
		}
	})
}
