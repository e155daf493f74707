package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// L4: a server that comes back without its data is noticed at the reconnect, not
// at the next renewal, which is ten seconds away. (The engine redislock has no
// connection of its own that would notice.)
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
