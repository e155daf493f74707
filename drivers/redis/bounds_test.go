package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	limit "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock/driver"
)

// A client without timeouts waits without end for a sentinel or a node of a Cluster that
// stands still, in calls that no caller bounds.
func TestAClientThatCannotServeIsRefused(t *testing.T) {
	t.Parallel()
	for c, want := range map[goredis.UniversalClient]string{
		(*goredis.Client)(nil):        "nil",
		(*goredis.ClusterClient)(nil): "nil",
		goredis.NewClient(&goredis.Options{ReadTimeout: -1, WriteTimeout: time.Second}):                                               "timeout",
		goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ReadTimeout: -1}): "timeout",
		goredis.NewClusterClient(&goredis.ClusterOptions{WriteTimeout: -1}):                                                           "timeout",
	} {
		if want != "nil" {
			t.Cleanup(func() { _ = c.Close() })
		}
		if _, err := redis.OpenLock(t.Context(), redis.Config{Client: c}); !errors.Is(err, driver.ErrInvalid) || !contains(err, want) {
			t.Errorf("a lock with %T: %v, want one with %q", c, err, want)
		}
		if _, err := redis.OpenLimit(t.Context(), redis.Config{Client: c}); !errors.Is(err, limit.ErrInvalid) || !contains(err, want) {
			t.Errorf("a limit with %T: %v, want one with %q", c, err, want)
		}
	}
}

// The data is not a lock, and the server serves (L16, L21).
func TestForceOfAForeignTypeIsRefused(t *testing.T) {
	t.Parallel()
	d, c := openShared(t), directly(t)
	for _, suffix := range []string{"", ":state", ":order"} {
		key := "foreign:" + token()
		name := "mega:{" + key + "}" + suffix
		must(t, c.SAdd(t.Context(), name, "x").Err())
		_, err := d.ForceRelease(t.Context(), key, driver.Force{Reason: "test"})
		if !errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a set at %s: %v, want ErrInvalid", name, err)
		}
		must(t, c.Del(t.Context(), name).Err())
	}
}

func TestErrorForAForeignTypeNamesTheCause(t *testing.T) {
	t.Parallel()
	d, c := openShared(t), directly(t)
	key := "foreign:" + token()
	name := "mega:{" + key + "}"
	must(t, c.SAdd(t.Context(), name, "x").Err())
	_, err := d.Acquire(t.Context(), driver.Request{Key: key, Token: token(), TTL: time.Second, Slots: 1})
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("got %v", err)
	}
	must(t, c.Del(t.Context(), name).Err())
}

func TestCloseOfLimitsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p, err := redistest.NewProxy(redistest.Start(t, redistest.Options{}), nil)
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	// A Close that waits for the call always takes longer, a busy machine seldom.
	for range 3 {
		if closeTakes(t, p) < 400*time.Millisecond {
			return
		}
	}
	t.Error("Close has not ended with its context of 50 ms, three times")
}

// closeTakes returns how long the Close of a driver whose call gets no answer takes
// under a context of 50 ms.
func closeTakes(t *testing.T, p *redistest.Proxy) (took time.Duration) {
	t.Helper()
	o, err := goredis.ParseURL(p.URL())
	must(t, err)
	c := goredis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	d := openLimit(t, redis.Config{Client: c})
	p.ResetCounts()
	p.Hold(redistest.Replies)
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		_, _ = d.Take(t.Context(), limit.Request{Key: "k", Rates: []limit.Rate{{N: 1, Per: time.Second}}, Cost: 1})
	}()
	eventually(t, "the call to wait for its answer", func() bool { return len(p.Counts()) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	err = d.Close(ctx)
	took = time.Since(began)
	t.Logf("closed after %v: %v", took, err)
	<-taken
	p.Heal()
	must(t, d.Close(t.Context()))
	return took
}
