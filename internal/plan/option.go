// Package plan holds what a program is before anything of it runs: its options
// as data, the program that they add up to, the checks of that program, and the
// report of its boot.
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
// It is data; nothing happens before the boot.
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
	opaqueOption struct{ values []any }
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

// Budget limits the time of a named function. The defaults are 2 minutes for
// OnPrimary, 15 seconds for OnStart, OnStop and the end of a Run, and 2 seconds
// for Ready.
func Budget(d time.Duration) HookOption { return budgetOption(d) }

type atLeastOnce struct{}

func (atLeastOnce) change(h *Hook) { h.AtLeastOnce = true }

// AtLeastOnce spends a tick of Every when its function has returned, so that
// another process repeats it after a crash.
func AtLeastOnce() HookOption { return atLeastOnce{} }

// App adds an app to the program. Its options are private to it.
func App(name string, options ...Option) Option {
	return appOption{name, callSite(), options}
}

// Module combines several options into one.
func Module(options ...Option) Option { return moduleOption{options} }

// Provide adds constructors. A constructor is a function that takes provided
// values and returns one or more values, the last of which may be an error. It
// runs only if its values are needed. Values with a Close method are closed
// when the program ends, in reverse order.
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

// ConfigFrom adds a layer to the configuration, between the files and the
// environment. It sets keys of the whole tree, or inside an App the keys of
// that app.
func ConfigFrom(name string, p config.Provider, parser config.Parser) Option {
	return layerOption{settings.Layer{Name: name, Provider: p, Parser: parser}}
}

// Routes adds routes. The function takes a Router and provided values.
func Routes(fn any) Option { return routesOption{newFunction("Routes", fn)} }

// Use wraps every handler of the app with fn, which takes provided values and a
// Handler, and returns the wrapped Handler. With http.Handler in place of
// Handler, fn wraps everything that the app serves.
func Use(fn any) Option { return useOption{newFunction("Use", fn)} }

// OnPrimary runs fn at the start of each node, in one of its processes, before
// any OnStart and before the program serves. It is meant for migrations, and
// takes the same parameters as OnStart. If the scope of locks is the fleet, fn
// runs on one node at a time, under the lock
// mega:primary:<namespace>:<program>:<name>. Otherwise nodes may run it at the
// same time. The function has to be idempotent: every node and every generation
// of workers runs it, and it runs again if a process dies in it. The budget
// does not include the wait for other nodes. If the lock is lost, fn's context
// ends and the boot fails.
func OnPrimary(name string, fn any, options ...HookOption) Option {
	return named(KindPrimary, name, fn, PrimaryBudget, options)
}

// OnStart runs fn before the program serves. The function takes provided values
// and a context, and may return an error, which stops the boot.
func OnStart(name string, fn any, options ...HookOption) Option {
	return named(KindStart, name, fn, HookBudget, options)
}

// OnStop runs fn after the last request has ended, while locks still work.
// OnStop functions run in reverse order. They run if everything before them in
// the options has started, even if a later part has not.
func OnStop(name string, fn any, options ...HookOption) Option {
	return named(KindStop, name, fn, HookBudget, options)
}

// Run runs fn in the background after everything has started. Its context ends
// after the last request has ended. An error that fn returns before then ends
// the program.
func Run(name string, fn any, options ...HookOption) Option {
	return named(KindRun, name, fn, HookBudget, options)
}

// Ready adds fn as a check of the readiness for traffic. If fn returns an
// error, the program is not ready.
func Ready(name string, fn any, options ...HookOption) Option {
	return named(KindReady, name, fn, ReadyBudget, options)
}

// Lead runs fn in the background, in one process at a time of those that share
// the locks.
func Lead(name string, fn any, options ...HookOption) Option {
	return named(KindLead, name, fn, HookBudget, options)
}

// Every runs fn in the background, once per tick in all processes that share the
// locks.
func Every(name string, every time.Duration, fn any, options ...HookOption) Option {
	h := named(KindEvery, name, fn, HookBudget, options)
	h.Every = every
	return h
}

// Command adds a verb to the command line of the program.
func Command(name string, fn any) Option { return named(KindCommand, name, fn, HookBudget, nil) }

func named(kind Kind, name string, fn any, budget time.Duration, options []HookOption) Hook {
	h := Hook{Kind: kind, Name: name, Fn: newFunction(string(kind), fn), Budget: budget}
	for _, o := range options {
		o.change(&h)
	}
	return h
}

// check returns an error if the name or the budget of a hook is invalid.
func (h Hook) check() error {
	switch {
	case h.Name == "":
		return h.Fn.wrong("it has no name", "a name: whoever reads the log has to know what is meant")
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

// RequireScope fails the boot if the scope of locks is smaller than s, and for
// an app with subscriptions or responders, if the scope of messages is.
func RequireScope(s driver.Scope) Option { return scopeOption{callSite(), s} }

// Opaque adds values that the boot passes to the injector unchanged. The plan
// does not know what they provide, so that it does not check a program that has
// any for missing values and cycles.
func Opaque(values ...any) Option { return opaqueOption{values} }

// Views adds html/template pages to the app.
func Views(files fs.FS) Option { return viewsOption{Files{files, callSite()}} }

// Public adds files that the app serves at their paths.
func Public(files fs.FS) Option { return publicOption{Files{files, callSite()}} }

// Locales adds the app's texts in one or more languages.
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
