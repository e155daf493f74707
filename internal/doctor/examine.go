package doctor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/secrets"
	"github.com/megaframework/mega/lock/driver"
)

// Finding is the result of checking one thing that a program needs.
type Finding struct {
	Name    string        `json:"name"` // "cache main"
	Verdict Verdict       `json:"verdict"`
	Text    string        `json:"text"`
	Action  string        `json:"action,omitempty"` // remedy, if one is needed
	Took    time.Duration `json:"took"`
}

// Verdict is the severity of a Finding.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // the program starts with weaker guarantees
	Fail Verdict = "fail" // the program does not start
)

// Examine checks all that a program needs on the machine where it will run: its
// configuration and the resulting decisions, its addresses, its servers and the
// machine. If locks are kept in Redis, Examine opens the driver, which tries
// its scripts on a key of its own. Examine takes a few seconds if a server does
// not answer. It always returns all findings, in a fixed order.
//
// environ is the environment of the process. err is the error of a plan that
// could not be computed; made is nil then.
func Examine(ctx context.Context, environ []string, made *plan.Plan, err error) []Finding {
	var veil secrets.Veil
	if err != nil {
		return masked(&veil, append(refusals(failure.Of(err)), examined(ctx, machine(environ))...))
	}
	veil.Add(made.Config, made.Program.Sections())
	report, err := Rehearse(made)
	findings := []Finding{configured(report), separate(ctx, environ, made, decided(report.Lock)), decided(report.Bus)}
	if !report.Limit.Follows() {
		findings = append(findings, decided(report.Limit))
	}
	looks := append(places(made), machine(environ)...)
	if err != nil {
		findings = refuted(findings, failure.Of(err))
	} else {
		looks = append(drivers(made), looks...)
	}
	return masked(&veil, append(findings, examined(ctx, looks)...))
}

// masked masks the secrets in the findings, since servers may repeat them.
func masked(v *secrets.Veil, findings []Finding) []Finding {
	for i := range findings {
		findings[i].Text = v.Text(findings[i].Text)
	}
	return findings
}

// lookTime is the timeout of each check: the caller waits for all of them.
const lookTime = 3 * time.Second

// look is one check.
type look struct {
	name string
	at   func(context.Context) Finding
}

// examined runs all checks concurrently.
func examined(ctx context.Context, looks []look) []Finding {
	findings := make([]Finding, len(looks))
	var all sync.WaitGroup
	for i, l := range looks {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			began := time.Now()
			findings[i] = l.at(ctx)
			findings[i].Name, findings[i].Took = l.name, time.Since(began)
		})
	}
	all.Wait()
	return findings
}

// refusals returns the findings for a configuration that cannot be loaded: each
// of its problems, or the error in the program.
func refusals(f *failure.Failure) (all []Finding) {
	for _, p := range f.Problems {
		all = append(all, Finding{Name: "configuration", Verdict: Fail, Text: p.String(), Action: "explain " + p.Code})
	}
	if len(all) == 0 {
		all = append(all, refusal("program", f))
	}
	return all
}

func refusal(name string, f *failure.Failure) Finding {
	action := "explain " + f.Code
	if len(f.Actions) > 0 {
		action = strings.Join(strings.Fields(f.Actions[0]), " ")
	}
	return Finding{Name: name, Verdict: Fail, Text: f.Error(), Action: action}
}

// refuted replaces the finding that the failure is about, or appends the
// failure.
func refuted(findings []Finding, f *failure.Failure) []Finding {
	area, _, _ := strings.Cut(f.Code, ".")
	for i, found := range findings {
		if found.Name == area {
			findings[i] = refusal(area, f)
			return findings
		}
	}
	if area != "cache" {
		area = "program"
	}
	return append(findings, refusal(area, f))
}

func configured(r plan.Report) Finding {
	return Finding{Name: "configuration", Verdict: OK, Text: r.Summary()}
}

func decided(d plan.Decision) Finding {
	f := Finding{Name: d.Component, Verdict: OK, Text: fmt.Sprintf("%s, scope %s: %s", d.Chosen, d.Scope, d.Because())}
	for _, c := range d.Candidates {
		if c.Outcome != plan.Chosen {
			f.Text += fmt.Sprintf("; not %s: %s", c.Name, c.Reason)
		}
	}
	if len(d.Warnings) > 0 {
		f.Verdict = Warn
		f.Text += "; " + strings.Join(d.Warnings, "; ")
	}
	if len(d.Wider) > 0 {
		f.Action = d.Wider[0]
	}
	return f
}

// separate adds to the finding about locks that several processes of the program
// run whose locks end at the process.
func separate(ctx context.Context, environ []string, made *plan.Plan, f Finding) Finding {
	if made.Lock.Scope != driver.Process.String() || made.Config.Env == "test" {
		return f
	}
	if all := admin.InMemory(admin.Siblings(ctx, admin.Folders(environ), made.Config.Name)); len(all) > 1 {
		f.Verdict = Warn
		f.Text += "; " + admin.Separate(all)
	}
	return f
}

// places returns the checks of the addresses and servers of a configuration.
func places(made *plan.Plan) (looks []look) {
	c := made.Config
	listened := map[config.Addr]bool{}
	for _, a := range made.Program.Runs {
		if addr := c.Apps[a.Name].Addr; !listened[addr] && made.Program.Listens(a.Name) {
			listened[addr] = true
			looks = append(looks, look{"address of " + a.Name, addressed(c, "apps."+a.Name+".addr", string(addr))})
		}
	}
	for _, a := range made.Program.Runs {
		if c.Apps[a.Name].TLS.Cert != "" && made.Program.Listens(a.Name) {
			looks = append(looks, look{"certificate of " + a.Name, certified(c, a.Name)})
		}
	}
	looks = append(looks, look{"address of ops", addressed(c, "ops.addr", string(c.Ops.Addr))})
	for _, alias := range c.Caches() {
		looks = append(looks, look{"cache " + alias, cached(c, alias)})
	}
	if !c.NATS.URL.IsZero() {
		looks = append(looks, look{"nats", messaged(c)})
	}
	return looks
}
