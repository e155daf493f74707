package boot

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"go.uber.org/fx"

	"github.com/megaframework/mega/internal/plan"
)

// injected makes fx options use the boot's own lifecycle and shutdown. The
// lifecycle of fx does not name a hook that exceeds its time, and stops nothing
// once its time is over.
func (b *booting) injected() fx.Option {
	return fx.Decorate(
		func(fx.Lifecycle) fx.Lifecycle { return &appended{b} },
		func(fx.Shutdowner) fx.Shutdowner { return shutdowner{b} },
	)
}

// appended is an fx.Lifecycle whose hooks are steps of the boot.
type appended struct{ b *booting }

// Append adds a hook with a budget of its own. It runs before the hooks of
// OnPrimary.
func (a *appended) Append(h fx.Hook) {
	name := "fx hook"
	if pc, file, line, ok := runtime.Caller(1); ok {
		name = fmt.Sprintf("fx hook of %s (%s:%d)", filepath.Base(runtime.FuncForPC(pc).Name()), file, line)
	}
	a.b.steps.injected = append(a.b.steps.injected, step{
		start: hook{name: name, budget: hookBudget, run: h.OnStart},
		end:   hook{name: name, budget: hookBudget, run: h.OnStop},
		phase: leaving,
	})
}

// shutdowner is an fx.Shutdowner that shuts down the program instead of fx.
type shutdowner struct{ b *booting }

// shutdownError is the cause of a shutdown that the program has requested
// itself.
type shutdownError struct{ code int }

func (e shutdownError) Error() string { return fmt.Sprintf("shutdown with exit code %d", e.code) }

// Shutdown ends the program as a signal would. It uses the given exit code, or
// 0 without one.
func (s shutdowner) Shutdown(options ...fx.ShutdownOption) error {
	code := 0
	for _, o := range options {
		if reflect.TypeOf(o) == reflect.TypeOf(fx.ExitCode(0)) {
			code = int(reflect.ValueOf(o).Int())
		}
	}
	s.b.fail(shutdownError{code})
	return nil
}

// Option is one part of a program: an app, a module, or a part of one of them.
// It is data; nothing happens before the boot. Package mega has the options,
// except Fx.
type Option = plan.Option

// HasApp reports whether o is an app, or a module with one.
func HasApp(o Option) bool { return plan.HasApp(o) }

// Fx adds options of the injector, inside an app to that app's module. It is
// for cases that the other options do not cover, and requires knowledge of fx.
// Every function can take the values that the options provide, and their hooks
// run before the OnPrimary functions. A type that a constructor of mega.Provide
// returns, too, stops the boot; fx.Decorate replaces its value.
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
		options = append(options, injectorOptions(o)...)
	}
	return options
}

func injectorOptions(of plan.OpaqueValues) (options []fx.Option) {
	for _, o := range of.Values {
		options = append(options, o.(fx.Option)) // only Fx adds opaque options
	}
	return options
}

// checkFx returns an error for a type that options of Fx and a constructor or a
// section provide. The injector would take the one that is private to the app, and
// ignore the other. checkFx calls no function of the program.
func checkFx(program *plan.Program) error {
	shared := &program.Shared
	for _, given := range append([]*plan.Part{shared}, program.Apps...) {
		for _, of := range given.Opaque {
			for _, p := range append([]*plan.Part{shared}, program.Apps...) {
				if p != given && p != shared && given != shared {
					continue // the values of two apps are separate
				}
				if err := p.ProvidedBy(of, providedBy(injectorOptions(of))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// providedBy returns a function that returns the first of some types of which options
// provide a value: the injector refuses another constructor of it.
func providedBy(options []fx.Option) func([]reflect.Type) (reflect.Type, bool) {
	return func(types []reflect.Type) (reflect.Type, bool) {
		if refusalOf(options, types...) == "" || refusalOf(options) != "" {
			return nil, false // the boot reports options that are refused alone
		}
		for _, t := range types {
			if strings.Contains(refusalOf(options, t), "already provided by ") {
				return t, true
			}
		}
		return nil, false
	}
}

// endOfCheck is provided twice at the end of a check, so that the injector stops there.
type endOfCheck struct{}

// refusalOf returns why the injector refuses options with constructors of the types, or "".
// Nothing runs: ValidateApp calls no constructor. It stops before the functions of
// fx.Invoke, because fx.ErrorHook would receive their missing values.
func refusalOf(options []fx.Option, types ...reflect.Type) string {
	all := slices.Clone(options)
	for _, t := range types {
		another := reflect.MakeFunc(reflect.FuncOf(nil, []reflect.Type{t}, false), nil)
		all = append(all, fx.Provide(another.Interface()))
	}
	end := fx.Provide(func() endOfCheck { return endOfCheck{} })
	text := fx.ValidateApp(append(all, fx.NopLogger, fx.Module("end", end, end))...).Error()
	if strings.Contains(text, reflect.TypeFor[endOfCheck]().String()) {
		return ""
	}
	return text
}
