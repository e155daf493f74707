package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// A Cluster of which one master loses what it has acknowledged.

// clusterWays are the ways to a Cluster: by URL, and with clients of the user.
var clusterWays = map[string]func(t *testing.T, c *redistest.Cluster) redis.Config{
	"by URL":                     func(_ *testing.T, c *redistest.Cluster) redis.Config { return redis.Config{URL: c.URL()} },
	"with a client":              func(t *testing.T, c *redistest.Cluster) redis.Config { return withClusterClient(t, c, -1) },
	"with a client that retries": func(t *testing.T, c *redistest.Cluster) redis.Config { return withClusterClient(t, c, 3) },
}

func withClusterClient(t *testing.T, c *redistest.Cluster, retries int) redis.Config {
	t.Helper()
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs(), MaxRetries: retries})
	t.Cleanup(func() { _ = client.Close() })
	return redis.Config{Client: client}
}

// inboxAt returns a master that has a subscription, and one that has none.
func inboxAt(t *testing.T, c *redistest.Cluster) (with, without *redistest.Server) {
	t.Helper()
	for _, s := range c.Servers() {
		v, err := s.Do("PUBSUB", "CHANNELS", "mega:inbox:*")
		must(t, err)
		if len(v.([]any)) > 0 {
			with = s
		} else {
			without = s
		}
	}
	return with, without
}

// keysAt returns n keys whose locks are at a master.
func keysAt(master *redistest.Server, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprint("k", i)
		if _, err := master.Do("EXISTS", "mega:{"+key+"}"); err == nil { // not MOVED
			keys = append(keys, key)
		}
	}
	return keys
}

// L4: nothing happens to the subscription, which is at another master.
func TestMasterThatReturnsWithoutDataEndsTheLeasesWithinASecond(t *testing.T) {
	t.Parallel()
	for name, way := range clusterWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, redistest.Options{})
			l := memberOf(t, way(t, c))
			_, master := inboxAt(t, c)
			keys := keysAt(master, 2)
			lease := take(t, l, keys[0], lock.TTL(30*time.Second))
			lease.Context() // somebody depends on it
			must(t, master.Kill())
			must(t, master.Restart())
			eventually(t, "the master to serve", func() bool {
				_, err := l.Inspect(t.Context(), keys[1])
				return err == nil
			})
			start := time.Now()
			ends(t, lease, time.Second+slack)
			t.Logf("ended after %v", time.Since(start))
		})
	}
}

// L5
func TestReleaseAfterAMasterReturnsWithoutDataIsNotALoss(t *testing.T) {
	t.Parallel()
	for name, way := range clusterWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, redistest.Options{})
			master := c.Servers()[0]
			keys := keysAt(master, len(engines())+1)
			grants := map[driver.Driver]driver.Grant{}
			for i, engine := range engines() {
				config := way(t, c)
				config.Engine = engine
				d := open(t, config)
				grants[d] = acquire(t, d, request(keys[i]))
			}
			must(t, master.Kill())
			must(t, master.Restart())
			for d, g := range grants {
				soon(t, "the master to serve", func() bool {
					_, err := d.Inspect(t.Context(), keys[len(keys)-1])
					return err == nil
				})
				if err := d.Release(t.Context(), g); err != nil {
					t.Errorf("engine %s: %v", d.Info().Engine, err)
				}
			}
		})
	}
}

// rerouted bounds the time until a client uses the new master. A client of the user
// asks any node for the present masters, and the frozen one for as long as its own
// timeouts and retries take: about 13 s for each question.
const rerouted = time.Minute

// L4, L5, L16: connections to a master that stands still do not end, and the
// subscription is one of them.
func TestFailoverAwayFromAFrozenMasterIsNoticedOnACluster(t *testing.T) {
	t.Parallel()
	for name, way := range clusterWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, redistest.Options{})
			l := memberOf(t, way(t, c))
			master, _ := inboxAt(t, c)
			d, operator := open(t, way(t, c)), member(t, c.URL())
			replica, err := c.AddReplica(master)
			must(t, err)
			must(t, c.Sever(master, replica))
			keys := keysAt(master, 3)
			const ttl = 10 * time.Minute // no lease ends by time
			lease := take(t, l, keys[0], lock.TTL(ttl))
			lease.Context() // somebody depends on it
			lasting := request(keys[1])
			lasting.TTL = ttl
			done := acquire(t, d, lasting)
			must(t, master.Pause())
			t.Cleanup(func() { _ = master.Continue() })
			ctx, cancel := context.WithTimeout(t.Context(), generous(rerouted))
			defer cancel()
			must(t, c.Promote(ctx, replica))
			reached := func(l *lock.Locker) func() bool {
				return func() bool { _, err := l.Inspect(t.Context(), keys[2]); return err == nil }
			}
			within(t, rerouted, "the new master to serve", reached(l))
			start := time.Now()
			ends(t, lease, time.Second+slack)
			t.Logf("ended after %v", time.Since(start))
			within(t, rerouted, "the release", func() bool {
				err := d.Release(t.Context(), done)
				if errors.Is(err, driver.ErrLost) {
					t.Fatal(err)
				}
				return err == nil
			})
			within(t, rerouted, "the operator to find the new master", reached(operator))
			lease = take(t, l, keys[0], lock.TTL(ttl))
			lease.Context()
			start = time.Now()
			_, err = operator.ForceRelease(t.Context(), keys[0], "test")
			must(t, err)
			ends(t, lease, time.Second+slack)
			t.Logf("forced after %v", time.Since(start))
		})
	}
}

