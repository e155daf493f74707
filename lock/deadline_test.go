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
