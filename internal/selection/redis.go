package selection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func openRedis(ctx context.Context, c *config.Config, d plan.Decision, log *slog.Logger) (driver.Driver, error) {
	w := waiting[driver.Driver]{
		open: func(ctx context.Context) (driver.Driver, error) {
			return redis.OpenLock(ctx, redis.Config{
				URL: c.Cache[d.Cache].URL.Reveal(), Engine: c.Lock.Redis.Engine, Key: c.Lock.Redis.Key, Namespace: c.Lock.Namespace,
			})
		},
		log: log.With("component", d.Component, "driver", d.Chosen, "server", d.Server), limit: c.Boot.WaitFor,
		hopeless: func(err error) bool {
			return errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrUnsupported) || denied(err)
		},
	}
	opened, err := w.run(ctx)
	if err != nil {
		return nil, lockUnavailable(c, d, w.account(err), err)
	}
	return opened, nil
}

// OpenCache connects to the cache with that alias. The client has its own
// connections, so that its failures do not affect the locks.
func OpenCache(ctx context.Context, cfg *config.Config, alias string, log *slog.Logger) (goredis.UniversalClient, error) {
	url := cfg.Cache[alias].URL
	client, err := redis.NewClient(url.Reveal())
	if err != nil {
		return nil, cacheRefused(cfg, alias, err)
	}
	w := waiting[struct{}]{
		limit: cfg.Boot.WaitFor, log: log.With("component", "cache "+alias, "server", url),
		hopeless: denied,
		open:     func(ctx context.Context) (struct{}, error) { return struct{}{}, client.Ping(ctx).Err() },
	}
	if _, err = w.run(ctx); err == nil {
		return client, nil
	}
	_ = client.Close() // no connection works
	if denied(err) {
		return nil, cacheDenied(cfg, alias, err)
	}
	return nil, cacheUnavailable(cfg, alias, w.account(err), err)
}

// DefaultCache returns the alias of the default cache: the only cache, else the
// one with the alias main, else the one that lock.cache names. The error
// contains the facts about the functions that use the cache.
func DefaultCache(cfg *config.Config, uses func() []failure.Fact) (string, error) {
	aliases := cfg.Caches()
	switch {
	case len(aliases) == 1:
		return aliases[0], nil
	case slices.Contains(aliases, "main"):
		return "main", nil
	case cfg.Lock.Cache != "":
		return cfg.Lock.Cache, nil // config.Load has checked that it exists
	case len(aliases) == 0:
		return "", &failure.Failure{
			Code: "cache.not_configured", Exit: failure.ExitConfig, Text: "A client of redis is asked for, but no cache is configured.",
			Facts:   uses(),
			Actions: []string{"say where redis is:  " + failure.Set(cfg, "cache.main.url", "redis://localhost:6379/0")},
		}
	}
	f := &failure.Failure{
		Code: "cache.ambiguous", Exit: failure.ExitConfig, Facts: uses(),
		Text:    fmt.Sprintf("A client of redis is asked for, several caches are configured (%s), and none of them is called main.", strings.Join(aliases, ", ")),
		Actions: []string{"call one of them main:       cache.main.url", "take them by their aliases:  mega.Caches, in the place of redis.UniversalClient"},
	}
	for _, alias := range aliases {
		f.Facts = append(f.Facts, failure.Setting(cfg, "cache."+alias+".url"))
	}
	return "", f
}

