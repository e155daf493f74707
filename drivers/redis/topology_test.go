package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/history"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// More than one server: a Sentinel set that fails over, and a Cluster.

const failoverBound = 30 * time.Second

// A failover that keeps what was acknowledged is an outage and no more: leases
// with a TTL beyond it live on, and waiters keep their place.
func TestFailoverThatKeepsTheLockLosesNothing(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, 1, redistest.Options{})
	w := newWitness(t)
	a, b := w.join("a", redis.Config{URL: set.URL()}), w.join("b", redis.Config{URL: set.URL()})
	other := member(t, set.URL())
	const ttl = time.Minute // longer than a failover on a busy machine
	held := a.take(t, lock.TTL(ttl))
	got := b.wait(t, lock.TTL(ttl))
	ctx, cancel := context.WithTimeout(t.Context(), failoverBound)
	defer cancel()
	must(t, set.Replicated(ctx))
	must(t, set.Failover(ctx))
	reachable(t, other)
	busy(t, other, "k")
	if err := held.Context().Err(); err != nil {
		t.Errorf("the lease ended: %v", context.Cause(held.Context()))
	}
	giveBack(t, held)
	next := leaseOf(t, got, 10*time.Second)
	if next.Fence() <= held.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), held.Fence())
	}
	giveBack(t, next)
	w.verify(0)
	unused(t, other, "k")
}

// A failover to a replica that never heard of the lock: the holder ends with
// its next renewal at the latest, the waiters queue again by themselves, and
// the fence grows although the new master has no record of the old ones.
func TestFailoverThatLosesTheLockEndsItWithinARenewal(t *testing.T) {
	t.Parallel()
	const ttl = 9 * time.Second
	const period = ttl / 3
	set := redistest.StartSentinels(t, 1, redistest.Options{})
	w := newWitness(t)
	a, b := w.join("a", redis.Config{URL: set.URL()}), w.join("b", redis.Config{URL: set.URL()})
	other := member(t, set.URL())
	must(t, set.Sever()) // from here on nothing that is acknowledged will last
	held := a.take(t, lock.TTL(ttl))
	got := b.wait(t, lock.TTL(ttl))
	ctx, cancel := context.WithTimeout(t.Context(), failoverBound)
	defer cancel()
	done := a.Forget("k")
	start := time.Now()
	must(t, set.Failover(ctx))
	reachable(t, other)
	done()
	back := time.Now()
	cause := ends(t, held.Lease, period+time.Second+slack)
	t.Logf("the failover took %v, the holder was told %v after it; the renewal period is %v", back.Sub(start), time.Since(back), period)
	if !errors.Is(cause, lock.ErrLost) {
		t.Errorf("cause = %v, want %v", cause, lock.ErrLost)
	}
	next := leaseOf(t, got, 10*time.Second)
	if next.Fence() <= held.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), held.Fence())
	}
	if err := held.Release(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release of the lost lease = %v, want %v", err, lock.ErrLost)
	}
	busy(t, other, "k")
	giveBack(t, next)
	t.Logf("two holders for %v", w.verify(generous(period+time.Second+slack)))
	unused(t, other, "k")
}

// An operator takes the master from the sentinels and adds it again. L21: a free lock
// is not busy meanwhile.
func TestSentinelsThatDoNotKnowTheMasterAreAnOutage(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, 0, redistest.Options{})
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: set.MasterName(), SentinelAddrs: set.Addrs(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	master := set.Servers()[0]
	drivers := map[string]driver.Driver{}
	for _, engine := range engines() {
		drivers[engine+" by URL"] = open(t, redis.Config{URL: set.URL(), Engine: engine})
		drivers[engine+" with a client"] = open(t, redis.Config{Client: client, Engine: engine})
	}
	must(t, set.Forget())
	_, err := master.KillClients()
	must(t, err)
	for name, d := range drivers {
		r := request(name)
		r.Wait = 0
		soon(t, "the sentinels' error from the driver "+name, func() bool { // on a busy machine a call ends before they answer
			_, err := d.Acquire(t.Context(), r)
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotAcquired) {
				t.Fatalf("%s: got %v, want an outage", name, err)
			}
			return contains(err, "all sentinels")
		})
	}
	must(t, set.Recall(master))
	for name, d := range drivers {
		soon(t, "the driver "+name, func() bool {
			g, err := d.Acquire(t.Context(), request(name))
			return err == nil && d.Release(t.Context(), g) == nil
		})
	}
}

