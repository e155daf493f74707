package boot

import (
	"context"
	"slices"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
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

func (c *caches) all(cfg *config.Config) (plan.Caches, error) {
	all := plan.Caches{}
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
	alias, err := selection.DefaultCache(cfg, c.plan.Program.ClientTakers)
	if err != nil {
		return nil, err
	}
	return c.client(cfg, alias)
}

// client connects to a cache at the first call, and returns the same client
// afterwards.
func (c *caches) client(cfg *config.Config, alias string) (goredis.UniversalClient, error) {
	if client, ok := c.open[alias]; ok {
		return client, nil
	}
	client, err := selection.OpenCache(c.ctx, cfg, alias, c.log)
	if err != nil {
		return nil, err
	}
	c.life.endWith(owning, hook{name: "close cache " + alias, budget: hookBudget, run: func(context.Context) error { return client.Close() }})
	if c.open == nil {
		c.open = map[string]goredis.UniversalClient{}
	}
	c.open[alias] = client
	return client, nil
}
