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
		return maskFindings(&veil, append(loadFindings(failure.Of(err)), runChecks(ctx, machineChecks(environ))...))
	}
	veil.Add(made.Config, made.Program.Sections())
	report, err := Rehearse(made)
	findings := []Finding{configFinding(report), withSiblings(ctx, environ, made, decisionFinding(report.Lock)), decisionFinding(report.Bus)}
	if !report.Limit.Follows() {
		findings = append(findings, decisionFinding(report.Limit))
	}
	checks := append(configChecks(environ, made), machineChecks(environ)...)
	if err != nil {
		findings = withFailure(findings, failure.Of(err))
	} else {
		checks = append(driverChecks(made), checks...)
	}
	return maskFindings(&veil, append(findings, runChecks(ctx, checks)...))
}

// maskFindings masks the secrets in the findings, since servers may repeat them.
func maskFindings(v *secrets.Veil, findings []Finding) []Finding {
	for i := range findings {
		findings[i].Text = v.Text(findings[i].Text)
	}
	return findings
}

// checkTime is the timeout of each check: the caller waits for all of them.
const checkTime = 3 * time.Second

// check is one check. Its result gets name and the duration from runChecks.
type check struct {
	name string
	run  func(context.Context) Finding
}

// runChecks runs all checks concurrently and returns their findings in order.
func runChecks(ctx context.Context, checks []check) []Finding {
	findings := make([]Finding, len(checks))
	var all sync.WaitGroup
	for i, l := range checks {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
			began := time.Now()
			findings[i] = l.run(ctx)
			findings[i].Name, findings[i].Took = l.name, time.Since(began)
		})
	}
	all.Wait()
	return findings
}

// loadFindings returns the findings for a configuration that cannot be loaded: each
// of its problems, or the error in the program.
func loadFindings(f *failure.Failure) (all []Finding) {
	for _, p := range f.Problems {
		all = append(all, Finding{Name: "configuration", Verdict: Fail, Text: p.String(), Action: "explain " + p.Code})
	}
	if len(all) == 0 {
		all = append(all, failureFinding("program", f))
	}
	return all
}

// failureFinding returns the finding of a failure, with its first action.
func failureFinding(name string, f *failure.Failure) Finding {
	action := "explain " + f.Code
	if len(f.Actions) > 0 {
		action = strings.Join(strings.Fields(f.Actions[0]), " ")
	}
	return Finding{Name: name, Verdict: Fail, Text: f.Error(), Action: action}
}

// withFailure returns findings with f in place of the finding with the name of its
// area, or at the end if there is none.
func withFailure(findings []Finding, f *failure.Failure) []Finding {
	area, _, _ := strings.Cut(f.Code, ".")
	for i, found := range findings {
		if found.Name == area {
			findings[i] = failureFinding(area, f)
			return findings
		}
	}
	if area != "cache" {
		area = "program"
	}
	return append(findings, failureFinding(area, f))
}

// configFinding returns the finding about a configuration that was loaded.
func configFinding(r plan.Report) Finding {
	return Finding{Name: "configuration", Verdict: OK, Text: r.Summary()}
}

// decisionFinding returns the finding about the choice of a driver.
func decisionFinding(d plan.Decision) Finding {
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

// withSiblings returns f, the finding about locks. It adds a warning if several
// processes of the program run and each keeps its own locks.
func withSiblings(ctx context.Context, environ []string, made *plan.Plan, f Finding) Finding {
	if made.Lock.Scope != driver.Process.String() || made.Config.Env == "test" {
		return f
	}
	if all := admin.InMemory(admin.Siblings(ctx, admin.Folders(environ), made.Config.Name)); len(all) > 1 {
		f.Verdict = Warn
		f.Text += "; " + admin.Separate(all)
	}
	return f
}

// configChecks returns the checks of the addresses and servers of a configuration.
func configChecks(environ []string, made *plan.Plan) (checks []check) {
	c := made.Config
	listened := map[config.Addr]bool{}
	for _, a := range made.Program.Runs {
		if addr := c.Apps[a.Name].Addr; !listened[addr] && made.Program.Listens(a.Name) {
			listened[addr] = true
			checks = append(checks, check{"address of " + a.Name, addressCheck(c, environ, "apps."+a.Name+".addr", string(addr))})
		}
	}
	for _, a := range made.Program.Runs {
		if c.Apps[a.Name].TLS.Cert != "" && made.Program.Listens(a.Name) {
			checks = append(checks, check{"certificate of " + a.Name, certificateCheck(c, a.Name)})
		}
	}
	checks = append(checks, check{"address of ops", addressCheck(c, environ, "ops.addr", string(c.Ops.Addr))})
	for _, alias := range c.Caches() {
		checks = append(checks, check{"cache " + alias, cacheCheck(c, alias)})
	}
	if !c.NATS.URL.IsZero() {
		checks = append(checks, check{"nats", natsCheck(c)})
	}
	return checks
}
