package selection

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock/driver"
)

// Surroundings contains the inputs of decisions besides the configuration.
type Surroundings struct {
	Worker       bool     // the process is one of several that a supervisor runs
	LeftOut      []string // the apps of the program that this process does not run
	Requirements []plan.Requirement
	Timed        []plan.Function // the functions of Every
}

// Decide selects the drivers of a process. The returned decisions are complete even if
// Decide returns an error.
func Decide(c *settings.Config, s Surroundings) (plan.Decisions, error) {
	locks, lockErr := Lock(c, s)
	messages, busErr := Bus(c, s)
	limits, limitErr := Limit(c, s, locks)
	// Only the first error, because its remedy may also fix the others.
	return plan.Decisions{Lock: locks, Bus: messages, Limit: limits}, cmp.Or(lockErr, busErr, limitErr)
}

// Lock selects the driver of the locks: the driver that lock.driver names, or
// an error if that driver cannot be used. With lock.driver at auto, it is redis
// if a cache is configured, else cluster if the process belongs to one, else
// memory.
//
// The decision contains all its candidates, even if the error is not nil.
func Lock(c *settings.Config, s Surroundings) (plan.Decision, error) {
	k := component{
		name: "lock", requested: c.Lock.Driver, required: c.Lock.Require, subject: "locks", act: "excludes",
		limit: "exclusion ends at %s: another %s does not see its locks",
		code:  codes{noCluster: "lock.no_cluster", tooSmall: "lock.scope_too_small", missing: "lock.driver_missing", noCache: "lock.no_cache", ambiguousCache: "lock.ambiguous_cache"},
	}
	k.candidates = []candidate{
		{"redis", driver.Fleet, k.cacheOf(c, c.Lock.Cache)},
		{"cluster", driver.Node, k.cluster(c, s)},
		{"memory", driver.Process, fit{ok: true, reason: "neither a cache nor a cluster is configured", key: "cache.<alias>.url", origin: plan.NotSet}},
	}
	d, err := k.decide(c, s)
	if d.Chosen != "memory" {
		d.Namespace = c.Lock.Namespace
	}
	if err == nil && d.Chosen == "redis" && c.Lock.Redis.Engine == "redislock" && len(s.Timed) > 0 {
		err = noRuns(c, s.Timed[0])
	}
	return d, err
}

// Bus selects the driver of the messages: the driver that bus.driver names, or
// an error if that driver cannot be used. With bus.driver at auto, it is nats if
// nats.url is configured, else cluster if the process belongs to one, else
// memory. It returns a complete decision with its error, as Lock does.
func Bus(c *settings.Config, s Surroundings) (plan.Decision, error) {
	k := component{
		name: "bus", requested: c.Bus.Driver, required: c.Bus.Require, subject: "messages", act: "delivers",
		limit: "messages end at %s: another %s does not receive them",
		code:  codes{noCluster: "bus.no_cluster", tooSmall: "bus.scope_too_small", missing: "bus.driver_missing"},
	}
	k.candidates = []candidate{
		{"nats", driver.Fleet, natsServer(c)},
		{"cluster", driver.Node, k.cluster(c, s)},
		{"memory", driver.Process, fit{ok: true, reason: "neither a NATS server nor a cluster is configured", key: "nats.url", origin: plan.NotSet}},
	}
	d, err := k.decide(c, s)
	if keys := unusedNATS(c); len(keys) > 0 {
		d.Warnings = append(d.Warnings, fmt.Sprintf("nats.url is not set, so that these settings have no effect: %s", strings.Join(keys, ", ")))
	}
	return d, err
}

// component describes the service that a driver is selected for.
type component struct {
	name       string      // "lock"
	requested  string      // the requested driver, or "auto"
	required   string      // the required scope, or ""
	candidates []candidate // the widest scope first; the last one always fits
	subject    string      // the plural noun in texts: "locks"
	act        string      // the verb in texts: "excludes"
	limit      string      // the warning for a scope below the fleet, with its boundary and the outside as arguments
	code       codes
}

// codes are the codes of the failures of a decision.
type codes struct {
	noCluster, tooSmall     string
	missing                 string
	noCache, ambiguousCache string // empty for messages, which need none
}

