package boot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
)

// caches opens the requested cache clients. They have their own connections, so
// that their failures do not affect the locks.
type caches struct {
	*booting
	open map[string]goredis.UniversalClient
}

// provide returns the providers of the cache clients. It leaves out the default
// client if the program provides its own.
func (c *caches) provide(shared *plan.Part) []fx.Option {
	options := []fx.Option{fx.Provide(c.all)}
	own := slices.ContainsFunc(shared.Provides, func(f plan.Function) bool { return slices.Contains(f.Makes(), plan.ClientType()) })
	if !own {
		options = append(options, fx.Provide(c.main))
	}
	return options
}

func (c *caches) all(cfg *config.Config) (Caches, error) {
	all := Caches{}
	for _, alias := range cfg.Caches() {
		client, err := c.client(cfg, alias)
		if err != nil {
			return nil, err
		}
		all[alias] = client
	}
	return all, nil
}

// main returns the client of the default cache, for functions that name no
// alias.
func (c *caches) main(cfg *config.Config) (goredis.UniversalClient, error) {
	alias, err := c.choose(cfg)
	if err != nil {
		return nil, err
	}
	return c.client(cfg, alias)
}

// choose returns the alias of the default cache: the only cache, else the one
// with the alias main, else the one that lock.cache names.
func (c *caches) choose(cfg *config.Config) (string, error) {
	aliases := cfg.Caches()
	switch {
	case len(aliases) == 1:
		return aliases[0], nil
	case slices.Contains(aliases, "main"):
		return "main", nil
	case cfg.Lock.Cache != "":
		return cfg.Lock.Cache, nil // config.Load has checked that it exists
	case len(aliases) == 0:
		return "", &Failure{
			Code: "cache.not_configured", Exit: ExitConfig, Text: "A client of redis is asked for, but no cache is configured.",
			Facts:   c.asking(),
			Actions: []string{"say where redis is:  " + failure.Set(cfg, "cache.main.url", "redis://localhost:6379/0")},
		}
	}
	f := &Failure{
		Code: "cache.ambiguous", Exit: ExitConfig, Facts: c.asking(),
		Text:    fmt.Sprintf("A client of redis is asked for, several caches are configured (%s), and none of them is called main.", strings.Join(aliases, ", ")),
		Actions: []string{"call one of them main:       cache.main.url", "take them by their aliases:  mega.Caches, in the place of redis.UniversalClient"},
	}
	for _, alias := range aliases {
		f.Facts = append(f.Facts, failure.Setting(cfg, "cache."+alias+".url"))
	}
	return "", f
}

// asking returns the functions that take a client, as facts of a Failure.
func (c *caches) asking() (facts []Fact) {
	for _, f := range c.program.Takers(plan.ClientType()) {
		facts = append(facts, Fact{Name: "asked for", Value: f.Declared()}, Fact{Name: "given at", Value: f.Site})
	}
	return facts
}

// client connects to a cache at the first call, and returns the same client
// afterwards.
func (c *caches) client(cfg *config.Config, alias string) (goredis.UniversalClient, error) {
	if client, ok := c.open[alias]; ok {
		return client, nil
	}
	url := cfg.Cache[alias].URL
	client, err := redis.NewClient(url.Reveal())
	if err != nil {
		return nil, cacheRefused(cfg, alias, err)
	}
	c.life.endWith(owning, hook{name: "close cache " + alias, budget: hookBudget, run: func(context.Context) error { return client.Close() }})
	w := waiting[struct{}]{
		limit: cfg.Boot.WaitFor, log: c.log.With("component", "cache "+alias, "server", url),
		hopeless: denied,
		open:     func(ctx context.Context) (struct{}, error) { return struct{}{}, client.Ping(ctx).Err() },
	}
	if _, err := w.run(c.ctx); err != nil {
		if denied(err) {
			return nil, cacheDenied(cfg, alias, err)
		}
		return nil, cacheUnavailable(cfg, alias, w.account(err), err)
	}
	if c.open == nil {
		c.open = map[string]goredis.UniversalClient{}
	}
	c.open[alias] = client
	return client, nil
}

func cacheRefused(cfg *config.Config, alias string, cause error) error {
	key := "cache." + alias + ".url"
	return &Failure{
		Code: "cache.refused", Exit: ExitConfig, Cause: cause, Facts: []Fact{failure.Setting(cfg, key)},
		Text:    fmt.Sprintf("The cache %s cannot be opened as configured.", alias),
		Actions: []string{"correct it:  " + failure.Set(cfg, key, "redis://localhost:6379/0")},
	}
}

func cacheDenied(cfg *config.Config, alias string, cause error) error {
	key := "cache." + alias + ".url"
	return &Failure{
		Code: "cache.refused", Exit: ExitConfig, Cause: cause, Facts: []Fact{failure.Setting(cfg, key)},
		Text: fmt.Sprintf("The cache %s refuses the credentials or permissions of this program.", alias),
		Actions: []string{
			"Correct user and password:  " + failure.Set(cfg, key, "redis://user:password@host:6379/0"),
			"Grant the permissions:      the cause names the missing one",
		},
	}
}

func cacheUnavailable(cfg *config.Config, alias string, a attempts, cause error) error {
	key := "cache." + alias + ".url"
	return &Failure{
		Code: "cache.unavailable", Exit: ExitUnavailable, Cause: cause,
		Text:  fmt.Sprintf("The cache %s is asked for, but it does not answer.", alias),
		Facts: []Fact{failure.Setting(cfg, key), a.tried},
		Actions: []string{
			mend(cfg, key, cause),
			"point elsewhere:  " + failure.SetOther(cfg, key, "redis://localhost:6379/0"),
			"wait longer:      " + failure.Set(cfg, "boot.wait_for", "60s"),
		},
	}
}
