package boot_test

import (
	"strings"
	"testing"

	"github.com/megaframework/mega"
	megactx "github.com/megaframework/mega/ctx"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/limit"
)

// A user of the Redis that may use the keys of lock.redis.key alone suffices for
// a program with limits, which mega limit --template shares.
func TestLocksAndLimitsHaveTheConfiguredNamesInRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	if _, err := server.Do("ACL", "SETUSER", "shop", "on", ">secret", "~shop:*", "&mega:inbox:*", "+@all"); err != nil {
		t.Fatal(err)
	}
	p, _ := process("MEGA_CACHE_MAIN_URL="+strings.Replace(server.URL(), "://", "://shop:secret@", 1), "MEGA_LOCK_REDIS_KEY=shop:{%s}")
	url := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			return c.Lock.With("stock", func(c *megactx.Ctx) error {
				_, err := c.Limit.Allow("partner", limit.Limit{Rates: []limit.Rate{limit.PerHour(5)}})
				return err
			})
		})
	}))).Report().Apps[0].URL
	if status, body := get(t, url); status >= 400 {
		t.Fatalf("got %d %s", status, body)
	}
	for _, key := range []string{"shop:{partner}:rate", "shop:{}:clock"} {
		if n, err := server.Do("EXISTS", key); err != nil || n != int64(1) {
			t.Errorf("the key %s exists %v times, %v", key, n, err)
		}
	}
}
