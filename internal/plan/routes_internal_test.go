package plan

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/settings"
)

func TestErrorWithWhichRoutesPanicIsTheCause(t *testing.T) {
	cause := errors.New("no such page")
	f := newFunction("Routes", func(megactx.Router) { panic(cause) })
	if err := f.Unbound(nil).AddRoutes(nil); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v as its cause", err, cause)
	}
}

// planOf returns the plan of a program with one function of Routes.
func planOf(t *testing.T, fn any) *Plan {
	t.Helper()
	program, err := NewProgram([]Option{App("main", Provide(func() *int { return nil }), Routes(fn))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Plan{Program: program, Config: &settings.Config{Config: config.Config{Boot: config.Boot{WaitFor: time.Minute}, Apps: map[string]config.App{"main": {}}}}}
}

func TestListingOfRoutesEndsIfTheirFunctionHangs(t *testing.T) {
	for want, hangs := range map[string]func(leave chan struct{}) any{
		"boot.constructor_overrun": func(leave chan struct{}) any { return func(megactx.Router) { <-leave } },
		"boot.routes_unknown":      func(leave chan struct{}) any { return func(megactx.Router, *int) { <-leave } }, // it may wait for the value
	} {
		synctest.Test(t, func(t *testing.T) {
			leave := make(chan struct{})
			defer close(leave)
			p := planOf(t, hangs(leave))
			began := time.Now()
			_, err := p.Routes()
			f, ok := errors.AsType[*failure.Failure](err)
			if !ok || f.Code != want || !strings.Contains(f.Error(), "did not return within 1m15s") || !strings.Contains(f.Facts[0].Value, "routes_internal_test.go") {
				t.Errorf("got %v, want %s", err, want)
			}
			if took := time.Since(began); took != time.Minute+HookBudget {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestFunctionOfRoutesThatCallsGoexitIsNamed(t *testing.T) {
	_, err := planOf(t, func(megactx.Router) { runtime.Goexit() }).Routes()
	if err == nil || !strings.Contains(err.Error(), "routes_internal_test.go") || !strings.Contains(err.Error(), "Goexit") {
		t.Errorf("got %v", err)
	}
}
