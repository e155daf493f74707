// Package suite runs the cases that test whether a driver keeps a contract. It
// is the machinery of packages locktest, bustest and limittest, which add the
// rules, the cases and the harness of their [Kind] of driver.
package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Suite holds the cases of a contract for one driver.
type Suite struct {
	Package string // that has the cases, for errors
	Driver  string // its name
	Cases   []Case

	// Begin is called before each case, under FakeTime inside its bubble.
	Begin func() error
	// FakeTime means that the driver uses only the clock of package time. Run
	// creates a bubble of testing/synctest for each case.
	FakeTime bool
	// Unit is the unit of the durations in the cases, and Patience the timeout
	// for an event that should happen at once.
	Unit, Patience time.Duration
	// Background names functions whose goroutines may outlive a case.
	Background []string
}

// Case is one claim about one rule.
type Case struct {
	Rule   Rule
	Claim  string
	Absent string     // why the case does not apply to the driver; empty if it does
	Alone  bool       // measures the whole process: no other case may run at the same time
	Run    func(*Env) // fails by a panic of a method of Env
}

// Rule is one rule of a contract.
type Rule struct {
	ID       string // "L5"
	Sentence string
}

// Name returns the rule and the claim, as "L5/a cancelled request still
// releases".
func (c Case) Name() string { return c.Rule.ID + "/" + c.Claim }

// Run runs every case that applies to the driver as a subtest of t, with a
// check for leaked goroutines, and logs the others. It must not run in parallel
// with other tests.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	for _, i := range s.applicable(t) {
		t.Run(s.Cases[i].Name(), func(t *testing.T) {
			leaks := watchGoroutines(s.Background)
			InTime(t, s.FakeTime, func(t *testing.T) { s.runOn(t, i, func() Suite { return s }) })
			if err := leaks(); err != nil {
				t.Errorf("left behind: %v", err)
			}
		})
	}
}

// RunParallel is [Suite.Run] for a driver on real time. Each case runs in its own
// suite, which start returns and which has the same cases as s. The cases run
// concurrently, except those that are Alone, which run before the others.
func (s Suite) RunParallel(t *testing.T, start func(t *testing.T) Suite) {
	t.Helper()
	for _, i := range s.applicable(t) {
		t.Run(s.Cases[i].Name(), func(t *testing.T) {
			if !s.Cases[i].Alone {
				t.Parallel()
			}
			own := start(t)
			left := labelled(own.Background, func() { own.runOn(t, i, func() Suite { return start(t) }) })
			if left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// applicable returns the indexes of the cases that apply to the driver, and
// logs the others.
func (s Suite) applicable(t *testing.T) (chosen []int) {
	t.Helper()
	for i, c := range s.Cases {
		if c.Absent != "" {
			t.Logf("not applicable to %s: %s: %s", s.Driver, c.Name(), c.Absent)
			continue
		}
		chosen = append(chosen, i)
	}
	return chosen
}

// InTime runs f, on fake time in a bubble of testing/synctest.
func InTime(t *testing.T, fake bool, f func(*testing.T)) {
	t.Helper()
	if fake {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}

// Check runs the cases one after the other, with a check for goroutines that a
// case has started and that do not end, and returns their failures as an error, or
// nil. Under FakeTime the caller provides the bubble. With names of rules or cases,
// Check runs only these; a name without an applicable case is an error. Checks of
// several suites may run at the same time.
func (s Suite) Check(ctx context.Context, names ...string) error {
	chosen, err := s.choose(names)
	if err != nil {
		return err
	}
	var found []error
	for _, c := range chosen {
		left := labelled(s.Background, func() { found = append(found, s.try(ctx, c, nil)) })
		if left != "" {
			found = append(found, fmt.Errorf("%s: left behind:\n%s", c.Name(), left))
		}
	}
	return errors.Join(found...)
}

// Try runs the named case, and returns its failure or nil. It does not check
// for leaked goroutines.
func (s Suite) Try(ctx context.Context, name string) error {
	chosen, err := s.choose([]string{name})
	if err != nil {
		return err
	}
	return s.try(ctx, chosen[0], nil)
}

func (s Suite) choose(names []string) ([]Case, error) {
	missing := slices.Clone(names)
	var chosen []Case
	for _, c := range s.Cases {
		if c.Absent != "" || !c.isOneOf(names) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return c.isOneOf([]string{name}) })
		chosen = append(chosen, c)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s: no case for %q on %s", s.Package, missing, s.Driver)
	}
	return chosen, nil
}

func (c Case) isOneOf(names []string) bool {
	return len(names) == 0 || slices.Contains(names, c.Rule.ID) || slices.Contains(names, c.Name())
}

// runOn runs case i as the test t, and logs the witness's report of a failure.
// A case that failed while the machine paused this process runs again, in the
// suite that fresh returns.
func (s Suite) runOn(t *testing.T, i int, fresh func() Suite) {
	t.Helper()
	err := repeat(func(n int) (paused bool, err error) {
		if n > 1 {
			t.Log("the case runs again, because the machine paused this process")
			s = fresh()
		}
		w := newWitness(s.FakeTime)
		err = s.try(t.Context(), s.Cases[i], w)
		w.end()
		if err != nil {
			w.report(t)
		}
		return w.paused(), err
	})
	if err != nil {
		t.Error(err)
	}
}

// maxTries is how often a case runs on a machine that pauses.
const maxTries = 3

// repeat runs try until it succeeds, fails without a pause of the machine, or
// has failed maxTries times. A failure during a pause proves nothing, because
// the calls of a driver have a second.
func repeat(try func(n int) (paused bool, err error)) error {
	for n := 1; ; n++ {
		if paused, err := try(n); err == nil || !paused || n == maxTries {
			return err
		}
	}
}

// try runs c in a new environment. The witness may be nil.
func (s Suite) try(ctx context.Context, c Case, w *witness) (err error) {
	if err := s.Begin(); err != nil {
		return fmt.Errorf("%s: begin: %w", c.Name(), err)
	}
	e := newEnv(ctx, s)
	defer func() { err = c.failed(errors.Join(err, e.end())) }()
	defer func() {
		if err = caught(recover()); err != nil {
			w.failed()
		}
	}()
	c.Run(e)
	return nil
}

// failed adds the text of the rule to err.
func (c Case) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w\n\t%s: %s", c.Name(), err, c.Rule.ID, c.Rule.Sentence)
}
