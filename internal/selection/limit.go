package selection

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock/driver"
)

// Limit selects the driver of the limits: the driver that limit.driver names, or
// an error if that driver cannot be used. With limit.driver at auto, it is the
// driver of the locks, at the same server: locks and limits then have the same
// scope, and one action about a server repairs both. It returns a complete
// decision with its error, as Lock does.
//
// With limit.driver at auto, the decision has no warnings, since those about the
// locks say the same.
func Limit(c *config.Config, s Surroundings, locks plan.Decision) (plan.Decision, error) {
	k := component{
		name: "limit", requested: c.Limit.Driver, required: c.Limit.Require, subject: "limits", act: "counts",
		limit: "limits end at %s: another %s has limits of its own",
		code:  codes{noCluster: "limit.no_cluster", tooSmall: "limit.scope_too_small"},
	}
	k.candidates = []candidate{
		{"redis", driver.Fleet, limitCache(c)},
		{"cluster", driver.Node, k.cluster(c, s)},
		{"memory", driver.Process, fit{ok: true, reason: "limit.driver does not request another one", key: "limit.driver", origin: c.Origin("limit.driver").String()}},
	}
	if !k.explicit() {
		for i := range k.candidates {
			k.follow(c, locks, &k.candidates[i])
		}
	}
	d, err := k.decide(c, s)
	if d.Chosen != "memory" {
		d.Namespace = c.Lock.Namespace
	}
	if !k.explicit() {
		d.Warnings, d.Wider, d.As = nil, nil, locks.Component
	}
	return d, err
}

// follow makes a candidate fit if it is the driver of the locks, and only then.
func (k component) follow(c *config.Config, locks plan.Decision, o *candidate) {
	if o.name == locks.Chosen {
		o.fit = fit{ok: true, reason: "the locks use it", key: locks.Key, origin: locks.Origin, cache: locks.Cache, server: locks.Server}
		return
	}
	change := k.key("driver") + ": " + o.name
	o.fit = fit{
		reason: "the locks use " + locks.Chosen, key: locks.Key, origin: locks.Origin,
		needs: change, remedy: cmp.Or(o.remedy, failure.Set(c, k.key("driver"), o.name)),
	}
}

// limitCache selects the cache that keeps the limits if redis is requested for
// them: limit.cache, else lock.cache, else the only cache.
func limitCache(c *config.Config) fit {
	caches, alias := c.Caches(), cmp.Or(c.Limit.Cache, c.Lock.Cache) // the loading of both has checked that this cache exists
	switch {
	case len(caches) == 0:
		return fit{
			reason: "no cache is configured", key: "cache.<alias>.url", origin: plan.NotSet,
			needs: "cache.<alias>.url", remedy: enable(c, "redis"), refused: noLimitCache(c),
		}
	case alias == "" && len(caches) > 1:
		return fit{
			ok: true, reason: "several caches are configured, and limit.cache is not set", key: "limit.cache", origin: c.Origin("limit.cache").String(),
			remedy: failure.Set(c, "limit.cache", caches[0]), refused: ambiguousLimitCache(c, caches),
		}
	}
	alias = cmp.Or(alias, caches[0])
	key := urlKey(alias)
	return fit{
		ok: true, reason: "a cache is configured", key: key, origin: c.Origin(key).String(),
		cache: alias, server: c.Cache[alias].URL.String(),
	}
}

func noLimitCache(c *config.Config) error {
	return &failure.Failure{
		Code: "limit.no_cache", Exit: failure.ExitConfig,
		Text:    "The driver redis is requested for limits, but no cache is configured.",
		Facts:   []failure.Fact{failure.Setting(c, "limit.driver")},
		Actions: failure.Actions("Configure a cache", enable(c, "redis"), "Use the driver of locks", failure.Unset(c, "limit.driver")),
	}
}

func ambiguousLimitCache(c *config.Config, caches []string) error {
	f := &failure.Failure{
		Code: "limit.ambiguous_cache", Exit: failure.ExitConfig,
		Text: fmt.Sprintf("Several caches are configured (%s), and neither limit.cache nor lock.cache selects one of them for the limits.", strings.Join(caches, ", ")),
	}
	var actions []string
	for _, alias := range caches {
		f.Facts = append(f.Facts, failure.Setting(c, urlKey(alias)))
		actions = append(actions, "Choose "+alias, failure.Set(c, "limit.cache", alias))
	}
	f.Actions = failure.Actions(actions[:min(len(actions), 2*failure.MaxActions)]...)
	return f
}

// limitMissing returns the failure for a driver of limits that this build lacks.
func limitMissing(c *config.Config, d plan.Decision) error {
	return &failure.Failure{
		Code: "limit.driver_missing", Exit: failure.ExitConfig,
		Text:    fmt.Sprintf("This build lacks the driver %s, which is configured for limits.", d.Chosen),
		Facts:   decidedBy(c, d),
		Actions: failure.Actions("Share limits through Redis", enable(c, "redis"), "Keep them in this process", failure.Set(c, "limit.driver", "memory")),
	}
}

// limitServer describes the Redis of the limits.
func limitServer(c *config.Config, d plan.Decision) server {
	s := redisServer(c, d.Cache)
	s.name, s.refused, s.unavailable = "the Redis that is configured for limits", "limit.driver_refused", "limit.driver_unavailable"
	s.without = failure.Set(c, "limit.driver", "memory") + ": limits then end at this process"
	if d.Key != s.key {
		s.decision = d.Key
	}
	return s
}
