// Package plan holds what a program is before anything of it runs: its options
// as data, the program that they add up to, the checks of that program, and the
// report of its boot.
//
//	option.go    the options; function.go and message.go the functions that they take
//	program.go   Program: the options by app, checked; command.go and ends.go
//	graph.go     the values that functions need: missing.go, cycle.go
//	routes.go    the routes, found without a start; viewnames.go the views in the source code
//	plan.go      Plan: the program with its configuration and decision.go
//	host.go      what an app serves: pages, texts, limits; disk.go the files on disk under mega dev
//	lockkey.go   the lock keys of OnPrimary, Lead and Every
//	report.go    Report: the boot report; page.go its text
package plan

import (
	"fmt"
	"io/fs"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// Option is one part of a program: an app, a module, or a part of one of them.
// It is data; nothing happens before the boot. Package mega describes each option.
type Option interface{ option() }

type (
	appOption struct {
		name, site string
		options    []Option
	}
	moduleOption  struct{ options []Option }
	provideOption struct{ constructors []Function }
	sectionOption struct{ section settings.Section }
	layerOption   struct{ layer settings.Layer }
	routesOption  struct{ fn Function }
	useOption     struct{ fn Function }
	viewsOption   struct{ files Files }
	publicOption  struct{ files Files }
	localesOption struct{ files Files }
	scopeOption   struct {
		site  string
		scope driver.Scope
	}
	opaqueOption struct{ opaque OpaqueValues }
)

func (appOption) option()     {}
func (moduleOption) option()  {}
func (provideOption) option() {}
func (sectionOption) option() {}
func (layerOption) option()   {}
func (routesOption) option()  {}
func (useOption) option()     {}
func (Hook) option()          {}
func (Message) option()       {}
func (viewsOption) option()   {}
func (publicOption) option()  {}
func (localesOption) option() {}
func (scopeOption) option()   {}
func (opaqueOption) option()  {}

// Kind is the point in the lifecycle at which a named function runs. Its value
// is the name of the option.
type Kind string

// The kinds of named functions.
const (
	KindPrimary Kind = "OnPrimary"
	KindStart   Kind = "OnStart"
	KindStop    Kind = "OnStop"
	KindRun     Kind = "Run"
	KindReady   Kind = "Ready"
	KindLead    Kind = "Lead"
	KindEvery   Kind = "Every"
	KindCommand Kind = "Command"
)

// Hook is a named function with its place in the lifecycle.
type Hook struct {
	Kind   Kind
	Name   string
	Fn     Function
	Budget time.Duration
	Every  time.Duration // of KindEvery

	AtLeastOnce bool // of KindEvery
}

// Default budgets of hooks.
const (
	HookBudget    = 15 * time.Second
	PrimaryBudget = 2 * time.Minute // migrations take longer
	ReadyBudget   = 2 * time.Second // a probe waits for the check
)

// HookOption changes how a named function runs. It is data, as an Option.
type HookOption interface{ change(*Hook) }

type budgetOption time.Duration

func (b budgetOption) change(h *Hook) { h.Budget = time.Duration(b) }

// Budget returns the option mega.Budget.
func Budget(d time.Duration) HookOption { return budgetOption(d) }

type atLeastOnce struct{}

func (atLeastOnce) change(h *Hook) { h.AtLeastOnce = true }

// AtLeastOnce returns the option mega.AtLeastOnce.
func AtLeastOnce() HookOption { return atLeastOnce{} }

// App returns the option mega.App.
func App(name string, options ...Option) Option {
	return appOption{name, callSite(), options}
}

// Module returns the option mega.Module.
func Module(options ...Option) Option { return moduleOption{options} }

// Provide returns the option mega.Provide.
func Provide(constructors ...any) Option {
	var o provideOption
	for _, c := range constructors {
		o.constructors = append(o.constructors, newFunction("Provide", c))
	}
	return o
}

// Section adds a section to the configuration and provides its value.
func Section(t reflect.Type, name string) Option {
	return sectionOption{settings.Section{Name: name, Type: t, Site: callSite()}}
}

// ConfigFrom returns the option mega.ConfigFrom.
func ConfigFrom(name string, p config.Provider, parser config.Parser) Option {
	return layerOption{settings.Layer{Name: name, Provider: p, Parser: parser}}
}

// Routes returns the option mega.Routes.
func Routes(fn any) Option { return routesOption{newFunction("Routes", fn)} }

// Use returns the option mega.Use.
func Use(fn any) Option { return useOption{newFunction("Use", fn)} }

// OnPrimary returns the option mega.OnPrimary.
func OnPrimary(name string, fn any, options ...HookOption) Option {
	return named(KindPrimary, name, fn, PrimaryBudget, options)
}

// OnStart returns the option mega.OnStart.
func OnStart(name string, fn any, options ...HookOption) Option {
	return named(KindStart, name, fn, HookBudget, options)
}

// OnStop returns the option mega.OnStop.
func OnStop(name string, fn any, options ...HookOption) Option {
	return named(KindStop, name, fn, HookBudget, options)
}

// Run returns the option mega.Run.
func Run(name string, fn any, options ...HookOption) Option {
	return named(KindRun, name, fn, HookBudget, options)
}

// Ready returns the option mega.Ready.
func Ready(name string, fn any, options ...HookOption) Option {
	return named(KindReady, name, fn, ReadyBudget, options)
}

// Lead returns the option mega.Lead.
func Lead(name string, fn any, options ...HookOption) Option {
	return named(KindLead, name, fn, HookBudget, options)
}

// Every returns the option mega.Every.
func Every(name string, every time.Duration, fn any, options ...HookOption) Option {
	h := named(KindEvery, name, fn, HookBudget, options)
	h.Every = every
	return h
}

// Command returns the option mega.Command.
func Command(name string, fn any) Option { return named(KindCommand, name, fn, HookBudget, nil) }

func named(kind Kind, name string, fn any, budget time.Duration, options []HookOption) Hook {
	h := Hook{Kind: kind, Name: name, Fn: newFunction(string(kind), fn), Budget: budget}
	for _, o := range options {
		if o != nil {
			o.change(&h)
		}
	}
	return h
}

// check returns an error if the name or the budget of a hook is invalid.
func (h Hook) check() error {
	switch {
	case h.Name == "":
		return h.Fn.wrong("it has no name", "a name, which the log and the errors show")
	case h.Budget <= 0 || h.Budget > maxBudget:
		return h.Fn.wrong(fmt.Sprintf("its budget is %v", h.Budget), fmt.Sprintf("a budget above 0 and at most %v, or none for the default", maxBudget))
	case h.Kind == KindEvery && (h.Every < lock.MinEvery || h.Every > lock.MaxEvery || h.Every%time.Microsecond != 0):
		return h.Fn.wrong(fmt.Sprintf("its interval is %v", h.Every), fmt.Sprintf("%v to %v, in whole microseconds", lock.MinEvery, lock.MaxEvery))
	case h.Kind != KindEvery && h.AtLeastOnce:
		return h.Fn.wrong("it has the option AtLeastOnce, but no ticks", "AtLeastOnce beside Every only")
	}
	return nil
}

// maxBudget is the maximum of a budget, as of the durations of the configuration.
// A sum with a duration near the limit of the type would be negative.
const maxBudget = 366 * 24 * time.Hour

// RequireScope returns the option mega.RequireScope.
func RequireScope(s driver.Scope) Option { return scopeOption{callSite(), s} }

// Opaque adds values that the boot passes to the injector unchanged. The plan
// does not know what they provide, so that it does not check a program that has
// any for missing values and cycles.
func Opaque(values ...any) Option { return opaqueOption{OpaqueValues{values, callSite()}} }

// Views returns the option mega.Views.
func Views(files fs.FS) Option { return viewsOption{Files{files, callSite()}} }

// Public returns the option mega.Public.
func Public(files fs.FS) Option { return publicOption{Files{files, callSite()}} }

// Locales returns the option mega.Locales.
func Locales(files fs.FS) Option { return localesOption{Files{files, callSite()}} }

// callSite returns the call site of an option, for errors about it.
func callSite() string {
	pc := make([]uintptr, 16)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		frame, more := frames.Next()
		if !passes(frame.Function) || !more {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}

// passes reports whether a function only passes options on: it belongs to mega,
// boot or this package, and is not the user's.
func passes(function string) bool {
	const module = "github.com/megaframework/mega"
	return strings.HasPrefix(function, module+".") || strings.HasPrefix(function, module+"/boot.") ||
		strings.HasPrefix(function, module+"/internal/plan.")
}
