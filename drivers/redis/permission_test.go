package redis_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/refusal"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// A user that has lost the right to one command, while the program runs.

// deny takes the right to a command from all users of the server.
func deny(t *testing.T, s *redistest.Server, name string) {
	t.Helper()
	must(t, command("ACL", "SETUSER", "default", "-"+name)(s))
}

func allow(t *testing.T, s *redistest.Server, name string) {
	t.Helper()
	must(t, command("ACL", "SETUSER", "default", "+"+name)(s))
}

// L1, L6: a script that fails has pushed no grant that it did not store.
func TestAGrantIsPushedOnlyIfItIsStored(t *testing.T) {
	t.Parallel()
	kinds := []struct {
		name string
		ask  func(key string, n int) driver.Request
		size int
	}{
		{"lock", seat, 1},
		{"pool", seat, 2},
		{"pool with states", box, 2},
	}
	for _, name := range []string{"hdel", "hset", "zadd", "zrem", "del", "set", "zpopmin", "pexpire"} {
		for _, kind := range kinds {
			t.Run(name+", "+kind.name, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t, redistest.Options{})
				a, b := open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: s.URL()})
				for slot := range kind.size {
					key := token()
					held := make([]driver.Grant, kind.size)
					for i := range held {
						r := kind.ask(key, kind.size)
						r.TTL = 5 * time.Second
						held[i] = acquire(t, a, r)
					}
					next := queueUp(t, b, kind.ask(key, kind.size))
					soon(t, "the waiter to know", func() bool { return redis.Queued(b, key) == 1 })
					deny(t, s, name)
					failed := a.Release(t.Context(), held[slot])
					if failed != nil && !errors.Is(failed, driver.ErrUnavailable) {
						t.Errorf("release of slot %d: %v", slot, failed)
					}
					allow(t, s, name)
					_ = a.Release(t.Context(), held[slot])
					g := next.granted(t, 15*time.Second) // a release that was half done leaves the slot to its TTL
					holders := inspect(t, b, key).Holders
					if !slices.ContainsFunc(holders, func(h driver.Holding) bool { return h.Fence == g.Fence && h.Slot == g.Slot }) {
						t.Errorf("release of slot %d (%v): the waiter was granted slot %d with fence %d, the server has %+v", slot, failed, g.Slot, g.Fence, holders)
					}
				}
			})
		}
	}
}

// L21: a user that has lost the right to publish is refused as at boot, although
// the grants of its waiters come by heartbeats.
func TestAUserThatMayNoLongerPublishIsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{Users: []string{"ann on >secret ~* &* +@all", "bob on >secret ~* &* +@all"}})
	as := func(user string) string { return "redis://" + user + ":secret@" + s.Addr() }
	a, b := member(t, as("ann")), member(t, as("bob"))
	held := take(t, a, "k", lock.TTL(time.Minute))
	next := wait(t, b, "k", lock.Wait(lock.Forever))
	must(t, command("ACL", "SETUSER", "ann", "-publish")(s))
	giveBack(t, held)
	got := receive(t, next, slack)
	eventually(t, "the refusal", func() bool {
		lease, err := a.TryAcquire(t.Context(), "free")
		if err == nil {
			giveBack(t, lease)
			return false
		}
		if !errors.Is(err, lock.ErrUnavailable) || !contains(err, "publish") || !contains(err, "NOPERM") {
			t.Fatalf("got %v, want %v with the reason", err, lock.ErrUnavailable)
		}
		return true
	})
	eventually(t, "the report", func() bool { return a.Unavailable() != nil })
	free(t, b, "free")
	must(t, command("ACL", "SETUSER", "ann", "+publish")(s))
	eventually(t, "calls to succeed", func() bool {
		lease, err := a.TryAcquire(t.Context(), "free")
		return err == nil && lease.Release() == nil
	})
	eventually(t, "the end of the report", func() bool { return a.Unavailable() == nil })
	giveBack(t, got.lease)
}

type closer interface{ Close(context.Context) error }

