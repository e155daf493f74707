package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// user takes the key once, does work under it, and gives it back.
type user struct {
	name string
	take func(ctx context.Context, key string, work func()) error
}

// Services that lock a key by github.com/bsm/redislock, and both engines, keep
// each other out.
func TestBothEnginesAndForeignClientsExcludeEachOther(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	users := []user{foreign(t, s, "foreign 1"), foreign(t, s, "foreign 2")}
	for i := range 2 {
		for _, engine := range engines() {
			l := memberOf(t, redis.Config{URL: s.URL(), Key: "%s", Engine: engine})
			users = append(users, user{fmt.Sprint(engine, i), with(l)})
		}
	}
	var inside atomic.Int32
	var mu sync.Mutex
	turns := map[string]int{}
	plain := 0 // protected by the lock alone
	var all []func()
	rounds := suite.Scaled(40)
	for _, u := range users {
		all = append(all, func() {
			for range rounds {
				err := u.take(t.Context(), "shared:key", func() {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%s is inside with %d others", u.name, n-1)
					}
					plain++
					time.Sleep(200 * time.Microsecond)
					inside.Add(-1)
					mu.Lock()
					defer mu.Unlock()
					turns[u.name]++
				})
				if err != nil {
					t.Errorf("%s: %v", u.name, err)
				}
			}
		})
	}
	together(all...)
	t.Logf("turns: %v", turns)
	if want := rounds * len(users); plain != want {
		t.Errorf("counted to %d, want %d", plain, want)
	}
	unused(t, memberOf(t, redis.Config{URL: s.URL(), Key: "%s"}), "shared:key")
}

// foreign is another service, which knows nothing of this package.
func foreign(t *testing.T, s *redistest.Server, name string) user {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { must(t, client.Close()) })
	locks := redislock.New(client)
	return user{name, func(ctx context.Context, key string, work func()) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		l, err := locks.Obtain(ctx, key, 10*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(2 * time.Millisecond)})
		if err != nil {
			return err
		}
		work()
		return l.Release(ctx)
	}}
}

func with(l *lock.Locker) func(ctx context.Context, key string, work func()) error {
	return func(ctx context.Context, key string, work func()) error {
		return l.With(ctx, key, func(context.Context) error {
			work()
			return nil
		}, lock.Wait(time.Minute))
	}
}

// A fence grows from one engine to the other, and over what a foreign client
// held in between.
func TestFencesGrowAcrossEnginesAndForeignClients(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	stranger := foreign(t, s, "foreign")
	var last uint64
	lockers := []*lock.Locker{
		memberOf(t, redis.Config{URL: s.URL(), Key: "%s", Engine: redis.EngineQueue}),
		memberOf(t, redis.Config{URL: s.URL(), Key: "%s", Engine: redis.EngineRedislock}),
	}
	for i := range suite.Scaled(20) {
		lease := take(t, lockers[i%2], "shared:key")
		if lease.Fence() <= last {
			t.Errorf("round %d: fence %d after %d", i, lease.Fence(), last)
		}
		last = lease.Fence()
		giveBack(t, lease)
		if i%3 == 0 {
			must(t, stranger.take(t.Context(), "shared:key", func() {}))
		}
	}
}

// What a foreign client holds is busy for both engines, and what they hold is
// for it; nobody releases what is another's.
func TestForeignLocksAreBusyNotBroken(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	client := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { must(t, client.Close()) })
	locks := redislock.New(client)
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			l := memberOf(t, redis.Config{URL: s.URL(), Key: "%s", Engine: engine})
			theirs, err := locks.Obtain(t.Context(), "k", time.Minute, nil)
			must(t, err)
			busy(t, l, "k")
			if err := theirs.Refresh(t.Context(), time.Minute, nil); err != nil {
				t.Errorf("the foreign lock is gone: %v", err)
			}
			must(t, theirs.Release(t.Context()))
			ours := take(t, l, "k", lock.Wait(0))
			if _, err := locks.Obtain(t.Context(), "k", time.Minute, nil); !errors.Is(err, redislock.ErrNotObtained) {
				t.Errorf("a foreign client got %v, want %v", err, redislock.ErrNotObtained)
			}
			giveBack(t, ours)
		})
	}
}
