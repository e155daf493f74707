package boot

import (
	"io/fs"
	"reflect"
	"time"

	"go.uber.org/fx"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock/driver"
)

type (
	// Option is one part of a program: an app, a module, or a part of one of
	// them. It is data; nothing happens before the boot.
	Option = plan.Option
	// HookOption changes how a named function runs.
	HookOption = plan.HookOption
	// SubscribeOption changes a declared subscription.
	SubscribeOption = plan.SubscribeOption
	// Scope is the range in which locks exclude and messages are delivered.
	Scope = driver.Scope
	// Caches contains the clients of all configured caches, by alias.
	Caches = plan.Caches
)

// The parts of a boot report.
type (
	Report    = plan.Report
	Setting   = plan.Setting
	Lack      = plan.Lack
	Served    = plan.Served
	Phase     = plan.Phase
	Primary   = plan.Primary
	Reloaded  = plan.Reloaded
	Decision  = plan.Decision
	Candidate = plan.Candidate
	Outcome   = plan.Outcome
)

// The outcomes of a candidate.
const (
	Chosen   = plan.Chosen
	Rejected = plan.Rejected
	Outdone  = plan.Outdone
)

// The scopes that can be required.
const (
	Node  = driver.Node
	Fleet = driver.Fleet
)

// HasApp reports whether o is an app, or a module with one.
func HasApp(o Option) bool { return plan.HasApp(o) }

// Fx adds options of the injector, inside an app to that app's module. It is
// for cases that the other options do not cover, and requires knowledge of fx.
// Every function can take the values that the options provide, and their hooks
// run before the OnPrimary functions.
func Fx(options ...fx.Option) Option {
	opaque := make([]any, len(options))
	for i, o := range options {
		opaque[i] = o
	}
	return plan.Opaque(opaque...)
}

// opaque returns the options of Fx that a part contains.
func opaque(p *plan.Part) (options []fx.Option) {
	for _, o := range p.Opaque {
		options = append(options, o.(fx.Option)) // only Fx adds opaque options
	}
	return options
}

// Package mega documents the other options.

// App is [mega.App].
func App(name string, options ...Option) Option { return plan.App(name, options...) }

// Module is [mega.Module].
func Module(options ...Option) Option { return plan.Module(options...) }

// Provide is [mega.Provide].
func Provide(constructors ...any) Option { return plan.Provide(constructors...) }

// Section is [mega.Config].
func Section(t reflect.Type, name string) Option { return plan.Section(t, name) }

// ConfigFrom is [mega.ConfigFrom].
func ConfigFrom(name string, p config.Provider, parser config.Parser) Option {
	return plan.ConfigFrom(name, p, parser)
}

// Routes is [mega.Routes].
func Routes(fn any) Option { return plan.Routes(fn) }

// Use is [mega.Use].
func Use(fn any) Option { return plan.Use(fn) }

// OnPrimary is [mega.OnPrimary].
func OnPrimary(name string, fn any, options ...HookOption) Option {
	return plan.OnPrimary(name, fn, options...)
}

// OnStart is [mega.OnStart].
func OnStart(name string, fn any, options ...HookOption) Option {
	return plan.OnStart(name, fn, options...)
}

// OnStop is [mega.OnStop].
func OnStop(name string, fn any, options ...HookOption) Option {
	return plan.OnStop(name, fn, options...)
}

// Run is [mega.Run].
func Run(name string, fn any, options ...HookOption) Option { return plan.Run(name, fn, options...) }

// Lead is [mega.Lead].
func Lead(name string, fn any, options ...HookOption) Option { return plan.Lead(name, fn, options...) }

// Every is [mega.Every].
func Every(name string, every time.Duration, fn any, options ...HookOption) Option {
	return plan.Every(name, every, fn, options...)
}

// Ready is [mega.Ready].
func Ready(name string, fn any, options ...HookOption) Option {
	return plan.Ready(name, fn, options...)
}

// Budget is [mega.Budget].
func Budget(d time.Duration) HookOption { return plan.Budget(d) }

// RequireScope is [mega.RequireScope].
func RequireScope(s Scope) Option { return plan.RequireScope(s) }

// Views is [mega.Views].
func Views(files fs.FS) Option { return plan.Views(files) }

// Public is [mega.Public].
func Public(files fs.FS) Option { return plan.Public(files) }

// Locales is [mega.Locales].
func Locales(files fs.FS) Option { return plan.Locales(files) }

// Subscribe is [mega.Subscribe].
func Subscribe(pattern string, payload reflect.Type, fn any, options ...SubscribeOption) Option {
	return plan.Subscribe(pattern, payload, fn, options...)
}

// OnGap is [mega.OnGap].
func OnGap(fn any) SubscribeOption { return plan.OnGap(fn) }

// Respond is [mega.Respond].
func Respond(pattern string, fn any, options ...bus.SubOption) Option {
	return plan.Respond(pattern, fn, options...)
}
