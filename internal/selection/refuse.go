package selection

import (
	"fmt"
	"strings"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock/driver"
)

// The failures of a decision: the configuration requests a driver that it does
// not configure, or a scope that the driver does not have.

func (k component) noCache(c *settings.Config) error {
	return &failure.Failure{
		Code: k.code.noCache, Exit: failure.ExitConfig,
		Text:    fmt.Sprintf("The driver redis is requested for %s, but no cache is configured.", k.subject),
		Facts:   []failure.Fact{failure.Setting(c, k.key("driver"))},
		Actions: failure.Actions("Configure a cache", enable(c, "redis"), "Use auto", failure.Unset(c, k.key("driver"))),
	}
}

func (k component) ambiguousCache(c *settings.Config, caches []string) error {
	f := &failure.Failure{
		Code: k.code.ambiguousCache, Exit: failure.ExitConfig,
		Text: fmt.Sprintf("Several caches are configured (%s), and %s does not select one of them for the %s.", strings.Join(caches, ", "), k.key("cache"), k.subject),
	}
	var actions []string
	for _, alias := range caches {
		f.Facts = append(f.Facts, failure.Setting(c, urlKey(alias)))
		actions = append(actions, "Choose "+alias, failure.Set(c, k.key("cache"), alias))
	}
	f.Actions = failure.Actions(actions[:min(len(actions), 2*failure.MaxActions)]...)
	return f
}

func noServer(c *settings.Config) error {
	return &failure.Failure{
		Code: "bus.no_server", Exit: failure.ExitConfig,
		Text:    "The driver nats is requested for messages, but no NATS server is configured.",
		Facts:   []failure.Fact{failure.Setting(c, "bus.driver")},
		Actions: failure.Actions("Configure a server", enable(c, "nats"), "Use auto", failure.Unset(c, "bus.driver")),
	}
}

func (k component) noCluster(c *settings.Config) error {
	return &failure.Failure{
		Code: k.code.noCluster, Exit: failure.ExitConfig,
		Text:    fmt.Sprintf("The driver cluster is requested for %s, but this process is not a worker, and cluster.socket is not set.", k.subject),
		Facts:   []failure.Fact{failure.Setting(c, k.key("driver"))},
		Actions: failure.Actions("Use the node's socket", enable(c, "cluster"), "Use auto", failure.Unset(c, k.key("driver"))),
	}
}

// noRuns returns the failure for a function of Every on an engine that records no
// runs (O1).
func noRuns(c *settings.Config, fn plan.Function) error {
	const engine = "lock.redis.engine"
	return &failure.Failure{
		Code: "lock.unsupported", Exit: failure.ExitConfig,
		Text:    "mega.Every needs a record of its runs, which the engine redislock does not keep.",
		Facts:   []failure.Fact{failure.Setting(c, engine), {Name: "given at", Value: fn.Site}},
		Actions: failure.Actions("Use the engine queue", failure.Unset(c, engine)),
	}
}

// checkScope returns an error if the scope of the chosen driver is smaller than
// the configuration or an app of the program requires.
func (k component) checkScope(c *settings.Config, s Surroundings, d plan.Decision, chosen candidate) error {
	required, facts := k.unmet(c, s, chosen)
	if len(facts) == 0 {
		return nil
	}
	f := &failure.Failure{
		Code: k.code.tooSmall, Exit: failure.ExitConfig, Facts: facts,
		Text: fmt.Sprintf("%s require the scope %s, but %s only %s within one %s.", sentence(k.subject), required, chosen.name, k.act, chosen.scope),
	}
	f.Facts = append(f.Facts, failure.Fact{Name: "chosen", Value: fmt.Sprintf("%s, because %s", chosen.name, d.Because())})
	if len(s.LeftOut) > 0 {
		f.Facts = append(f.Facts, failure.Fact{Name: "left out", Value: strings.Join(s.LeftOut, ", ")})
	}
	var actions []string
	for _, change := range k.wider(c, required) {
		actions = append(actions, "Widen the scope", change)
	}
	less := "remove mega.RequireScope from the app"
	if k.required != "" {
		less = failure.Unset(c, k.key("require"))
	}
	f.Actions = failure.Actions(append(actions, "Require less", less)...)
	return f
}

// unmet returns the requirements that a driver does not meet, and the widest
// scope among them.
func (k component) unmet(c *settings.Config, s Surroundings, chosen candidate) (widest driver.Scope, facts []failure.Fact) {
	if scope := scopeOf(k.required); scope > chosen.scope {
		widest, facts = scope, append(facts, failure.Setting(c, k.key("require")))
	}
	for _, r := range s.Requirements {
		if r.Component == k.name && r.Scope > chosen.scope {
			widest = max(widest, r.Scope)
			facts = append(facts, failure.Fact{Name: "required by", Value: fmt.Sprintf("app %q, which requires the scope %s  (%s)", r.App, r.Scope, r.Site)})
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

// driverMissing returns the failure for a driver that this build lacks: on
// Windows, the cluster.
func (k component) driverMissing(c *settings.Config, d plan.Decision) error {
	widest := k.candidates[0].name
	return &failure.Failure{
		Code: k.code.missing, Exit: failure.ExitConfig,
		Text:  fmt.Sprintf("This build lacks the driver %s, which is selected for %s.", d.Chosen, k.subject),
		Facts: []failure.Fact{{Name: "because", Value: d.Because()}},
		Actions: failure.Actions(
			fmt.Sprintf("Share %s through %s", k.subject, widest), enable(c, widest),
			"Keep them in this process", failure.Set(c, k.key("driver"), "memory"),
		),
	}
}

// sentence returns s with an upper-case first letter.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