// L21: a server that left the Cluster answers for itself, and names no other one.
func TestAMasterThatIsResetIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	for name, way := range clusterWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, redistest.Options{})
			d := open(t, way(t, c))
			master, other := inboxAt(t, c)
			replica, err := c.AddReplica(master)
			must(t, err)
			key := keysAt(master, 1)[0]
			before := acquire(t, d, request(key))
			release(t, d, before)
			must(t, errors.Join(master.FlushAll(), command("CLUSTER", "RESET", "HARD")(master), command("CLUSTER", "FAILOVER", "TAKEOVER")(replica)))
			soon(t, "the other masters to know", func() bool {
				must(t, command("CLUSTER", "BUMPEPOCH")(replica)) // theirs may be as high
				_, err := other.Do("EXISTS", "mega:{"+key+"}")
				return err != nil && contains(err, replica.Addr())
			})
			start := time.Now()
			within(t, 5*time.Second, "the replica to serve", func() bool {
				g, err := d.Acquire(t.Context(), request(key))
				if err == nil && g.Fence <= before.Fence {
					t.Errorf("fence %d after %d", g.Fence, before.Fence)
				}
				return err == nil && d.Release(t.Context(), g) == nil
			})
			within(t, 5*time.Second, "a hand-over with a subscription at another master", func() bool {
				return handedOver(t, d, key) && heard(t, master) == 0
			})
			t.Logf("served after %v", time.Since(start))
		})
	}
}

// L4: a master that an operator has removed keeps its connections, and a subscription
// there receives nothing. A process without waiters has no heartbeat that misses a push.
func TestASubscriptionLeavesAMasterThatWasRemoved(t *testing.T) {
	t.Parallel()
	for name, way := range clusterWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, redistest.Options{Config: []string{"cluster-allow-replica-migration no"}})
			l := memberOf(t, way(t, c))
			master, heir := inboxAt(t, c)
			lease := take(t, l, keysAt(heir, 1)[0], lock.TTL(time.Minute)) // no call of it finds out
			remove(t, c, master, heir)
			within(t, 45*time.Second, "the subscription to be at another master", func() bool { return heard(t, master) == 0 })
			giveBack(t, lease)
		})
	}
}

// remove gives the hash slots of a master to its heir, and removes it from the Cluster,
// as redis-cli --cluster reshard and del-node do.
func remove(t *testing.T, c *redistest.Cluster, master, heir *redistest.Server) {
	t.Helper()
	must(t, master.FlushAll())
	idOf := func(s *redistest.Server) string {
		id, err := s.Do("CLUSTER", "MYID")
		must(t, err)
		return id.(string)
	}
	old, next := idOf(master), idOf(heir)
	v, err := master.Do("CLUSTER", "SLOTS")
	must(t, err)
	for _, s := range append([]*redistest.Server{heir}, slices.DeleteFunc(c.Servers(), func(s *redistest.Server) bool { return s == heir })...) {
		client := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
		_, err := client.Pipelined(t.Context(), func(p goredis.Pipeliner) error {
			for _, served := range v.([]any) {
				first, last, id := served.([]any)[0].(int64), served.([]any)[1].(int64), served.([]any)[2].([]any)[2]
				for slot := first; slot <= last && id == old; slot++ {
					p.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", next)
				}
			}
			return nil
		})
		must(t, errors.Join(err, client.Close()))
	}
	for _, s := range c.Servers() {
		if s != master {
			must(t, command("CLUSTER", "FORGET", old)(s))
		}
	}
	must(t, command("CLUSTER", "RESET", "SOFT")(master))
}

// heard returns how many inboxes a master has.
func heard(t *testing.T, s *redistest.Server) int {
	t.Helper()
	v, err := s.Do("PUBSUB", "CHANNELS", "mega:inbox:*")
	must(t, err)
	return len(v.([]any))
}

// L21: the keys of the other masters stay available although the subscription was at
// the lost one: pushes reach every master.
func TestALostMasterTakesNoKeysOfOthersWithItsSubscription(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redistest.Server) error{
		"dead": (*redistest.Server).Kill, "frozen": (*redistest.Server).Pause,
	} {
		for how, way := range clusterWays {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				c := redistest.StartCluster(t, 3, redistest.Options{Config: []string{"cluster-require-full-coverage no"}})
				d := open(t, way(t, c))
				lost, healthy := inboxAt(t, c)
				key := keysAt(healthy, 1)[0]
				others := slices.DeleteFunc(c.Servers(), func(s *redistest.Server) bool { return s == lost })
				must(t, lose(lost))
				t.Cleanup(func() { _ = lost.Continue() })
				start := time.Now()
				within(t, rerouted, "a hand-over with a subscription at another master", func() bool {
					return handedOver(t, d, key) && heard(t, others[0])+heard(t, others[1]) == 1
				})
				t.Logf("subscribed after %v", time.Since(start))
			})
		}
	}
}

// handedOver passes key from one caller to another, and reports whether that worked.
// A push that is missed on the way leads to a check of the subscription.
func handedOver(t *testing.T, d driver.Driver, key string) bool {
	t.Helper()
	held, err := d.Acquire(t.Context(), request(key))
	if err != nil {
		return false
	}
	ended := make(chan error, 1)
	go func() {
		next, err := d.Acquire(t.Context(), request(key))
		if err == nil {
			err = d.Release(t.Context(), next)
		}
		ended <- err
	}()
	soon(t, "the second caller to wait", func() bool { return redis.Queued(d, key) > 0 || len(ended) > 0 })
	return errors.Join(d.Release(t.Context(), held), <-ended) == nil
}
