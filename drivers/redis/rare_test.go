package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

// directly returns a client of the shared server.
func directly(t *testing.T) *goredis.Client {
	t.Helper()
	o, err := goredis.ParseURL(shared.URL())
	must(t, err)
	c := goredis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAKeyOfAForeignTypeDelaysNoOtherWaiter(t *testing.T) {
	t.Parallel()
	delaysNoOtherWaiter(t, "foreign", func(c *goredis.Client, state string) error {
		return c.Set(t.Context(), state, "foreign", time.Minute).Err()
	})
}

// L24: nor does a lock that another version uses.
func TestAKeyOfAnotherFormatDelaysNoOtherWaiter(t *testing.T) {
	t.Parallel()
	delaysNoOtherWaiter(t, "newer", func(c *goredis.Client, state string) error {
		return c.HSet(t.Context(), state, "pool", "9 something else").Err()
	})
}

// delaysNoOtherWaiter waits for two locks, of which one becomes unreadable.
func delaysNoOtherWaiter(t *testing.T, name string, spoil func(c *goredis.Client, state string) error) {
	t.Helper()
	holder, waiter := openShared(t), openShared(t)
	spoiled := request(name + ":" + token())
	acquire(t, holder, spoiled)
	queueUp(t, waiter, request(spoiled.Key))
	soon(t, "the ticket", func() bool { return redis.Queued(waiter, spoiled.Key) == 1 })
	state := "mega:{" + spoiled.Key + "}:state"
	must(t, spoil(directly(t), state))
	soon(t, "a heartbeat before the lease ends", func() bool { // which a busy machine may miss
		r := request("over:" + token())
		r.TTL = 400 * time.Millisecond // shorter than the time between heartbeats
		acquire(t, holder, r)
		r.Token = token()
		got := make(chan error, 1)
		go func() {
			_, err := waiter.Acquire(t.Context(), r)
			got <- err
		}()
		soon(t, "the ticket or the grant", func() bool { return redis.Queued(waiter, r.Key) == 1 || len(got) > 0 })
		next := redis.Beat(t.Context(), waiter)
		inTime := redis.Queued(waiter, r.Key) == 1
		if inTime && next > r.TTL+10*time.Millisecond {
			t.Errorf("the next heartbeat is in %v, but the lease ends within %v", next, r.TTL)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		return inTime
	})
	must(t, directly(t).Del(t.Context(), state).Err())
}

func TestARenewalSurvivesAValueWithoutItsFence(t *testing.T) {
	t.Parallel()
	d := openShared(t)
	g := acquire(t, d, request("bare:"+token()))
	must(t, directly(t).Set(t.Context(), "mega:{"+g.Key+"}", g.Token, 10*time.Second).Err())
	g.Rev = 1
	if r := d.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
		t.Error(r.Err)
	}
	release(t, d, g)
}

func TestARestThatIsOverWhenItIsRepeatedIsNoLoss(t *testing.T) {
	t.Parallel()
	for name, fault := range lossy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			d := open(t, redis.Config{URL: r.proxy.URL()})
			g := acquire(t, d, request("k"))
			g.Rev, g.Rest = 1, time.Millisecond
			f := fault(r.proxy, redistest.Named("confirm"))
			if err := d.Release(t.Context(), g); err != nil {
				t.Errorf("Release = %v, want nil: it was executed", err)
			}
			struck(t, f)
		})
	}
}
