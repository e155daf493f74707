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

// Option is a piece of a program: an app, a module, or something that either
// consists of. It is data; nothing happens before the boot.
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

// hookKind is when a named function runs.
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

// Budget is what a named function may take, in place of what mega thinks right:
// 2 minutes for OnPrimary, 15 seconds for OnStart, OnStop and the end of a Run,
// 2 seconds for Ready.
func Budget(d time.Duration) HookOption { return func(o *hookOption) { o.budget = d } }

// Scope is how far locks exclude, and messages reach.
type Scope = driver.Scope

// The scopes that can be required.
const (
	Node  = driver.Node  // the processes of one machine
	Fleet = driver.Fleet // all processes that share the driver's server
)

// App is an app of the program: what is in options is private to it.
func App(name string, options ...Option) Option {
	return appOption{name, callSite(), options}
}

// Module is several options as one.
func Module(options ...Option) Option { return moduleOption{options} }

// Provide adds constructors: functions that take provided values and return
// one or more values, the last of which may be an error. One that nobody needs
// is not called. What has a Close method is closed when the program ends, in
// reverse order.
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
// environment: of the whole tree, or inside an App of the keys of that app.
func ConfigFrom(name string, p config.Provider, parser config.Parser) Option {
	return layerOption{config.Layer{Name: name, Provider: p, Parser: parser}}
}

// Routes has fn add routes: it takes a Router and provided values.
func Routes(fn any) Option { return routesOption{newFunction("Routes", fn)} }

// Use has fn wrap every handler of the app: it takes provided values and a
// Handler, and returns the wrapped one. With http.Handler in the place of
// Handler it wraps everything that the app serves.
func Use(fn any) Option { return useOption{newFunction("Use", fn)} }

// OnPrimary runs fn at the start of each node: in one of its processes, before
// any OnStart and before anything serves. It is for migrations, and takes what
// OnStart takes. Where locks reach the fleet, fn runs on one node at a time,
// under the lock mega:primary:<namespace>:<program>:<name>; otherwise nodes run it
// side by side. fn has to be idempotent: every node and every generation of
// workers runs it, and so does the successor of a process that died in it. The
// wait for other nodes does not count in fn's budget. If the lock is lost, fn's
// context ends and the boot fails.
func OnPrimary(name string, fn any, options ...HookOption) Option {
	return named(onPrimary, name, fn, primaryBudget, options)
}

// OnStart has fn run before the program serves. It takes provided values and a
// context, and may return an error, which stops the boot.
func OnStart(name string, fn any, options ...HookOption) Option {
	return named(onStart, name, fn, hookBudget, options)
}

// OnStop has fn run when the last request is over, in reverse order, while
// locks still work. It runs where everything that was given before it had
// started, also if a later part did not start.
func OnStop(name string, fn any, options ...HookOption) Option {
	return named(onStop, name, fn, hookBudget, options)
}

// Run has fn run in the background from when everything has started until it
// returns or its context ends, when the last request is over. An error that it
// returns before then ends the program.
func Run(name string, fn any, options ...HookOption) Option {
	return named(onRun, name, fn, hookBudget, options)
}

// Ready has fn decide, with an error, whether the program is ready for traffic.
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

// RequireScope refuses to boot where locks do not reach as far as the app needs
// them to.
func RequireScope(s Scope) Option { return scopeOption{callSite(), s} }

// Fx adds options of the injector itself, inside an app to that app's module:
// for what the other options cannot say. What it provides can be taken by every
// function like other provided values, and its hooks run before those of
// OnPrimary. Whoever needs it has to know fx.
func Fx(options ...fx.Option) Option { return fxOption{options} }

// Views adds html/template pages to the app.
func Views(files fs.FS) Option { return viewsOption{files} }

// Public adds files that the app serves at their paths.
func Public(files fs.FS) Option { return publicOption{files} }

// Locales adds the app's texts in the languages that it speaks.
func Locales(files fs.FS) Option { return localesOption{files} }

// callSite is where an option is written down, which every complaint about it
// names.
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

// passes reports whether a function is one that only passes options on.
func passes(function string) bool {
	const module = "github.com/megaframework/mega"
	return strings.HasPrefix(function, module+".") || strings.HasPrefix(function, module+"/boot.")
}
