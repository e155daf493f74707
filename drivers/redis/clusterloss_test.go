package redis_test

import (
	"fmt"
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

// masterWithoutInbox returns a master that has no subscription.
func masterWithoutInbox(t *testing.T, c *redistest.Cluster) (found *redistest.Server) {
	t.Helper()
	for _, s := range c.Servers() {
		v, err := s.Do("PUBSUB", "CHANNELS", "mega:inbox:*")
		must(t, err)
		if len(v.([]any)) == 0 {
			found = s
		}
	}
	return found
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
			master := masterWithoutInbox(t, c)
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