func reachable(t *testing.T, l *lock.Locker) {
	t.Helper()
	eventually(t, "the lock to be reachable", func() bool { // with its subscription
		lease, err := l.TryAcquire(t.Context(), "reachable")
		return err == nil && lease.Release() == nil
	})
}

// Keys of every shape, on all masters of a Cluster.
func TestClusterLocksKeysOnEveryMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	a, b := member(t, c.URL()), member(t, c.URL())
	keys := []string{"{}", "a}{b", "}", "}x", "{", "{x}", ":", "*", "%7B", "%", "{}{}", "a{b}c", "ключ", "k:fence", "k"}
	for i := range suite.Scaled(300) {
		keys = append(keys, fmt.Sprint("key", i))
	}
	var leases []*lock.Lease
	for _, k := range keys {
		leases = append(leases, take(t, a, k)) // all at once: none may be another's
	}
	for _, k := range keys {
		busy(t, b, k)
	}
	for _, s := range c.Servers() {
		if n, err := s.Do("DBSIZE"); err != nil || n == int64(0) {
			t.Errorf("master %s has %v keys, %v", s.Addr(), n, err)
		}
	}
	list, err := a.List(t.Context(), "")
	must(t, err)
	if len(list) != len(keys) {
		t.Errorf("List found %d keys, want %d", len(list), len(keys))
	}
	for i, k := range keys {
		fence := leases[i].Fence()
		giveBack(t, leases[i])
		next := take(t, b, k, lock.Wait(0))
		if next.Fence() <= fence {
			t.Errorf("key %q: fence %d after %d", k, next.Fence(), fence)
		}
		giveBack(t, next)
		unused(t, a, k)
	}
}

// Two members pass many keys to and fro, over all masters: the push reaches
// whoever waits, wherever it is connected.
func TestClusterHandsOverBetweenMembers(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	a, b := member(t, c.URL()), member(t, c.URL())
	late, n := 0, max(6, suite.Scaled(30))
	for i := range n {
		key := fmt.Sprint("k", i)
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		held := take(t, from, key)
		got := wait(t, to, key)
		released := time.Now()
		giveBack(t, held)
		g := receive(t, got, 5*time.Second)
		if took := g.at.Sub(released); took > 300*time.Millisecond {
			late++
			t.Logf("key %q was handed over in %v", key, took)
		}
		if g.lease.Fence() <= held.Fence() {
			t.Errorf("key %q: fence %d after %d", key, g.lease.Fence(), held.Fence())
		}
		giveBack(t, g.lease)
		unused(t, a, key)
	}
	if timed && late > n/2 { // without a push nearly all are late
		t.Errorf("%d of %d hand-overs took more than 300 ms: they are not pushed", late, n)
	}
}

func TestClusterExcludesUnderContention(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	crowd(t, []*lock.Locker{member(t, c.URL()), member(t, c.URL()), member(t, c.URL())}, suite.Scaled(300), 10, func() {
		time.Sleep(time.Millisecond)
	})
}

func TestClusterKeepsPools(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	pools(t, []*lock.Locker{member(t, c.URL()), member(t, c.URL())})
}

func TestSentinelKeepsPools(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, 1, redistest.Options{})
	pools(t, []*lock.Locker{member(t, set.URL()), member(t, set.URL())})
}

// pools has several members use a pool, and checks its history.
func pools(t *testing.T, lockers []*lock.Locker) {
	t.Helper()
	const slots = 3
	w := newWitness(t)
	var users []func()
	for i := range 6 {
		c := w.client(fmt.Sprint("c", i), lockers[i%len(lockers)])
		users = append(users, func() {
			for range min(suite.Scaled(30), 100) {
				var lease *history.Lease
				err := answered(func() (err error) {
					lease, err = c.Acquire(t.Context(), "pool", slots, lock.Wait(lock.Forever))
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(pick(3)) * time.Millisecond) // work
				giveBack(t, lease)
			}
		})
	}
	together(users...)
	if o := w.verify(0); o != 0 {
		t.Errorf("two holders of a slot for %v", o)
	}
	unused(t, lockers[0], "pool")
}
