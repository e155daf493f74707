package selection

import (
	"fmt"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock/driver"
)

// Failures for a configuration that requires a service without configuring it.

func noCache(c *config.Config) error {
	return &failure.Failure{
		Code: "lock.no_cache", Exit: failure.ExitConfig,
		Text:    "You asked for locks in redis, but no cache is configured.",
		Facts:   []failure.Fact{failure.Setting(c, "lock.driver")},
		Actions: []string{"say where redis is:  " + remedy(c, "redis"), "let mega choose:     " + failure.Unset(c, "lock.driver")},
	}
}

func ambiguousCache(c *config.Config, caches []string) error {
	f := &failure.Failure{
		Code: "lock.ambiguous_cache", Exit: failure.ExitConfig,
		Text: fmt.Sprintf("Several caches are configured (%s), and nothing says which of them keeps the locks.", strings.Join(caches, ", ")),
	}
	for _, alias := range caches {
		f.Facts = append(f.Facts, failure.Setting(c, "cache."+alias+".url"))
		f.Actions = append(f.Actions, "choose it:  "+failure.Set(c, "lock.cache", alias))
	}
	f.Actions = f.Actions[:min(len(f.Actions), 4)]
	return f
}

func noServer(c *config.Config) error {
	return &failure.Failure{
		Code: "bus.no_server", Exit: failure.ExitConfig,
		Text:    "You asked for a bus on NATS, but no server is configured.",
		Facts:   []failure.Fact{failure.Setting(c, "bus.driver")},
		Actions: []string{"say where NATS is:  " + remedy(c, "nats"), "let mega choose:    " + failure.Unset(c, "bus.driver")},
	}
}

func (k component) noCluster(c *config.Config) error {
	return &failure.Failure{
		Code: k.code.noCluster, Exit: failure.ExitConfig,
		Text:    fmt.Sprintf("You asked for the %s of a cluster, but this process belongs to none: it is no worker, and cluster.socket is not set.", k.subject),
		Facts:   []failure.Fact{failure.Setting(c, k.key("driver"))},
		Actions: []string{"meet at the node's socket:  " + remedy(c, "cluster"), "let mega choose:            " + failure.Unset(c, k.key("driver"))},
	}
}

// reaches returns an error if the scope of a driver is smaller than the
// configuration or an app of the program requires.
func (k component) reaches(c *config.Config, s Surroundings, d plan.Decision, o option) error {
	wants, facts := k.unmet(c, s, o)
	if len(facts) == 0 {
		return nil
	}
	f := &failure.Failure{
		Code: k.code.tooSmall, Exit: failure.ExitConfig, Facts: facts,
		Text: fmt.Sprintf("%s need to reach the whole %s, but %s only %s within one %s.", sentence(k.subject), wants, o.name, k.act, o.scope),
	}
	f.Facts = append(f.Facts, failure.Fact{Name: "chosen", Value: fmt.Sprintf("%s, because %s", o.name, d.Because())})
	if len(s.LeftOut) > 0 {
		f.Facts = append(f.Facts, failure.Fact{Name: "left out", Value: strings.Join(s.LeftOut, ", ")})
	}
	for _, way := range k.wider(c, wants) {
		f.Actions = append(f.Actions, "reach further:  "+way)
	}
	if k.required != "" {
		f.Actions = append(f.Actions, "ask for less:   "+failure.Unset(c, k.key("require")))
	} else {
		f.Actions = append(f.Actions, "ask for less:   the app's mega.RequireScope")
	}
	return f
}

// unmet returns the requirements that a driver does not meet, and the widest
// scope among them.
func (k component) unmet(c *config.Config, s Surroundings, o option) (widest driver.Scope, facts []failure.Fact) {
	if want := scopeOf(k.required); want > o.scope {
		widest, facts = want, append(facts, failure.Setting(c, k.key("require")))
	}
	for _, r := range s.Requirements {
		if r.Component == k.name && r.Scope > o.scope {
			widest = max(widest, r.Scope)
			facts = append(facts, failure.Fact{Name: "asked by", Value: fmt.Sprintf("app %q, which requires the scope %s  (%s)", r.App, r.Scope, r.Site)})
		}
	}
	return widest, facts
}

// scopeOf returns the scope of that name, or the narrowest if there is none.
func scopeOf(name string) driver.Scope {
	for _, s := range []driver.Scope{driver.Fleet, driver.Node} {
		if s.String() == name {
			return s
		}
	}
	return driver.Process
}

// sentence returns s with an upper-case first letter.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
