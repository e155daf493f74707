package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/megaframework/mega/lock/driver"
)

// testCase is one claim about one rule.
type testCase struct {
	rule, claim string
	run         func(*env)

	needs  []fault  // faults that the harness must support
	also   []string // further rules that the driver must keep
	remote bool     // needs several processes: a scope wider than Process
	lacks  string   // runs only for drivers that lack this rule
	real   bool     // needs real time
	fake   bool     // takes too long on real time
	alone  bool     // measures the whole process: no other case may run at the same time
}

func (c testCase) name() string { return c.rule + "/" + c.claim }

// cases returns all cases, in the order of the rules.
func cases() []testCase {
	all := slices.Concat(
		exclusionCases, fenceCases, ownershipCases, lossCases, pushCases, releaseCases, replyCases,
		orderCases, leavingCases, wakeCases, queueCases, panicCases, renewalCases, deadlockCases,
		inputCases, poolCases, forceCases, closeCases, leakCases, contextCases, outageCases, leaveCases, lackCases,
		waitCases, extendCases, lookCases, handOverCases, requeueCases,
	)
	slices.SortStableFunc(all, func(a, b testCase) int { return ruleIndex(a.rule) - ruleIndex(b.rule) })
	return all
}

func ruleIndex(id string) int {
	return slices.IndexFunc(rules, func(r Rule) bool { return r.ID == id })
}

// absent returns the reason why c does not apply to the driver, or "".
func (c testCase) absent(h Harness, info driver.Info) string {
	if c.lacks != "" {
		if !lacks(info, c.lacks) {
			return "the driver keeps " + c.lacks
		}
		return ""
	}
	for _, rule := range append([]string{c.rule}, c.also...) {
		if lacks(info, rule) {
			return "the driver lacks " + rule
		}
	}
	for _, f := range c.needs {
		if !h.Faults.has(f) {
			return "the harness has no fault " + string(f)
		}
	}
	switch {
	case c.remote && info.Scope == driver.Process:
		return "the driver's scope is one process"
	case c.real && h.FakeTime:
		return "it measures real time"
	case c.fake && !h.FakeTime:
		return "it takes too long on real time"
	}
	return ""
}

func lacks(info driver.Info, rule string) bool {
	return slices.ContainsFunc(info.Lacks, func(l driver.Lack) bool { return l.Rule == rule })
}

// Run runs every case that applies to the driver as a subtest of t, with a
// check for leaked goroutines, and logs the others. It must not run in parallel
// with other tests.
func Run(t *testing.T, h Harness) {
	h, info := prepare(t, h)
	for _, c := range applicable(t, h, info) {
		t.Run(c.name(), func(t *testing.T) {
			leaks := h.watchGoroutines()
			inTime(t, h, func(t *testing.T) { c.runOn(t, h, info) })
			if err := leaks(); err != nil {
				t.Errorf("left behind: %v", err)
			}
		})
	}
}

// RunParallel is [Run] for a driver on real time, where cases spend most of
// their time waiting. The cases run concurrently, limited by the flag -parallel
// of go test. Each case has a separate backend, which start creates, and ends
// with t.Cleanup. A case that measures the whole process runs alone, before the
// others. RunParallel must not run in parallel with other tests.
func RunParallel(t *testing.T, start func(t *testing.T) Harness) {
	first, info := prepare(t, start(t))
	for _, c := range applicable(t, first, info) {
		t.Run(c.name(), func(t *testing.T) {
			if !c.alone {
				t.Parallel()
			}
			h, err := start(t).withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			left := h.labelled(func() { c.runOn(t, h, info) })
			if left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// applicable returns the cases that apply to the driver, and logs the others.
func applicable(t *testing.T, h Harness, info driver.Info) (chosen []testCase) {
	for _, c := range cases() {
		if why := c.absent(h, info); why != "" {
			t.Logf("not applicable to %s: %s: %s", info.Name, c.name(), why)
			continue
		}
		chosen = append(chosen, c)
	}
	return chosen
}

func prepare(t *testing.T, h Harness) (Harness, driver.Info) {
	t.Helper()
	h, err := h.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	var info driver.Info
	inTime(t, h, func(t *testing.T) { info, err = h.info() })
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

// Check runs the cases one after the other and returns their failures as an
// error, or nil. Under FakeTime the caller provides the bubble. With names,
// such as "L5" or "L5/a cancelled request still releases", Check runs only the
// named cases; a name without an applicable case is an error.
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
		return nil, fmt.Errorf("locktest: no case for %q on %s", missing, info.Name)
	}
	return chosen, nil
}

func (c testCase) isOneOf(names []string) bool {
	return len(names) == 0 || slices.Contains(names, c.rule) || slices.Contains(names, c.name())
}

// failure is the panic value of a failed case. The methods of env panic with
// it, so that the code of a case needs no error handling.
type failure struct{ err error }

// runOn runs c as the test t, and logs the witness's report of a failure.
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

// check runs c in a new environment.
func (c testCase) check(ctx context.Context, h Harness, info driver.Info) (err error) {
	if err := h.Begin(); err != nil {
		return fmt.Errorf("%s: begin: %w", c.name(), err)
	}
	e := newEnv(ctx, h, info)
	defer func() {
		err = c.told(errors.Join(err, e.end()))
	}()
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

// told adds the text of the rule to err.
func (c testCase) told(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w\n\t%s: %s", c.name(), err, c.rule, sentence(c.rule))
}

// Names returns the names of all cases for all drivers.
func Names() []string {
	var names []string
	for _, c := range cases() {
		names = append(names, c.name())
	}
	return names
}