// candidate is a driver with its fit to the configuration.
type candidate struct {
	name  string
	scope driver.Scope
	fit
}

// fit reports whether the configuration has everything that a driver needs.
type fit struct {
	ok            bool
	reason        string // why it fits, or why not
	key, origin   string // the key behind the reason
	needs         string // the missing setting
	remedy        string // the action that adds it
	cache, server string
	refused       error // the error if it is chosen and does not fit
}

func (k component) key(name string) string { return k.name + "." + name }

func (k component) explicit() bool { return k.requested != "auto" }

// decide selects the requested driver, or else the first that fits.
func (k component) decide(c *settings.Config, s Surroundings) (plan.Decision, error) {
	chosen := k.candidates[slices.IndexFunc(k.candidates, func(o candidate) bool {
		return k.requested == o.name || !k.explicit() && o.ok
	})]
	d := plan.Decision{
		Component: k.name, Chosen: chosen.name, Scope: chosen.scope.String(), Cache: chosen.cache, Server: chosen.server,
		Why: chosen.reason, Key: chosen.key, Origin: chosen.origin,
	}
	if k.explicit() {
		d.Why = k.key("driver") + " requests it"
		d.Key, d.Origin = k.key("driver"), c.Origin(k.key("driver")).String()
	}
	for _, o := range k.candidates {
		d.Candidates = append(d.Candidates, k.explain(d, chosen, o))
	}
	d.Warnings = k.warnings(c, chosen, s)
	d.Wider = k.wider(c, chosen.scope+1)
	if chosen.name == "cluster" && c.Cluster.Socket == "" {
		d.Wider = append(d.Wider, enable(c, "cluster")) // a wider scope: from the workers of one program to the processes of the node
	}
	if chosen.refused != nil {
		return d, chosen.refused
	}
	if err := k.checkScope(c, s, d, chosen); err != nil || built(chosen.name) {
		return d, err
	}
	return d, k.driverMissing(c, d)
}

// explain returns the outcome of a candidate, given the selected one.
func (k component) explain(d plan.Decision, chosen, o candidate) plan.Candidate {
	c := plan.Candidate{Name: o.name, Scope: o.scope.String(), Key: o.key, Origin: o.origin, Reason: o.reason, Needs: o.needs}
	switch {
	case o.name == chosen.name:
		c.Outcome, c.Reason, c.Key, c.Origin, c.Needs = plan.Chosen, d.Why, d.Key, d.Origin, ""
	case k.explicit():
		c.Outcome, c.Reason, c.Key, c.Origin = plan.Rejected, d.Key+" requests "+chosen.name, d.Key, d.Origin
		c.Needs = d.Key + ": " + o.name
		if o.needs != "" {
			c.Needs += " and " + o.needs
		}
	case !o.ok:
		c.Outcome = plan.Rejected
	default:
		c.Outcome, c.Reason, c.Key, c.Origin = plan.Outdone, chosen.name+" has a wider scope", d.Key, d.Origin
		c.Needs = k.key("driver") + ": " + o.name
	}
	return c
}

// warnings describe the limits of a driver's scope, and the processes outside
// it.
func (k component) warnings(c *settings.Config, chosen candidate, s Surroundings) (all []string) {
	if chosen.scope == driver.Fleet {
		return nil
	}
	boundary, outside := k.boundary(c, chosen)
	all = append(all, fmt.Sprintf(k.limit, boundary, outside))
	if chosen.scope > driver.Process {
		return all
	}
	if s.Worker {
		all = append(all, "this process is one of several workers, and each has "+k.subject+" of its own")
	}
	if len(s.LeftOut) > 0 {
		all = append(all, fmt.Sprintf("apps that are left out and run elsewhere have %s of their own: %s", k.subject, strings.Join(s.LeftOut, ", ")))
	}
	return all
}

// boundary returns the limit of a driver's scope, and an example of a process
// outside it. Workers without a socket share the backend of their supervisor,
// which no other program can connect to.
func (k component) boundary(c *settings.Config, chosen candidate) (boundary, outside string) {
	switch {
	case chosen.name != "cluster":
		return "this " + chosen.scope.String(), chosen.scope.String()
	case c.Cluster.Socket == "":
		return "the workers of this program", "program on this machine"
	}
	return "this node, and at the socket " + socketPath(c), "node, or a process that does not use this socket,"
}

