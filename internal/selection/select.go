package selection

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock/driver"
)

// Decisions contains the selected lock driver and bus driver.
type Decisions struct{ Lock, Bus plan.Decision }

// Decide selects the drivers of a process, and checks that this build includes
// them. The returned decisions are complete even if Decide returns an error.
func Decide(c *config.Config, s Surroundings) (Decisions, error) {
	locks, lockErr := Lock(c, s)
	bus, busErr := Bus(c, s)
	d := Decisions{locks, bus}
	switch { // only the first error, because its remedy may also fix the second
	case lockErr != nil:
		return d, lockErr
	case busErr != nil:
		return d, busErr
	}
	return d, missing(c, d)
}

// Surroundings contains the inputs of decisions besides the configuration.
type Surroundings struct {
	Worker       bool     // the process is one of several that a supervisor runs
	LeftOut      []string // the apps of the program that this process does not run
	Requirements []plan.Requirement
}

// Requirement is the scope of locks or messages that an app requires.
type Requirement struct {
	App       string
	Component string // "lock" or "bus"
	Scope     driver.Scope
	Site      string // file:line of the option
}

// Lock selects the driver of the locks: the driver that lock.driver
// names, or an error if that driver cannot be used. With lock.driver at auto,
// it is redis if a cache is configured, else cluster if the process belongs to
// one, else memory.
//
// The decision contains all its candidates, even if the error is not nil.
func Lock(c *config.Config, s Surroundings) (plan.Decision, error) {
	k := component{
		name: "lock", asked: c.Lock.Driver, required: c.Lock.Require, subject: "locks", act: "excludes",
		ends: "exclusion ends at %s: another %s does not see its locks",
		code: codes{noCluster: "lock.no_cluster", tooSmall: "lock.scope_too_small"},
	}
	k.drivers = []option{
		{"redis", driver.Fleet, lockCache(c)},
		{"cluster", driver.Node, k.cluster(c, s)},
		{"memory", driver.Process, fit{ok: true, reason: "nothing is configured that processes could share", key: "cache.<alias>.url", origin: plan.NotSet}},
	}
	d, err := k.decide(c, s)
	if d.Chosen != "memory" {
		d.Namespace = c.Lock.Namespace
	}
	return d, err
}

// Bus selects the driver of the messages: the driver that bus.driver
// names, or an error if that driver cannot be used. With bus.driver at auto, it
// is nats if nats.url is configured, else cluster if the process belongs to
// one, else memory. It returns a complete decision with its error, as
// Lock does.
func Bus(c *config.Config, s Surroundings) (plan.Decision, error) {
	k := component{
		name: "bus", asked: c.Bus.Driver, required: c.Bus.Require, subject: "messages", act: "carries them",
		ends: "messages end at %s: another %s does not receive them",
		code: codes{noCluster: "bus.no_cluster", tooSmall: "bus.scope_too_small"},
	}
	k.drivers = []option{
		{"nats", driver.Fleet, natsServer(c)},
		{"cluster", driver.Node, k.cluster(c, s)},
		{"memory", driver.Process, fit{ok: true, reason: "neither a NATS server nor a cluster is configured", key: "nats.url", origin: plan.NotSet}},
	}
	return k.decide(c, s)
}

// component describes the service that a driver is selected for.
type component struct {
	name     string   // "lock"
	asked    string   // the requested driver, or "auto"
	required string   // the required scope, or ""
	drivers  []option // the widest scope first; the last one always fits
	subject  string   // the plural noun in texts: "locks"
	act      string   // the verb in texts: "excludes"
	ends     string   // the warning for a scope below the fleet, with the limit and the outside as arguments
	code     codes
}

type codes struct{ noCluster, tooSmall string }

