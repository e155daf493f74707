package boot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/lock/driver"
)

// Decision is which driver keeps the locks, and why. It is made from the
// configuration alone: a server that cannot be reached never changes it.
type Decision struct {
	Component  string      `json:"component"` // "lock"
	Chosen     string      `json:"chosen"`    // "redis", "memory"
	Cache      string      `json:"cache,omitempty"`
	Why        string      `json:"why"`
	Key        string      `json:"key,omitempty"` // the key that decided
	Origin     string      `json:"origin"`        // where that key came from
	Candidates []Candidate `json:"candidates"`    // every driver there is, best first
	Warnings   []string    `json:"warnings,omitempty"`
}

// Candidate is a driver that might have been chosen.
type Candidate struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	Key     string  `json:"key,omitempty"` // the key that decided about it
	Origin  string  `json:"origin"`        // where that key came from
}

// Outcome is what became of a candidate.
type Outcome string

// The outcomes.
const (
	Chosen   Outcome = "chosen"
	Rejected Outcome = "rejected" // the configuration speaks against it
	Outdone  Outcome = "outdone"  // a better one was chosen
)

const memoryWarning = "exclusion ends at this process: another process does not see its locks"

// SelectLock decides which driver keeps the locks: the one that lock.driver
// names, or none; else redis, if a cache is configured; else memory.
func SelectLock(c *config.Config) (Decision, error) {
	d := Decision{Component: "lock", Key: "lock.driver", Origin: c.Origin("lock.driver").String()}
	var err error
	switch c.Lock.Driver {
	case "redis":
		d.Cache, err = lockCache(c)
		d.choose("redis", "lock.driver asks for it")
	case "memory":
		d.choose("memory", "lock.driver asks for it")
	case "cluster":
		return d, noCluster(c)
	default:
		err = d.automatic(c)
	}
	if err != nil {
		return d, err
	}
	d.consider(c)
	if d.Chosen == "memory" {
		d.Warnings = append(d.Warnings, memoryWarning)
	}
	return d, required(c, d)
}

func (d *Decision) choose(name, why string) { d.Chosen, d.Why = name, why }

// automatic chooses by what is configured.
func (d *Decision) automatic(c *config.Config) (err error) {
	if len(c.Cache) == 0 {
		d.choose("memory", "nothing is configured that processes could share")
		d.Key, d.Origin = "cache.<alias>.url", "not set"
		return nil
	}
	if d.Cache, err = lockCache(c); err != nil {
		return err
	}
	d.Key = "cache." + d.Cache + ".url"
	d.Origin = c.Origin(d.Key).String()
	d.choose("redis", "a cache is configured")
	return nil
}

// lockCache returns the alias of the cache that keeps the locks.
func lockCache(c *config.Config) (string, error) {
	switch caches := c.Caches(); {
	case c.Lock.Cache != "":
		return c.Lock.Cache, nil // that it exists was checked when it was loaded
	case len(caches) == 1:
		return caches[0], nil
	case len(caches) == 0:
		return "", &Failure{
			Code: "lock.no_cache", Exit: ExitConfig,
			Text:    "You asked for locks in redis, but no cache is configured.",
			Facts:   []Fact{asked(c, "lock.driver")},
			Actions: []string{"say where redis is: MEGA_CACHE_MAIN_URL=redis://localhost:6379/0", "let mega choose: unset " + config.EnvName("lock.driver")},
		}
	default:
		f := &Failure{
			Code: "lock.ambiguous_cache", Exit: ExitConfig,
			Text: fmt.Sprintf("Several caches are configured (%s), and nothing says which of them keeps the locks.", strings.Join(caches, ", ")),
		}
		for _, alias := range caches {
			f.Facts = append(f.Facts, asked(c, "cache."+alias+".url"))
			f.Actions = append(f.Actions, "choose it: MEGA_LOCK_CACHE="+alias)
		}
		f.Actions = f.Actions[:min(len(f.Actions), 4)]
		return "", f
	}
}

// asked says where a key was set, and to what.
func asked(c *config.Config, key string) Fact {
	for _, v := range c.Values() {
		if v.Key == key {
			return Fact{"asked by", fmt.Sprintf("%s = %s  (%v)", key, v.Text, v.Origin)}
		}
	}
	return Fact{"not set", key}
}

func noCluster(c *config.Config) error {
	return &Failure{
		Code: "lock.driver_missing", Exit: ExitConfig,
		Text:    "You asked for the lock driver cluster, but this build has neither the supervisor nor the socket that it needs.",
		Facts:   []Fact{asked(c, "lock.driver")},
		Actions: []string{"share locks through redis: MEGA_CACHE_MAIN_URL=redis://localhost:6379/0 and no " + config.EnvName("lock.driver"), "keep them in this process: MEGA_LOCK_DRIVER=memory"},
	}
}

// consider writes down what became of every driver.
func (d *Decision) consider(c *config.Config) {
	explicit := c.Lock.Driver != "auto"
	for _, name := range []string{"redis", "cluster", "memory"} {
		candidate := Candidate{Name: name, Outcome: Outdone, Key: d.Key, Origin: d.Origin}
		switch {
		case name == d.Chosen:
			candidate.Outcome, candidate.Reason = Chosen, d.Why
		case explicit:
			candidate.Outcome, candidate.Reason = Rejected, "lock.driver asks for "+d.Chosen
		case name == "redis":
			candidate.Outcome, candidate.Reason = Rejected, "no cache is configured: cache.<alias>.url is not set"
		case name == "cluster":
			candidate.Outcome, candidate.Reason = Rejected, "this build has neither its supervisor nor its socket"
			candidate.Key, candidate.Origin = "", ""
		default:
			candidate.Reason = d.Chosen + " reaches further"
		}
		d.Candidates = append(d.Candidates, candidate)
	}
}

// reach is how far a driver excludes, before it is opened and can say so.
func reach(name string) driver.Scope {
	if name == "redis" {
		return driver.Fleet
	}
	return driver.Process
}

// required fails if locks do not reach as far as lock.require says.
func required(c *config.Config, d Decision) error {
	scopes := []string{"", driver.Process.String(), driver.Node.String(), driver.Fleet.String()}
	want := driver.Scope(slices.Index(scopes, c.Lock.Require) - 1)
	if reach(d.Chosen) >= want {
		return nil
	}
	return &Failure{
		Code: "lock.scope_too_small", Exit: ExitConfig,
		Text:    fmt.Sprintf("Locks have to reach the %s, but %s only excludes within a %s.", c.Lock.Require, d.Chosen, reach(d.Chosen)),
		Facts:   []Fact{asked(c, "lock.require"), {"chosen", d.Chosen + ", because " + d.Why}},
		Actions: []string{"say where redis is: MEGA_CACHE_MAIN_URL=redis://localhost:6379/0", "ask for less: unset " + config.EnvName("lock.require")},
	}
}
