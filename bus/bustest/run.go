package bustest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/suite"
)

// testCase is one claim about one rule.
type testCase struct {
	rule, claim string
	run         func(*env)

	needs    []fault // that the harness must be able to do
	lackable bool    // the case is left out for a driver that lists the rule in Lacks
	fake     bool    // needs a clock that stands still
}

func (c testCase) name() string { return c.rule + "/" + c.claim }

// cases returns all of them, in the order of the rules.
func cases() []testCase {
	all := slices.Concat(
		subjectCases, matchCases, routeCases, orderCases, publishCases, endCases, messageCases, bytesCases, overflowCases, dropCases, gapCases, copyCases,
		groupCases, requestCases, responderCases, manyCases, failureCases, contextCases, drainCases, closeCases, outageCases, restoreCases, changeCases, leaveCases, refuseCases, linkCases,
		errorCases, nestedCases,
	)
	slices.SortStableFunc(all, func(a, b testCase) int { return ruleIndex(a.rule) - ruleIndex(b.rule) })
	return all
}

func ruleIndex(id string) int {
	return slices.IndexFunc(rules, func(r Rule) bool { return r.ID == id })
}

// absent returns the reason why c has no meaning for the driver, or "".
func (c testCase) absent(h Harness, info driver.Info) string {
	if c.lackable && slices.ContainsFunc(info.Lacks, func(l driver.Lack) bool { return l.Rule == c.rule }) {
		return "the driver says that it lacks this"
	}
	for _, f := range c.needs {
		if !h.Faults.has(f) {
			return "the harness has no fault " + string(f)
		}
	}
	if c.fake && !h.FakeTime {
		return "it needs a clock that stands still"
	}
	return ""
}

// Run runs every case that applies to the driver as a subtest of t, with a check
// for leaked goroutines, and logs the others. It must not run in parallel with
// other tests.
func Run(t *testing.T, h Harness) {
	t.Helper()
	kind().Run(t, h)
}

// Check runs the cases one after the other and returns their failures as an
// error, or nil. Under FakeTime the caller provides the bubble. With names, such
// as "S5" or "S8/no handler starts after Stop", Check runs only the named cases;
// a name without an applicable case is an error.
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
		Package: "bustest", Driver: info.Name, Begin: h.Begin, FakeTime: h.FakeTime,
		Unit: h.Unit, Patience: 5*time.Second + 50*h.Unit, Background: h.Background,
	}
	if h.impatient {
		s.Patience = time.Second + 5*h.Unit
	}
	for _, c := range cases() {
		s.Cases = append(s.Cases, suite.Case{
			Rule: suite.Rule(rules[ruleIndex(c.rule)]), Claim: c.claim, Absent: c.absent(h, info),
			Run: func(e *suite.Env) { c.run(&env{Env: e, h: h, info: info}) },
		})
	}
	return s
}
