package boot

import (
	"go.uber.org/fx"

	"github.com/megaframework/mega/internal/plan"
)

// Option is one part of a program: an app, a module, or a part of one of them.
// It is data; nothing happens before the boot. Package mega has the options,
// except Fx.
type Option = plan.Option

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
