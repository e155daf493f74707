package redis_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

// L1: a server passes pushes on to its replicas, and does not count their subscribers. A
// process subscribes at one when its subscription breaks during a failover.
func TestAWaiterWhoseSubscriptionIsAtAReplicaEntersNoGrantOfAnother(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(key string) driver.Request{
		"lock":             request,
		"pool":             func(key string) driver.Request { return seat(key, 2) },
		"pool with states": func(key string) driver.Request { return box(key, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t, redistest.Options{})
			replica := redistest.Start(t, redistest.Options{Config: []string{"replicaof " + strings.ReplaceAll(master.Addr(), ":", " ")}})
			soon(t, "the replica to follow", func() bool {
				info, err := replica.Info("replication")
				return err == nil && info["master_link_status"] == "up"
			})
			url, pipe := through(t, master)
			astray, other := open(t, redis.Config{URL: url}), open(t, redis.Config{URL: master.URL()})
			pipe.Lead(replica.Addr())
			_, err := master.KillPubSub()
			must(t, err)
			soon(t, "the subscription to be at the replica", func() bool { return heard(t, replica) == 1 })
			pipe.Lead(master.Addr())
			soon(t, "the other subscription to be back", func() bool { return heard(t, master) == 1 })

			key := token()
			var held []driver.Grant
			for range ask(key).Slots {
				held = append(held, acquire(t, other, ask(key)))
			}
			first := queueUp(t, astray, ask(key))
			second := queueUp(t, other, ask(key))
			if held[0].Found != nil {
				held[0].Handback = &driver.Handback{Status: driver.SlotFree}
			}
			release(t, other, held[0])
			next := second.granted(t, slack)
			soon(t, "the first waiter to be queued again", func() bool {
				return first.ended() || len(inspect(t, other, key).Waiters) > 0
			})
			has := func(h driver.Holding) bool { return h.Fence == first.grant.Fence }
			if holders := inspect(t, other, key).Holders; first.ended() && !slices.ContainsFunc(holders, has) {
				t.Errorf("the first waiter got %+v (%v), the server has given the slot to %+v", first.grant, first.err, holders)
			}
			_ = other.Release(t.Context(), next)
			first.granted(t, slack)
		})
	}
}
