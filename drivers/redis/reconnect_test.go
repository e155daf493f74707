package redis_test

import (
	"errors"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// L4: a server that comes back without its data is noticed at the reconnect, not
// at the next renewal, which is ten seconds away. (The engine redislock has no
// connection that would notice before its next call.)
func TestRestartWithoutDataEndsTheLeasesWithinASecond(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	first, second := member(t, s.URL()), member(t, s.URL())
	lease := take(t, first, "k", lock.TTL(30*time.Second))
	lease.Context() // somebody depends on it
	must(t, s.Kill())
	must(t, s.Restart())
	eventually(t, "the key to be free", func() bool {
		_, err := second.TryAcquire(t.Context(), "k")
		return err == nil
	})
	start := time.Now()
	ends(t, lease, time.Second+slack)
	t.Logf("ended after %v", time.Since(start))
}

// L5: work that is finished is not answered with ErrLost because the backend has
// become another one.
func TestReleaseAfterTheServerChangedIsNotALoss(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	d := open(t, redis.Config{URL: s.URL()})
	flushed, restarted := acquire(t, d, request("a")), acquire(t, d, request("b"))
	must(t, s.FlushAll())
	if err := d.Release(t.Context(), flushed); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release after a flush: %v, want %v", err, lock.ErrLost)
	}
	must(t, s.Kill())
	must(t, s.Restart())
	eventually(t, "the release to arrive", func() bool {
		err := d.Release(t.Context(), restarted)
		if errors.Is(err, lock.ErrLost) {
			t.Fatalf("release after a restart: %v", err)
		}
		return err == nil
	})
}

// movable returns a server, the URL of a pipe to it, and a function after which the
// calls of the pipe's clients go to another server, which has none of their leases,
// while their subscriptions stay: as in a failover of Sentinel away from a master
// that stands still.
func movable(t *testing.T) (url, other string, move func()) {
	t.Helper()
	from, to := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{})
	p := redistest.StartPipe(t, from.Addr())
	return "redis://" + p.Addr(), to.URL(), func() {
		t.Helper()
		p.Lead(to.Addr())
		_, err := from.KillClients()
		must(t, err)
	}
}

// ways are the ways to the server at a URL: the driver's own connection, and clients
// of the user.
var ways = map[string]func(t *testing.T, url string) redis.Config{
	"by URL":                     func(_ *testing.T, url string) redis.Config { return redis.Config{URL: url} },
	"with a client":              func(t *testing.T, url string) redis.Config { return withClient(t, url, -1) },
	"with a client that retries": func(t *testing.T, url string) redis.Config { return withClient(t, url, 3) },
}

func withClient(t *testing.T, url string, retries int) redis.Config {
	t.Helper()
	o, err := goredis.ParseURL(url)
	must(t, err)
	o.MaxRetries = retries
	client := goredis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return redis.Config{Client: client}
}

// L4
func TestCallsThatMoveToAnotherServerEndTheLeasesWithinASecond(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _, move := movable(t)
			l := memberOf(t, way(t, url))
			lease := take(t, l, "k", lock.TTL(30*time.Second))
			lease.Context() // somebody depends on it
			move()
			stateOfKey(t, l, "another")
			start := time.Now()
			ends(t, lease, time.Second+slack)
			t.Logf("ended after %v", time.Since(start))
		})
	}
}

// L5
func TestReleaseAfterTheCallsHaveMovedIsNotALoss(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		for _, engine := range engines() {
			t.Run(name+", "+engine, func(t *testing.T) {
				t.Parallel()
				url, _, move := movable(t)
				c := way(t, url)
				c.Engine = engine
				d := open(t, c)
				g := acquire(t, d, request("k"))
				move()
				inspect(t, d, "another")
				release(t, d, g)
			})
		}
	}
}

// L5: a client that retries has executed the release twice, and the second answer is all
// that the driver gets.
func TestReleaseThatAClientRepeatsIsNotALoss(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	p := redistest.StartProxy(t, s, namer())
	d := open(t, withClient(t, p.URL(), 3))
	for _, g := range []driver.Grant{acquire(t, d, request("a")), acquire(t, d, request("b"))} {
		renew(t, d, g) // on the connection that is there now
		f := p.ResetAfter(redistest.Named("release"))
		if err := d.Release(t.Context(), g); err != nil {
			t.Errorf("release: %v", err)
		}
		struck(t, f)
	}
}

// L16: the holder hears of a force by a push, and has no waiters whose heartbeats
// would miss one.
func TestSubscriptionFollowsTheCallsToAnotherServer(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, other, move := movable(t)
			l, operator := memberOf(t, way(t, url)), member(t, other)
			move()
			lease := take(t, l, "k", lock.TTL(30*time.Second))
			lease.Context() // somebody depends on it
			start := time.Now()
			eventually(t, "the force", func() bool {
				must(t, answered(func() error { _, err := operator.ForceRelease(t.Context(), "k", "test"); return err }))
				return lease.Context().Err() != nil
			})
			if took := time.Since(start); took > generous(time.Second+slack) {
				t.Errorf("the force took %v", took)
			}
		})
	}
}