// option is a driver with its fit to the configuration.
type option struct {
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

func (k component) explicit() bool { return k.asked != "auto" }

// decide selects the requested driver, or else the first that fits.
func (k component) decide(c *config.Config, s Surroundings) (plan.Decision, error) {
	o := k.drivers[slices.IndexFunc(k.drivers, func(o option) bool {
		return k.asked == o.name || !k.explicit() && o.ok
	})]
	d := plan.Decision{
		Component: k.name, Chosen: o.name, Scope: o.scope.String(), Cache: o.cache, Server: o.server,
		Why: o.reason, Key: o.key, Origin: o.origin,
	}
	if k.explicit() {
		d.Why = k.key("driver") + " asks for it"
		d.Key, d.Origin = k.key("driver"), c.Origin(k.key("driver")).String()
	}
	for _, other := range k.drivers {
		d.Candidates = append(d.Candidates, k.candidate(d, o, other))
	}
	d.Warnings = k.warnings(c, o, s)
	d.Wider = k.wider(c, o.scope+1)
	if o.name == "cluster" && c.Cluster.Socket == "" {
		d.Wider = append(d.Wider, remedy(c, "cluster"))
	}
	if o.refused != nil {
		return d, o.refused
	}
	return d, k.reaches(c, s, d, o)
}

// candidate returns the outcome of a driver, given the selected one.
func (k component) candidate(d plan.Decision, chosen, o option) plan.Candidate {
	c := plan.Candidate{Name: o.name, Scope: o.scope.String(), Key: o.key, Origin: o.origin, Reason: o.reason, Needs: o.needs}
	switch {
	case o.name == chosen.name:
		c.Outcome, c.Reason, c.Key, c.Origin, c.Needs = plan.Chosen, d.Why, d.Key, d.Origin, ""
	case k.explicit():
		c.Outcome, c.Reason, c.Key, c.Origin = plan.Rejected, d.Key+" asks for "+chosen.name, d.Key, d.Origin
		c.Needs = strings.Join(append([]string{d.Key + ": " + o.name}, given(o.needs)...), " and ")
	case !o.ok:
		c.Outcome = plan.Rejected
	default:
		c.Outcome, c.Reason, c.Key, c.Origin = plan.Outdone, chosen.name+" reaches further", d.Key, d.Origin
		c.Needs = k.key("driver") + ": " + o.name
	}
	return c
}

// given returns s as a list, which is empty if s is.
func given(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// warnings describe the limits of a driver's scope, and the processes outside
// it.
func (k component) warnings(c *config.Config, o option, s Surroundings) (all []string) {
	if o.scope == driver.Fleet {
		return nil
	}
	where, beyond := k.end(c, o)
	all = append(all, fmt.Sprintf(k.ends, where, beyond))
	if o.scope > driver.Process {
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

// end returns the limit of a driver's scope, and an example of something
// outside it. Workers without a socket share the backend of their supervisor,
// which no other program can reach.
func (k component) end(c *config.Config, o option) (where, beyond string) {
	switch {
	case o.name != "cluster":
		return "this " + o.scope.String(), o.scope.String()
	case c.Cluster.Socket == "":
		return "the workers of this program", "program on this machine"
	}
	return "this node, and at the socket " + socketPath(c), "node, or a process that does not meet there,"
}

// wider returns the changes that lead to a scope of at least this width.
func (k component) wider(c *config.Config, least driver.Scope) (all []string) {
	for _, o := range k.drivers {
		if o.scope < least || !built(k.name, o.name) {
			continue
		}
		var ways []string
		if o.remedy != "" {
			ways = append(ways, o.remedy)
		}
		if k.explicit() {
			ways = append(ways, failure.Unset(c, k.key("driver")))
		}
		all = append(all, strings.Join(ways, ", and "))
	}
	return all
}

// remedy returns the setting that a driver needs.
func remedy(c *config.Config, name string) string {
	switch name {
	case "redis":
		return failure.Set(c, "cache.main.url", "redis://localhost:6379/0")
	case "nats":
		return failure.Set(c, "nats.url", "nats://localhost:4222")
	}
	return failure.Set(c, "cluster.socket", "auto")
}

// cluster reports whether the process belongs to a cluster of this node.
func (k component) cluster(c *config.Config, s Surroundings) fit {
	switch {
	case s.Worker:
		return fit{ok: true, reason: "this process is a worker", origin: "its supervisor"}
	case c.Cluster.Workers > 1:
		return fit{ok: true, reason: "several workers are to run", key: "cluster.workers", origin: c.Origin("cluster.workers").String()}
	case c.Cluster.Socket != "":
		return fit{ok: true, reason: "a socket of this node is configured", key: "cluster.socket", origin: c.Origin("cluster.socket").String()}
	}
	return fit{
		reason: "this process is no worker, and cluster.socket is not set", key: "cluster.socket", origin: c.Origin("cluster.socket").String(),
		needs: "cluster.socket", remedy: remedy(c, "cluster"), refused: k.noCluster(c),
	}
}

// lockCache selects the cache that keeps the locks.
func lockCache(c *config.Config) fit {
	caches, alias := c.Caches(), c.Lock.Cache // the loading of lock.cache has checked that this cache exists
	switch {
	case len(caches) == 0:
		return fit{
			reason: "no cache is configured", key: "cache.<alias>.url", origin: plan.NotSet,
			needs: "cache.<alias>.url", remedy: remedy(c, "redis"), refused: noCache(c),
		}
	case alias == "" && len(caches) > 1:
		return fit{
			ok: true, reason: "caches are configured, but nothing says which of them keeps the locks", key: "lock.cache", origin: c.Origin("lock.cache").String(),
			remedy: failure.Set(c, "lock.cache", caches[0]), refused: ambiguousCache(c, caches),
		}
	}
	reason := "a cache is configured"
	if alias != "" {
		reason = "lock.cache names a cache"
	}
	alias = cmp.Or(alias, caches[0])
	key := "cache." + alias + ".url"
	return fit{
		ok: true, reason: reason, key: key, origin: c.Origin(key).String(),
		cache: alias, server: c.Cache[alias].URL.String(),
	}
}

// natsServer reports whether a NATS server is configured.
func natsServer(c *config.Config) fit {
	origin := c.Origin("nats.url").String()
	if c.NATS.URL.IsZero() {
		return fit{
			reason: "no NATS server is configured", key: "nats.url", origin: origin,
			needs: "nats.url", remedy: remedy(c, "nats"), refused: noServer(c),
		}
	}
	return fit{ok: true, reason: "a NATS server is configured", key: "nats.url", origin: origin, server: c.NATS.URL.String()}
}
