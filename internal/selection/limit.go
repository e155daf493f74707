package selection

import (
	"cmp"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock/driver"
)

// Limit selects the driver of the limits: the driver that limit.driver names, or
// an error if that driver cannot be used. With limit.driver at auto, it is redis if
// limit.cache names another cache than that of the locks, and otherwise the
// driver of the locks, at the same server: locks and limits then have the same
// scope, and one action about a server repairs both. It returns a complete
// decision with its error, as Lock does.
//
// A decision that follows the locks has no warnings: those about the locks apply to
// limits too.
func Limit(c *settings.Config, s Surroundings, locks plan.Decision) (plan.Decision, error) {
	k := component{
		name: "limit", requested: c.Limit.Driver, required: c.Limit.Require, subject: "limits", act: "counts",
		limit: "limits end at %s: another %s has limits of its own",
		code:  codes{noCluster: "limit.no_cluster", tooSmall: "limit.scope_too_small", missing: "limit.driver_missing", noCache: "limit.no_cache", ambiguousCache: "limit.ambiguous_cache"},
	}
	k.candidates = []candidate{
		{"redis", driver.Fleet, k.cacheOf(c, cmp.Or(c.Limit.Cache, c.Lock.Cache))},
		{"cluster", driver.Node, k.cluster(c, s)},
		{"memory", driver.Process, fit{ok: true, reason: "limit.driver does not request another one", key: "limit.driver", origin: c.Origin("limit.driver").String()}},
	}
	follows := !k.explicit() && (c.Limit.Cache == "" || c.Limit.Cache == locks.Cache)
	if follows {
		for i := range k.candidates {
			k.follow(c, locks, &k.candidates[i])
		}
	}
	d, err := k.decide(c, s)
	if d.Chosen != "memory" {
		d.Namespace = c.Lock.Namespace
	}
	if follows {
		d.Warnings, d.Wider, d.As = nil, nil, locks.Component
	}
	return d, err
}

// follow makes a candidate fit if it is the driver of the locks, and only then.
func (k component) follow(c *settings.Config, locks plan.Decision, o *candidate) {
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

// limitServer describes the Redis of the limits.
func limitServer(c *settings.Config, d plan.Decision) server {
	s := redisServer(c, d.Cache)
	s.name, s.refused, s.unavailable = "the Redis that is configured for limits", "limit.driver_refused", "limit.driver_unavailable"
	s.without = failure.Set(c, "limit.driver", "memory") + ": limits then end at this process"
	if d.Key != s.key {
		s.decision = d.Key
	}
	return s
}