// L21: the scripts of another process may be in the server's cache, until a restart.
func TestAUserThatMayNotLoadScriptsIsRefusedAtBoot(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{Users: []string{"bob on >secret ~* &* +@all -eval"}})
	bob := redis.Config{URL: "redis://bob:secret@" + s.Addr()}
	for name, opens := range map[string]func(redis.Config) (closer, error){
		"queue": func(c redis.Config) (closer, error) { return redis.OpenLock(t.Context(), c) },
		"redislock": func(c redis.Config) (closer, error) {
			c.Engine = redis.EngineRedislock
			return redis.OpenLock(t.Context(), c)
		},
		"limits": func(c redis.Config) (closer, error) { return redis.OpenLimit(t.Context(), c) },
	} {
		first, err := opens(redis.Config{URL: s.URL()})
		must(t, err)
		defer func() { must(t, first.Close(context.Background())) }()
		d, err := opens(bob)
		if err == nil {
			must(t, d.Close(t.Context()))
			t.Errorf("%s: opened", name)
		} else if !contains(err, "backend unavailable") || !contains(err, "lacks a permission") || !contains(err, "'eval'") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// L4, L16: without the push the holder would not know that others may have its key.
func TestAForceThatMayNotPublishEndsNoLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	l, operator := member(t, s.URL()), member(t, s.URL())
	lease := take(t, l, "k", lock.TTL(time.Minute))
	deny(t, s, "publish")
	if _, err := operator.ForceRelease(t.Context(), "k", "test"); !errors.Is(err, lock.ErrUnavailable) || refusal.Of(err) != refusal.Login {
		t.Errorf("force: %v, want %v with the reason", err, lock.ErrUnavailable)
	}
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease has ended: %v", err)
	}
	busy(t, operator, "k")
	allow(t, s, "publish")
	if n, err := operator.ForceRelease(t.Context(), "k", "test"); err != nil || n != 1 {
		t.Errorf("forced %d, %v, want 1", n, err)
	}
	ends(t, lease, slack)
}

// A grant that nobody hears is taken back, and leaves nothing.
func TestAGrantThatNobodyHearsLeavesTheSlotAsItWas(t *testing.T) {
	t.Parallel()
	d := openShared(t)
	for _, kind := range []struct {
		name, wants string
		ask         func(key string, n int) driver.Request
		back        *driver.Handback
	}{
		{"pool", "2", seat, nil},
		{"dirty slot", "2;-1;-1", box, &driver.Handback{Status: driver.SlotDirty, Strikes: 2, Note: "note"}},
		{"clean slot", "2;-1;-1", box, &driver.Handback{Status: driver.SlotFree, Strikes: 2, Note: "note"}},
	} {
		for slot := range 2 {
			t.Run(fmt.Sprint(kind.name, " ", slot), func(t *testing.T) {
				after := func(dead bool) driver.State {
					held := twoHeld(t, d, kind.ask)
					g := held[slot]
					state := "mega:{" + g.Key + "}:"
					if dead { // its inbox has no subscriber
						ticket, now := token(), time.Now().UnixMilli()
						do(t, "HSET", state+"state", ticket, "3 1 "+kind.wants+" nobody 1 2 3 dead")
						do(t, "ZADD", state+"due", now+2000, ticket)
						do(t, "ZADD", state+"order", now*1000, ticket)
					}
					g.Handback = kind.back
					release(t, d, g)
					s := inspect(t, d, g.Key)
					if n := len(s.Holders); n != 1 || len(s.Waiters) != 0 {
						t.Errorf("%d holders and %d waiters are left, want the other one alone", n, len(s.Waiters))
					}
					r := kind.ask(g.Key, 2)
					r.Wait = 0
					if got := acquire(t, d, r); got.Slot != slot {
						t.Errorf("slot %d is given, want %d", got.Slot, slot)
					}
					s.Key, s.Holders = "", nil
					for i := range s.Slots {
						s.Slots[i].LastHolder.Since = time.Time{}
					}
					return s
				}
				if without, with := after(false), after(true); !reflect.DeepEqual(with, without) {
					t.Errorf("a dead waiter left\n%+v, without it\n%+v", with, without)
				}
			})
		}
	}
}

// L2: a mark that cannot be read may be ahead of the clock.
func TestAUserWithoutGETGetsNoLowerFence(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	a, b := open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: s.URL()})
	for _, cycle := range cycles(t, a) {
		cycle()
	}
	held := acquire(t, a, request("held"))
	next := queueUp(t, b, request("held"))
	expired := request("expired")
	expired.TTL, expired.NoRenew = 3*time.Second, true // not before the right to GET is taken away
	acquire(t, a, expired)
	after := queueUp(t, b, request("expired"))
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro()) //nolint:gosec // positive
	must(t, command("SET", mark, ahead)(s))
	deny(t, s, "get")
	slots := []driver.Request{request("k"), seat("pool", 2), seat("pool", 2)}
	slots[1].Pool, slots[2].Pool = &driver.Pool{Prefer: 0, Avoid: -1}, &driver.Pool{Prefer: 1, Avoid: -1}
	for _, r := range slots {
		g, err := a.Acquire(t.Context(), r)
		if err == nil && g.Fence <= ahead || err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: fence %d, %v, the last was %d", r.Key, g.Fence, err, ahead)
		}
	}
	if err := a.Release(t.Context(), held); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("release = %v, want %v", err, driver.ErrUnavailable)
	}
	soon(t, "the expiry", func() bool {
		left, err := s.Do("PTTL", "mega:{expired}")
		return err == nil && left == int64(-2)
	})
	redis.Beat(t.Context(), b)
	allow(t, s, "get")
	_ = a.Release(t.Context(), held)
	for _, q := range []*queuing{next, after} {
		if g := q.granted(t, 3*time.Second); g.Fence <= ahead {
			t.Errorf("%s: fence %d after %d", q.Key, g.Fence, ahead)
		}
	}
}
