package bustest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/megaframework/mega/bus/driver"
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
		subjectCases, matchCases, routeCases, orderCases, publishCases, endCases, messageCases, bytesCases, overflowCases, gapCases,
		groupCases, requestCases, manyCases, failureCases, contextCases, drainCases, closeCases, outageCases, restoreCases, leaveCases, refuseCases, linkCases,
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

// Run runs every case that has a meaning for the driver as a subtest of t,
// under a check for leaked goroutines, and logs the others. It must not run in
// parallel with other tests.
func Run(t *testing.T, h Harness) {
	h, info := prepare(t, h)
	for _, c := range cases() {
		if why := c.absent(h, info); why != "" {
			t.Logf("not applicable to %s: %s: %s", info.Name, c.name(), why)
			continue
		}
		t.Run(c.name(), func(t *testing.T) {
			leaks := h.watchGoroutines()
			inTime(t, h, func(t *testing.T) { c.runOn(t, h, info) })
			if err := leaks(); err != nil {
				t.Errorf("left behind: %v", err)
			}
		})
	}
}

func prepare(t *testing.T, h Harness) (Harness, driver.Info) {
	t.Helper()
	h, err := h.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	var info driver.Info
	inTime(t, h, func(*testing.T) { info, err = h.info() })
	if err != nil {
		t.Fatal(err)
	}
	return h, info
}

func inTime(t *testing.T, h Harness, f func(*testing.T)) {
	if h.FakeTime {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}

// Check runs the cases one after the other and returns their failures, or nil.
// Under FakeTime its caller provides the bubble. Given names, such as "S5" or
// "S8/no handler starts after Stop", it runs these alone; a name that no
// applicable case has is an error.
func Check(ctx context.Context, h Harness, names ...string) error {
	h, err := h.withDefaults()
	if err != nil {
		return err
	}
	info, err := h.info()
	if err != nil {
		return err
	}
	chosen, err := choose(h, info, names)
	if err != nil {
		return err
	}
	var found []error
	for _, c := range chosen {
		leaks := h.watchGoroutines()
		found = append(found, c.check(ctx, h, info))
		if err := leaks(); err != nil {
			found = append(found, fmt.Errorf("%s: left behind: %w", c.name(), err))
		}
	}
	return errors.Join(found...)
}

func choose(h Harness, info driver.Info, names []string) ([]testCase, error) {
	missing := slices.Clone(names)
	var chosen []testCase
	for _, c := range cases() {
		if c.absent(h, info) != "" || !c.isOneOf(names) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return c.isOneOf([]string{name}) })
		chosen = append(chosen, c)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("bustest: no case for %q on %s", missing, info.Name)
	}
	return chosen, nil
}

func (c testCase) isOneOf(names []string) bool {
	return len(names) == 0 || slices.Contains(names, c.rule) || slices.Contains(names, c.name())
}

// failure is what a case fails with: its methods panic with it, so that a case
// reads as the claim it makes.
type failure struct{ err error }

// runOn runs c as the test t, and logs what explains a failure.
func (c testCase) runOn(t *testing.T, h Harness, info driver.Info) {
	t.Helper()
	h.witness = h.newWitness()
	err := c.check(t.Context(), h, info)
	h.witness.end()
	if err != nil {
		h.witness.report(t)
		t.Error(err)
	}
}

// check runs c in an environment of its own.
func (c testCase) check(ctx context.Context, h Harness, info driver.Info) (err error) {
	if err := h.Begin(); err != nil {
		return fmt.Errorf("%s: begin: %w", c.name(), err)
	}
	e := newEnv(ctx, h, info)
	defer func() { err = c.told(errors.Join(err, e.end())) }()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.err
			h.witness.failed()
		default:
			panic(r)
		}
	}()
	c.run(e)
	return nil
}

// told adds the text of the rule to a failure.
func (c testCase) told(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w\n\t%s: %s", c.name(), err, c.rule, sentence(c.rule))
}

// watchGoroutines returns a function that returns the new goroutines.
func (h Harness) watchGoroutines() func() error {
	options := []goleak.Option{goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("testing/synctest.Test")}
	for _, f := range h.Background {
		options = append(options, goleak.IgnoreAnyFunction(f))
	}
	return func() (err error) {
		for range 3 { // each looks again and again for about a second
			if err = goleak.Find(options...); err == nil {
				break
			}
		}
		return err
	}
}

// Names returns the names of all cases, for any driver.
func Names() []string {
	var names []string
	for _, c := range cases() {
		names = append(names, c.name())
	}
	return names
}
