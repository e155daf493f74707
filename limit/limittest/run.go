package limittest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/limit/driver"
)

// testCase is one claim about one rule.
type testCase struct {
	rule, claim string
	run         func(*env)

	needs []fault // faults that the harness must support
	slots bool    // needs a Locker
	fake  bool    // measures what only fake time shows exactly

	remote bool // needs a backend outside the process
}

// cases returns all cases, in the order of the rules.
func cases() []testCase {
	all := slices.Concat(windowCases, waitCases, settleCases, outageCases, operatorCases, slotCases)
	slices.SortStableFunc(all, func(a, b testCase) int { return ruleIndex(a.rule) - ruleIndex(b.rule) })
	return all
}

func ruleIndex(id string) int {
	return slices.IndexFunc(rules, func(r Rule) bool { return r.ID == id })
}

// absent returns the reason why c does not apply to the driver, or "".
func (c testCase) absent(h Harness, info driver.Info) string {
	if slices.ContainsFunc(info.Lacks, func(l driver.Lack) bool { return l.Rule == c.rule }) {
		return "the driver lacks " + c.rule
	}
	for _, f := range c.needs {
		if !h.Faults.has(f) {
			return "the harness has no fault " + string(f)
		}
	}
	switch {
	case c.slots && h.Locker == nil:
		return "the harness has no Locker"
	case c.remote && info.Scope == driver.Process:
		return "the driver's scope is one process"
	case c.fake && !h.FakeTime:
		return "it measures what only fake time shows exactly"
	}
	return ""
}

// Run runs every case that applies to the driver as a subtest of t, with a
// check for leaked goroutines, and logs the others. It must not run in parallel
// with other tests.
func Run(t *testing.T, h Harness) {
	t.Helper()
	kind().Run(t, h)
}

// RunParallel is [Run] for a driver on real time, where cases spend most of
// their time waiting. The cases run concurrently, limited by the flag -parallel
// of go test. Each case has a separate backend, which start creates, and ends
// with t.Cleanup. RunParallel must not run in parallel with other tests.
func RunParallel(t *testing.T, start func(t *testing.T) Harness) {
	t.Helper()
	kind().RunParallel(t, start)
}

// Check runs the cases one after the other and returns their failures as an
// error, or nil. Under FakeTime the caller provides the bubble. With names,
// such as "W5" or "W3/a refusal consumes nothing", Check runs only the named
// cases; a name without an applicable case is an error.
func Check(ctx context.Context, h Harness, names ...string) error {
	return kind().Check(ctx, h, names...)
}

// kind connects the harness to package suite.
func kind() suite.Kind[Harness, driver.Info] {
	return suite.Kind[Harness, driver.Info]{
		Defaults: Harness.withDefaults, FakeTime: func(h Harness) bool { return h.FakeTime }, Info: Harness.info, Suite: Harness.suite,
	}
}

// suite returns the cases over h.
func (h Harness) suite(info driver.Info) suite.Suite {
	s := suite.Suite{
		Package: "limittest", Driver: info.Name, Begin: h.Begin, FakeTime: h.FakeTime,
		Unit: h.Unit, Patience: 5*time.Second + 10*h.Unit, Background: h.Background,
	}
	for _, c := range cases() {
		s.Cases = append(s.Cases, suite.Case{
			Rule: suite.Rule(rules[ruleIndex(c.rule)]), Claim: c.claim, Absent: c.absent(h, info),
			Run: func(e *suite.Env) {
				defer e.Cancel() // calls in flight end before their process is closed
				c.run(&env{Env: e, h: h, prefix: "case-" + ticket()[:10]})
			},
		})
	}
	return s
}