// lockUnavailable returns the failure for a server of locks that cannot be
// used.
func lockUnavailable(c *config.Config, d plan.Decision, a attempts, cause error) error {
	key := "cache." + d.Cache + ".url"
	facts := []failure.Fact{failure.Setting(c, key)}
	if d.Key != key {
		facts = append(facts, failure.Setting(c, d.Key))
	}
	if denied(cause) {
		return &failure.Failure{
			Code: "lock.driver_refused", Exit: failure.ExitConfig, Cause: cause, Facts: facts,
			Text: "The Redis that is configured for locks refuses the credentials or permissions of this program.",
			Actions: []string{
				"Correct user and password:  " + failure.Set(c, key, "redis://user:password@host:6379/0"),
				"Grant the permissions:      the cause names the missing one",
				"Continue without:           " + doWithout(c, d, key),
			},
		}
	}
	if a.hopeless {
		return &failure.Failure{
			Code: "lock.driver_refused", Exit: failure.ExitConfig, Cause: cause, Facts: facts,
			Text:    "Locks are to be kept in redis, but it cannot be opened as configured.",
			Actions: []string{"correct it:  " + failure.Set(c, key, "redis://localhost:6379/0")},
		}
	}
	return &failure.Failure{
		Code: "lock.driver_unavailable", Exit: failure.ExitUnavailable, Cause: cause, Facts: append(facts, a.tried),
		Text: "Locks are to be kept in redis, but it cannot be used.",
		Actions: []string{
			Mend(c, key, cause),
			"point elsewhere:  " + failure.SetOther(c, key, "redis://localhost:6379/0"),
			"wait longer:      " + failure.Set(c, "boot.wait_for", "60s"),
			"do without:       " + doWithout(c, d, key),
		},
	}
}

// Mend returns an action for the server itself, derived from the cause.
func Mend(c *config.Config, key string, cause error) string {
	text := cause.Error()
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case denied(cause):
		return "log in:           " + failure.Set(c, key, "redis://user:password@host:6379/0")
	case has("replica"):
		return "use its master:   " + failure.Set(c, key, "redis-sentinel://host1,host2,host3/master")
	case has("connection refused"):
		return "start it:         redis-server, or what runs it at that address"
	}
	return "see to it:        the cause says what is wrong with the server"
}

// doWithout returns the action that keeps locks in the process instead.
func doWithout(c *config.Config, d plan.Decision, key string) string {
	if v, _ := failure.ValueOf(c, key); d.Key == key && len(c.Caches()) == 1 && len(v.Shadows) == 0 {
		return failure.Unset(c, key) + ": locks then end at this process"
	}
	return failure.Set(c, "lock.driver", "memory") + ": locks then end at this process"
}

func cacheRefused(cfg *config.Config, alias string, cause error) error {
	key := "cache." + alias + ".url"
	return &failure.Failure{
		Code: "cache.refused", Exit: failure.ExitConfig, Cause: cause, Facts: []failure.Fact{failure.Setting(cfg, key)},
		Text:    fmt.Sprintf("The cache %s cannot be opened as configured.", alias),
		Actions: []string{"correct it:  " + failure.Set(cfg, key, "redis://localhost:6379/0")},
	}
}

func cacheDenied(cfg *config.Config, alias string, cause error) error {
	key := "cache." + alias + ".url"
	return &failure.Failure{
		Code: "cache.refused", Exit: failure.ExitConfig, Cause: cause, Facts: []failure.Fact{failure.Setting(cfg, key)},
		Text: fmt.Sprintf("The cache %s refuses the credentials or permissions of this program.", alias),
		Actions: []string{
			"Correct user and password:  " + failure.Set(cfg, key, "redis://user:password@host:6379/0"),
			"Grant the permissions:      the cause names the missing one",
		},
	}
}

func cacheUnavailable(cfg *config.Config, alias string, a attempts, cause error) error {
	key := "cache." + alias + ".url"
	return &failure.Failure{
		Code: "cache.unavailable", Exit: failure.ExitUnavailable, Cause: cause,
		Text:  fmt.Sprintf("The cache %s is asked for, but it does not answer.", alias),
		Facts: []failure.Fact{failure.Setting(cfg, key), a.tried},
		Actions: []string{
			Mend(cfg, key, cause),
			"point elsewhere:  " + failure.SetOther(cfg, key, "redis://localhost:6379/0"),
			"wait longer:      " + failure.Set(cfg, "boot.wait_for", "60s"),
		},
	}
}
