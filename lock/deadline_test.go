package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// A pushed grant lives 2 s, whatever the TTL of its waiter, and the first renewal
// sets the TTL. The renewal may take effect without an answer, so a deadline that
// the caller has seen must hold without it.
func TestDeadlineOfAPushedGrantIsNeverMovedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pushed, ttl = 2 * time.Second, 600 * time.Millisecond
		d := &hooked{Driver: memory.NewLock(), scope: driver.Fleet}
		d.acquire = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			r.TTL = pushed
			g, err := d.Acquire(ctx, r)
			g.TTL = ttl
			return g, err
		}
		l := process(t, d, lock.Config{})
		lease, err := l.Acquire(t.Context(), "k", lock.TTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		seen := lease.Deadline()
		if left := time.Until(seen); left > ttl {
			t.Errorf("the deadline is %v away, the TTL is %v", left, ttl)
		}
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			now := lease.Deadline()
			if now.Before(seen) {
				t.Fatalf("the deadline moved back by %v", seen.Sub(now))
			}
			seen = now
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A pushed grant that lives for less than its TTL is renewed soon, but not at once: most
// of them are given back or handed on before. Else it would end before its TTL has passed.
func TestAPushedGrantIsRenewedSoon(t *testing.T) {
	for name, opts := range map[string][]lock.Option{"handed on": nil, "FIFO": {lock.FIFO()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const pushed, ttl = 2 * time.Second, 30 * time.Second
				d := newRenewals()
				d.acquire = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
					r.TTL = pushed
					g, err := d.Acquire(ctx, r)
					g.TTL = ttl
					return g, err
				}
				lease := acquire(t, process(t, d, lock.Config{TTL: ttl}), "k", opts...)
				time.Sleep(50 * time.Millisecond)
				if n := d.count(); n != 0 {
					t.Errorf("%d renewals at once", n)
				}
				time.Sleep(100 * time.Millisecond)
				if left := time.Until(lease.Deadline()); d.count() != 1 || left < ttl/2 {
					t.Errorf("after %d renewals the lease ends in %v, the TTL is %v", d.count(), left, ttl)
				}
				release(t, lease)
			})
		})
	}
}

// stopped is a driver of a process that is stopped for the duration pause when
// its first wait ends, or in its next call.
type stopped struct {
	*memory.Lock
	pause      time.Duration
	inWait, in bool // where
}

func (s *stopped) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	if s.in {
		s.in = false
		time.Sleep(s.pause)
	}
	g, wait, err := s.Lock.Ask(ctx, r)
	if wait == nil || !s.inWait {
		return g, wait, err
	}
	s.inWait = false
	return g, func(ctx context.Context) (driver.Grant, error) {
		g, err := wait(ctx)
		time.Sleep(s.pause)
		return g, err
	}, err
}

// L22: the request that follows a grant past its deadline is a request of its own
// time.
func TestGrantAfterALateOneIsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Second
		l := process(t, &stopped{Lock: memory.NewLock(), pause: 10 * ttl, inWait: true}, lock.Config{TTL: ttl})
		held := acquire(t, l, "k")
		time.AfterFunc(time.Minute, func() { _ = held.Release() })
		lease := acquire(t, l, "k", lock.Wait(lock.Forever))
		if err := lease.Err(); err != nil || time.Until(lease.Deadline()) < ttl/2 {
			t.Errorf("the lease ends in %v: %v", time.Until(lease.Deadline()), err)
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	})
}

// P11: a process that is stopped between its reading of the clock and its request
// is served when the holder's lease ends.
func TestWaiterIsServedInTimeAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, pause = 10 * time.Second, 5 * time.Second
		d := &stopped{Lock: memory.NewLock(), pause: pause}
		l := process(t, d, lock.Config{TTL: ttl})
		begun := time.Now()
		held := acquire(t, l, "k", lock.NoRenew())
		d.in = true
		release(t, acquire(t, l, "k", lock.Wait(lock.Forever)))
		if took := time.Since(begun); took > ttl+50*time.Millisecond {
			t.Errorf("served after %v, the lease lasted for %v", took, ttl)
		}
		_ = held.Release()
	})
}
