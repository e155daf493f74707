package suite

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errCase = errors.New("seen twice")

// one returns a suite with one case.
func one(run func(*Env)) Suite {
	return Suite{
		Package: "onetest", Driver: "memory", Begin: func() error { return nil }, Unit: time.Second, Patience: 5 * time.Second,
		Cases: []Case{{Rule: Rule{"L1", "One holder."}, Claim: "it is alone", Run: run}},
	}
}

func TestFailureOfACaseCarriesItsRule(t *testing.T) {
	for name, run := range map[string]func(*Env){
		"in the case":            func(e *Env) { e.Must(errCase, "look") },
		"in a goroutine":         func(e *Env) { e.Async(func() { e.Must(errCase, "look") }) },
		"in one of many":         func(e *Env) { e.All(3, func(i int) { e.Want(i != 1, "look: %w", errCase) }) },
		"without ending":         func(e *Env) { e.Report("look: %w", errCase) },
		"in a goroutine at last": func(e *Env) { e.Async(func() { <-e.Ctx.Done(); e.Fail("look: %w", errCase) }) },
	} {
		t.Run(name, func(t *testing.T) {
			err := one(run).Check(t.Context())
			if !errors.Is(err, errCase) || !strings.HasPrefix(err.Error(), "L1/it is alone: ") || !strings.Contains(err.Error(), "L1: One holder.") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCaseEndsInOrder(t *testing.T) {
	var order []string
	s := one(func(e *Env) {
		e.AtEnd(func() { order = append(order, "first opened") })
		e.AtEnd(func() {
			if e.Ctx.Err() != nil {
				order = append(order, "too late")
			}
			order = append(order, "last opened")
		})
		e.Async(func() { <-e.Ctx.Done(); order = append(order, "goroutine") })
	})
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"last opened", "first opened", "goroutine"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
}

func TestGoroutineThatDoesNotEndFailsItsCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		err := one(func(e *Env) { e.Async(func() { <-stop }) }).Try(t.Context(), "L1/it is alone")
		close(stop)
		if err == nil || !strings.Contains(err.Error(), "has not returned") {
			t.Errorf("got %v", err)
		}
	})
}

// A driver can make a call repeat itself as long as the context of the case lives.
func TestCaseThatDoesNotEndFailsWithItsRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := one(func(e *Env) {
			for e.Ctx.Err() == nil {
				time.Sleep(time.Second)
			}
		}).Check(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "L1/it is alone: the case has not ended within ") {
			t.Errorf("got %v", err)
		}
	})
}

func TestCheckRefusesANameWithoutAnApplicableCase(t *testing.T) {
	s := one(func(*Env) {})
	s.Cases[0].Absent = "it has one process"
	for _, name := range []string{"L1", "L2"} {
		if err := s.Check(t.Context(), name); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestFailedCaseRunsAgainOnlyIfTheMachinePaused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		paused []bool  // in each try
		errs   []error // of each try
		tries  int
		want   error
	}{
		{"success", []bool{true}, []error{nil}, 1, nil},
		{"failure", []bool{false}, []error{errCase}, 1, errCase},
		{"failure in a pause, then success", []bool{true, false}, []error{errCase, nil}, 2, nil},
		{"failure in a pause, then failure", []bool{true, false}, []error{errCase, errCase}, 2, errCase},
		{"failure in every pause", []bool{true, true, true}, []error{errCase, errCase, errCase}, 3, errCase},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tries := 0
			err := repeat(func(n int) (bool, error) {
				tries = n
				return tt.paused[n-1], tt.errs[n-1]
			})
			if tries != tt.tries || !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Errorf("%d tries, %v; want %d, %v", tries, err, tt.tries, tt.want)
			}
		})
	}
}
