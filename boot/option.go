package boot

import (
	"fmt"
	"io/fs"
	"reflect"
	"runtime"
	"strings"
	"time"

	"go.uber.org/fx"

	"github.com/megaframework/mega/config"
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
	provideOption struct{ constructors []function }
	sectionOption struct {
		name, site string
		typ        reflect.Type
	}
	layerOption  struct{ layer config.Layer }
	routesOption struct{ fn function }
	useOption    struct{ fn function }
	hookOption   struct {
		kind   hookKind
		name   string
		fn     function
		budget time.Duration
	}
	viewsOption   struct{ files fs.FS }
	publicOption  struct{ files fs.FS }
	localesOption struct{ files fs.FS }
	scopeOption   struct {
		site  string
		scope Scope
	}
	fxOption struct{ options []fx.Option }
)

func (appOption) option()     {}
func (moduleOption) option()  {}
func (provideOption) option() {}
func (sectionOption) option() {}
func (layerOption) option()   {}
func (routesOption) option()  {}
func (useOption) option()     {}
func (hookOption) option()    {}
func (viewsOption) option()   {}
func (publicOption) option()  {}
func (localesOption) option() {}
func (scopeOption) option()   {}
func (fxOption) option()      {}

// hookKind is the point in the lifecycle at which a named function runs.
type hookKind string

const (
	onPrimary hookKind = "OnPrimary"
	onStart   hookKind = "OnStart"
	onStop    hookKind = "OnStop"
	onRun     hookKind = "Run"
	onReady   hookKind = "Ready"
)

// HookOption changes how a named function runs.
type HookOption func(*hookOption)

// Budget limits the time of a named function. The defaults are 2 minutes for
// OnPrimary, 15 seconds for OnStart, OnStop and the end of a Run, and 2 seconds
// for Ready.
func Budget(d time.Duration) HookOption { return func(o *hookOption) { o.budget = d } }

// Scope is the range in which locks exclude and messages are delivered.
type Scope = driver.Scope

// The scopes that can be required.
const (
	Node  = driver.Node  // the processes of one machine
	Fleet = driver.Fleet // all processes that share the driver's server
)

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
func Section(t reflect.Type, name string) Option { return sectionOption{name, callSite(), t} }

// ConfigFrom adds a layer to the configuration, between the files and the
// environment. It sets keys of the whole tree, or inside an App the keys of
// that app.
func ConfigFrom(name string, p config.Provider, parser config.Parser) Option {
	return layerOption{config.Layer{Name: name, Provider: p, Parser: parser}}
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
	return named(onPrimary, name, fn, primaryBudget, options)
}

// OnStart runs fn before the program serves. The function takes provided values
// and a context, and may return an error, which stops the boot.
func OnStart(name string, fn any, options ...HookOption) Option {
	return named(onStart, name, fn, hookBudget, options)
}

// OnStop runs fn after the last request has ended, while locks still work.
// OnStop functions run in reverse order. They run if everything before them in
// the options has started, even if a later part has not.
func OnStop(name string, fn any, options ...HookOption) Option {
	return named(onStop, name, fn, hookBudget, options)
}

// Run runs fn in the background after everything has started. Its context ends
// after the last request has ended. An error that fn returns before then ends
// the program.
func Run(name string, fn any, options ...HookOption) Option {
	return named(onRun, name, fn, hookBudget, options)
}

// Ready adds fn as a check of the readiness for traffic. If fn returns an
// error, the program is not ready.
func Ready(name string, fn any, options ...HookOption) Option {
	return named(onReady, name, fn, checkTime, options)
}

func named(kind hookKind, name string, fn any, budget time.Duration, options []HookOption) Option {
	o := hookOption{kind, name, newFunction(string(kind), fn), budget}
	for _, change := range options {
		change(&o)
	}
	return o
}

// RequireScope fails the boot if the scope of locks is smaller than s, and for
// an app with subscriptions or responders, if the scope of messages is.
func RequireScope(s Scope) Option { return scopeOption{callSite(), s} }

// Fx adds options of the injector, inside an app to that app's module. It is
// for cases that the other options do not cover, and requires knowledge of fx.
// Every function can take the values that the options provide, and their hooks
// run before the OnPrimary functions.
func Fx(options ...fx.Option) Option { return fxOption{options} }

// Views adds html/template pages to the app.
func Views(files fs.FS) Option { return viewsOption{files} }

// Public adds files that the app serves at their paths.
func Public(files fs.FS) Option { return publicOption{files} }

// Locales adds the app's texts in one or more languages.
func Locales(files fs.FS) Option { return localesOption{files} }

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

// passes reports whether a function only passes options on.
func passes(function string) bool {
	const module = "github.com/megaframework/mega"
	return strings.HasPrefix(function, module+".") || strings.HasPrefix(function, module+"/boot.")
}
