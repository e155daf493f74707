package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// lockers returns Lockers of two processes.
func lockers(t *testing.T, c redis.Config) (a, b *lock.Locker) {
	t.Helper()
	var all [2]*lock.Locker
	for i := range all {
		d, err := openLock(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if all[i], err = lock.New(d, lock.Config{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := all[i].Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return all[0], all[1]
}

func nothing(context.Context) error { return nil }

// century is an interval whose tick does not end during a test.
const century = lock.MaxEvery

func TestRunsOnRedis(t *testing.T) {
	t.Parallel()
	a, b := lockers(t, redis.Config{URL: shared.URL()})
	runsOnce(t, a, b)
}

func TestRunsOnACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	a, b := lockers(t, redis.Config{URL: c.URL()})
	runsOnce(t, a, b)
}

func runsOnce(t *testing.T, a, b *lock.Locker) {
	t.Helper()
	key := "job:" + token()
	ran, err := a.Once(t.Context(), key, century, nothing, lock.Label("nightly"))
	if !ran || err != nil {
		t.Fatalf("ran %v, %v; the first run is due", ran, err)
	}
	for _, l := range []*lock.Locker{a, b} {
		if ran, err := l.Once(t.Context(), key, century, nothing); ran || err != nil {
			t.Errorf("ran %v, %v; the tick is spent", ran, err)
		}
	}
	s, err := b.Inspect(t.Context(), key)
	r := s.LastRun
	if err != nil || r == nil || r.Outcome != driver.Done || r.By.Label != "nightly" || r.Every != century || r.Start.IsZero() || r.End.Before(r.Start) {
		t.Errorf("last run %+v, %v", r, err)
	}
}

func TestARunKeyOfAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	a, _ := lockers(t, redis.Config{URL: shared.URL()})
	key := "job:" + token()
	client := goredis.NewClient(&goredis.Options{Addr: shared.Addr()})
	defer client.Close()
	for record, want := range map[string]string{
		"7 what nobody knows": "the record has format 7, this program uses format 3",
		"3 what nobody knows": "the value is not the record of a run",
		"no record":           "the value is not the record of a run",
	} {
		if err := client.Set(t.Context(), "mega:{"+key+"}:run", record, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if s, err := a.Inspect(t.Context(), key); err != nil || s.LastRun == nil || s.LastRun.Skipped != want || s.LastRun.Fence != 0 {
			t.Errorf("%s: last run %+v, %v", record, s.LastRun, err)
		}
		if strings.HasPrefix(record, "3 ") {
			continue // what has this version was written by this program
		}
		if ran, err := a.Once(t.Context(), key, century, nothing); ran || !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("%s: ran %v, %v; want ErrUnavailable", record, ran, err)
		}
	}
}

func TestRedislockRefusesRuns(t *testing.T) {
	t.Parallel()
	a, _ := lockers(t, redis.Config{URL: shared.URL(), Engine: redis.EngineRedislock})
	if ran, err := a.Once(t.Context(), "job:"+token(), century, nothing); ran || !errors.Is(err, lock.ErrUnsupported) {
		t.Errorf("ran %v, %v; want ErrUnsupported", ran, err)
	}
}

func TestRedislockRefusesPoolsWithTheReason(t *testing.T) {
	t.Parallel()
	a, _ := lockers(t, redis.Config{URL: shared.URL(), Engine: redis.EngineRedislock})
	_, err := a.AcquireSlot(t.Context(), &lock.Pool{Key: "pool:" + token(), Size: 1})
	if !errors.Is(err, lock.ErrUnsupported) || !strings.Contains(err.Error(), "redislock has no pools") {
		t.Errorf("got %v; want ErrUnsupported with the reason", err)
	}
}

// A cooldown is kept by the server, also after the end of the process, and by
// both engines.
func TestCooldownOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"", redis.EngineRedislock} {
		key := "cool:" + token()
		d, err := openLock(t.Context(), redis.Config{URL: shared.URL(), Engine: engine})
		if err != nil {
			t.Fatal(err)
		}
		l, err := lock.New(d, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		// An hour, so that the key is surely still taken, and a second, so that it
		// is surely free in the end.
		if err := l.With(t.Context(), key, nothing, lock.Cooldown(time.Hour)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := l.With(t.Context(), key+"2", nothing, lock.Cooldown(time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, b := lockers(t, redis.Config{URL: shared.URL(), Engine: engine})
		if _, err := b.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("engine %q: %v, want ErrNotAcquired", engine, err)
		}
		if err := b.With(t.Context(), key+"2", nothing, lock.Wait(time.Minute)); err != nil || time.Since(begun) < 900*time.Millisecond {
			t.Errorf("engine %q: %v after %v", engine, err, time.Since(begun))
		}
		if n, err := b.ForceRelease(t.Context(), key, "test"); n != 1 || err != nil {
			t.Errorf("engine %q: force released %d, %v", engine, n, err)
		}
	}
}

// O5: a request that does not arrive is sent again within the call.
func TestACooldownIsNotLongerWhenItsReleaseIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		p := redistest.StartProxy(t, shared, (&yard{names: redis.ScriptNames(nil)}).name)
		d := open(t, redis.Config{URL: p.URL(), Engine: engine})
		var first, second *redistest.Fault
		eventually(t, "a second attempt", func() bool { // on a busy machine the call may end before it
			g := acquire(t, d, request("cool:"+token()))
			g.Rev, g.Rest = 1, 20*time.Second
			first, second = p.HoldRequest(redistest.Named("confirm")), p.Record(redistest.Named("confirm"))
			_ = d.Release(t.Context(), g) // the second attempt may be late as well
			select {
			case <-second.Hit():
				return true
			case <-time.After(time.Second):
				first.Cancel()
				second.Cancel()
				return false
			}
		})
		rest := func(f *redistest.Fault) time.Duration {
			args := f.Command().Args
			ms, err := strconv.Atoi(args[len(args)-3])
			must(t, err)
			return time.Duration(ms) * time.Millisecond
		}
		if less := rest(first) - rest(second); less < 400*time.Millisecond { // an attempt takes 450 ms
			t.Errorf("engine %q: the second attempt has a rest of %v, the first one of %v", engine, rest(second), rest(first))
		}
	}
}

// O5: where a heartbeat finds a grant first, its push may come after the release.
func TestALatePushDoesNotEndACooldown(t *testing.T) {
	t.Parallel()
	d := openShared(t)
	for _, r := range []driver.Request{request("cool:" + token()), seat("cool:"+token(), 2)} {
		g := acquire(t, d, r)
		holder := "mega:{" + g.Key + "}"
		words := strings.Fields(do(t, "GET", holder).(string))
		g.Rev, g.Rest = 1, time.Minute
		release(t, d, g)
		do(t, "PUBLISH", "mega:inbox:"+words[5], fmt.Sprintf("g2 %s %d %d %s", g.Token, g.Fence, g.Slot, holder))
		during(t, time.Second, "the cooldown has ended", func() bool { return len(inspect(t, d, g.Key).Holders) == 1 })
	}
}
