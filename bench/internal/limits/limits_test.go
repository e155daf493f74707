package limits

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/limit/limittest"
)

// The checker that finds nothing in mega's limits finds the excess of others at the
// edge of a window: a whole burst, and at once what has been refilled meanwhile.
func TestCheckerFindsTheExcessOfOthers(t *testing.T) {
	const n, per = 10, 400 * time.Millisecond
	server := redistest.Start(t, redistest.Options{})
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	ofMega := func(d driver.Driver, err error) func(try int) asking {
		if err != nil {
			t.Fatal(err)
		}
		l, err := limit.New(d, limit.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		return func(int) asking {
			return func() (bool, error) {
				r, err := l.Allow(t.Context(), "k", limit.Limit{Rates: []limit.Rate{{N: n, Per: per}}})
				return r.Allowed, err
			}
		}
	}
	for _, test := range []struct {
		name    string
		exceeds bool
		begin   func(try int) asking
	}{
		{tokenBucket, true, func(int) asking {
			bucket := rate.NewLimiter(rate.Every(per/n), n)
			return func() (bool, error) { return bucket.Allow(), nil }
		}},
		{redisRate, true, func(try int) asking {
			library, key := redis_rate.NewLimiter(client), fmt.Sprint(try)
			return func() (bool, error) {
				r, err := library.Allow(t.Context(), key, redis_rate.Limit{Rate: n, Burst: n, Period: per})
				return err == nil && r.Allowed > 0, err
			}
		}},
		{"mega in memory", false, ofMega(memory.NewLimit(), nil)},
		{"mega on redis", false, ofMega(redis.OpenLimit(t.Context(), redis.Config{URL: server.URL()}))},
	} {
		t.Run(test.name, func(t *testing.T) {
			worst := 0
			for try := 0; try < 2 || test.exceeds && worst <= n && try < 50; try++ { // a machine may stand still
				worst = max(worst, worstOf(t, test.begin(try), n, per))
			}
			if exceeds := worst > n; exceeds != test.exceeds {
				t.Errorf("%d units within %v of a limit of %d", worst, per, n)
			}
		})
	}
}

// worstOf asks for one interval, or until more than n units are allowed in it.
func worstOf(t *testing.T, allow asking, n int, per time.Duration) (worst int) {
	t.Helper()
	var grants []limittest.Grant
	for start := time.Now(); time.Since(start) < per && worst <= n; time.Sleep(time.Millisecond) {
		from := time.Now()
		allowed, err := allow()
		if err != nil {
			t.Fatal(err)
		}
		if allowed {
			grants = append(grants, limittest.Grant{From: from, To: time.Now(), Units: 1})
			worst, _ = limittest.Worst(grants, per-time.Microsecond) // as worstWindow
		}
	}
	return worst
}
