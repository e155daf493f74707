package selection

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	limitdriver "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock/driver"
)

func openRedis(ctx context.Context, c *settings.Config, d plan.Decision, log *slog.Logger) (driver.Driver, error) {
	return openServer(ctx, c, d, lockServer(c, d), log, func(ctx context.Context) (driver.Driver, error) {
		return redis.OpenLock(ctx, redis.Config{
			URL: c.Cache[d.Cache].URL.Reveal(), Engine: c.Lock.Redis.Engine, Key: c.Lock.Redis.Key, Namespace: c.Lock.Namespace,
		})
	})
}

func openLimitRedis(ctx context.Context, c *settings.Config, d plan.Decision, log *slog.Logger) (limitdriver.Driver, error) {
	return openServer(ctx, c, d, limitServer(c, d), log, func(ctx context.Context) (limitdriver.Driver, error) {
		return redis.OpenLimit(ctx, redis.Config{URL: c.Cache[d.Cache].URL.Reveal(), Key: c.Lock.Redis.Key, Namespace: c.Lock.Namespace})
	})
}

// OpenCache connects to the cache with that alias. The client has its own
// connections, so that its failures do not affect the locks.
func OpenCache(ctx context.Context, cfg *settings.Config, alias string, log *slog.Logger) (goredis.UniversalClient, error) {
	url := cfg.Cache[alias].URL
	client, err := redis.NewClient(url.Reveal())
	if err != nil {
		return nil, redisServer(cfg, alias).failure(cfg, attempts{permanent: true}, err)
	}
	w := waiting[struct{}]{
		limit: cfg.Boot.WaitFor, log: log.With("component", "cache "+alias, "server", url),
		open: func(ctx context.Context) (struct{}, error) { return struct{}{}, ping(ctx, client, url.Reveal()) },
	}
	if _, err = w.run(ctx); err != nil {
		_ = client.Close() // no connection works
		return nil, redisServer(cfg, alias).failure(cfg, w.account(err), err)
	}
	return client, nil
}

// ping calls a server once. The client's own timeouts are longer, and each of its
// attempts to connect may take as long.
func ping(ctx context.Context, client goredis.UniversalClient, url string) error {
	once, cancel := context.WithTimeout(ctx, minAttempt)
	defer cancel()
	err := client.Ping(once).Err()
	if err != nil {
		return cmp.Or(redis.Diagnose(ctx, url, err), err)
	}
	return nil
}

// DefaultCache returns the alias of the default cache: the only cache, else the
// one with the alias main, else the one that lock.cache names. The error
// contains the facts about the functions that use the cache.
func DefaultCache(cfg *settings.Config, uses func() []failure.Fact) (string, error) {
	aliases := cfg.Caches()
	switch {
	case len(aliases) == 1:
		return aliases[0], nil
	case slices.Contains(aliases, "main"):
		return "main", nil
	case cfg.Lock.Cache != "":
		return cfg.Lock.Cache, nil // settings.Load has checked that it exists
	case len(aliases) == 0:
		return "", &failure.Failure{
			Code: "cache.not_configured", Exit: failure.ExitConfig, Text: "The program takes a Redis client, but no cache is configured.",
			Facts:   uses(),
			Actions: failure.Actions("Configure a cache", enable(cfg, "redis")),
		}
	}
	f := &failure.Failure{
		Code: "cache.ambiguous", Exit: failure.ExitConfig, Facts: uses(),
		Text:    fmt.Sprintf("The program takes a Redis client, but several caches are configured (%s), and none of them has the alias main.", strings.Join(aliases, ", ")),
		Actions: failure.Actions("Rename one of them", "use the alias main: cache.main.url", "Take all of them", "mega.Caches instead of redis.UniversalClient"),
	}
	for _, alias := range aliases {
		f.Facts = append(f.Facts, failure.Setting(cfg, urlKey(alias)))
	}
	return "", f
}