// wider returns the changes that lead to a scope of at least this width.
func (k component) wider(c *settings.Config, least driver.Scope) (all []string) {
	for _, o := range k.candidates {
		if o.scope < least || !built(o.name) {
			continue
		}
		var changes []string
		if o.remedy != "" {
			changes = append(changes, o.remedy)
		}
		if k.explicit() {
			changes = append(changes, failure.Unset(c, k.key("driver")))
		}
		if change := strings.Join(changes, ", and "); !slices.Contains(all, change) {
			all = append(all, change)
		}
	}
	return all
}

// enable returns the setting that a driver needs.
func enable(c *settings.Config, name string) string {
	switch name {
	case "redis":
		return failure.Set(c, "cache.main.url", exampleRedis)
	case "nats":
		return failure.Set(c, "nats.url", exampleNATS)
	}
	return failure.Set(c, "cluster.socket", "auto")
}

// cluster reports whether the process belongs to a cluster of this node.
func (k component) cluster(c *settings.Config, s Surroundings) fit {
	switch {
	case s.Worker:
		return fit{ok: true, reason: "this process is a worker", origin: "its supervisor"}
	case c.Cluster.Workers > 1: // the supervisor decides as its workers will
		return fit{ok: true, reason: "several workers are configured", key: "cluster.workers", origin: c.Origin("cluster.workers").String()}
	case c.Cluster.Socket != "":
		return fit{ok: true, reason: "a socket of this node is configured", key: "cluster.socket", origin: c.Origin("cluster.socket").String()}
	}
	return fit{
		reason: "this process is not a worker, and cluster.socket is not set", key: "cluster.socket", origin: c.Origin("cluster.socket").String(),
		needs: "cluster.socket", remedy: enable(c, "cluster"), refused: k.noCluster(c),
	}
}

// cacheOf selects the cache of a component: the one with the alias, else the only
// one.
func (k component) cacheOf(c *settings.Config, alias string) fit {
	caches := c.Caches() // loading has checked that the cache of an alias exists
	switch {
	case len(caches) == 0:
		return fit{
			reason: "no cache is configured", key: "cache.<alias>.url", origin: plan.NotSet,
			needs: "cache.<alias>.url", remedy: enable(c, "redis"), refused: k.noCache(c),
		}
	case alias == "" && len(caches) > 1:
		// It fits, so that it is chosen and its error ends the boot. A choice
		// by name or order could put the locks of two builds on two servers.
		return fit{
			ok: true, reason: "several caches are configured, and " + k.key("cache") + " is not set", key: k.key("cache"), origin: c.Origin(k.key("cache")).String(),
			remedy: failure.Set(c, k.key("cache"), caches[0]), refused: k.ambiguousCache(c, caches),
		}
	}
	reason := "a cache is configured"
	if alias != "" {
		reason = k.key("cache") + " names a cache"
	}
	alias = cmp.Or(alias, caches[0])
	key := urlKey(alias)
	return fit{
		ok: true, reason: reason, key: key, origin: c.Origin(key).String(),
		cache: alias, server: c.Cache[alias].URL.String(),
	}
}

// unusedNATS returns the keys of a NATS server that are set although its address is
// not, with their origins.
func unusedNATS(c *settings.Config) (keys []string) {
	if !c.NATS.URL.IsZero() {
		return nil
	}
	for _, v := range c.Values() {
		if strings.HasPrefix(v.Key, "nats.") && v.Text != "" {
			keys = append(keys, fmt.Sprintf("%s (%v)", v.Key, v.Origin))
		}
	}
	return keys
}

// natsServer reports whether a NATS server is configured.
func natsServer(c *settings.Config) fit {
	origin := c.Origin("nats.url").String()
	if c.NATS.URL.IsZero() {
		return fit{
			reason: "no NATS server is configured", key: "nats.url", origin: origin,
			needs: "nats.url", remedy: enable(c, "nats"), refused: noServer(c),
		}
	}
	return fit{ok: true, reason: "a NATS server is configured", key: "nats.url", origin: origin, server: c.NATS.URL.String()}
}
