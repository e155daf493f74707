package boot

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/settings"
)

// provided registers a part's constructors and sections with the injector. They
// are private to the module that contains them and to the modules inside it, so
// an app's are private to the app.
func (b *booting) provided(app string, p *plan.Part) (options []fx.Option) {
	for _, s := range p.Sections {
		options = append(options, fx.Provide(fx.Private, b.section(app, s)))
	}
	for _, f := range p.Provides {
		options = append(options, fx.Provide(fx.Private, b.constructor(f)))
	}
	return options
}

// section returns a constructor of a section's value for an app.
func (b *booting) section(app string, s settings.Section) any {
	t := reflect.FuncOf([]reflect.Type{reflect.TypeFor[*settings.Config]()}, []reflect.Type{s.Type}, false)
	return reflect.MakeFunc(t, func(in []reflect.Value) []reflect.Value {
		v, ok := in[0].Interface().(*settings.Config).Section(app, s.Name)
		if !ok { // every section of the program was given to Load
			panic("no section " + s.Name)
		}
		return []reflect.Value{reflect.ValueOf(v)}
	}).Interface()
}

// constructor wraps a constructor so that its errors contain its call site, and
// its values are closed in the end.
func (b *booting) constructor(f plan.Function) any {
	made, failure := f.Makes(), reflect.TypeFor[error]()
	t := reflect.FuncOf(f.Needs(), append(slices.Clip(made), failure), false)
	return reflect.MakeFunc(t, func(in []reflect.Value) []reflect.Value {
		began := time.Now()
		out, err := b.construct(f, in)
		if err == nil {
			b.report.Record(f.Name(), began)
			b.closeLater(out)
			return append(out, reflect.Zero(failure))
		}
		out = nil
		for _, t := range made {
			out = append(out, reflect.Zero(t))
		}
		return append(out, reflect.ValueOf(&err).Elem()) // of type error: reflect.ValueOf(err) has the type inside it
	}).Interface()
}

// construct calls a constructor with a timeout.
func (b *booting) construct(f plan.Function, in []reflect.Value) ([]reflect.Value, error) {
	var values []reflect.Value // not a result: a constructor that was abandoned may still assign it
	about := func() (string, []failure.Fact) { return "A constructor", constructed(f) }
	err := b.awaitReturn(about, func(context.Context) error {
		made, err := construct(f, in)
		values = made
		return err
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// called returns the kind of a function of the program that was called and has failed, and
// the facts about it.
type called func() (kind string, facts []failure.Fact)

// awaitReturn calls a function of the program with a timeout. The function has no
// context that could end it, so one that hangs is abandoned and reported.
func (b *booting) awaitReturn(about called, fn func(context.Context) error) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.ctx, b.plan.ReturnBudget())
	defer cancel()
	err := await(ctx, fn)
	isStuck, isGone := errors.Is(err, errStuck), errors.Is(err, errGone)
	if !isStuck && !isGone {
		return err
	}
	switch kind, facts := about(); {
	case isGone:
		return &Failure{Code: "boot.failed", Exit: failure.ExitInternal, Text: kind + " did not return.", Cause: err, Facts: facts}
	case b.ctx.Err() == nil:
		return b.plan.Overrun(kind, facts)
	default: // the boot was stopped meanwhile
		var all []string
		for _, f := range facts {
			all = append(all, f.Name+" "+f.Value)
		}
		return fmt.Errorf("%s: %w", strings.Join(all, ", "), err)
	}
}

func construct(f plan.Function, in []reflect.Value) (values []reflect.Value, err error) {
	defer func() {
		if value := recover(); value != nil {
			values, err = nil, &Failure{
				Code: "boot.constructor_panicked", Exit: failure.ExitInternal, Text: "A constructor panicked.", Cause: panicked(value), Facts: constructed(f),
			}
		}
	}()
	out := f.Value.Call(in)
	if len(out) == len(f.Makes()) {
		return out, nil
	}
	values = out[:len(out)-1]
	if cause := plan.ErrorOf(out); cause != nil {
		return nil, &Failure{
			Code: "boot.constructor_failed", Exit: failure.ExitUnavailable, Text: "A constructor returned an error.", Cause: cause, Facts: constructed(f),
		}
	}
	return values, nil
}

// constructed returns the facts about a constructor that failed.
func constructed(f plan.Function) []failure.Fact {
	return []failure.Fact{{Name: "constructor", Value: f.Declared()}, {Name: "provided at", Value: f.Site}}
}

// closeLater registers the values that have a Close method, to close them in
// the end.
func (b *booting) closeLater(values []reflect.Value) {
	for _, v := range values {
		if stop, ok := closer(v.Interface()); ok {
			b.life.endWith(owning, hook{name: "close " + v.Type().String(), run: stop, budget: hookBudget})
		}
	}
}

// caches opens the requested cache clients. They have their own connections, so
// that their failures do not affect the locks.
type caches struct {
	*booting
	open map[string]goredis.UniversalClient
}

// provide returns the providers of the cache clients. It leaves out the default
// client if the program provides its own.
func (c *caches) provide(shared *plan.Part) []fx.Option {
	options := []fx.Option{fx.Provide(c.all)}
	own := slices.ContainsFunc(shared.Provides, func(f plan.Function) bool { return slices.Contains(f.Makes(), plan.ClientType()) })
	if !own {
		options = append(options, fx.Provide(c.main))
	}
	return options
}

func (c *caches) all(cfg *settings.Config) (plan.Caches, error) {
	all := plan.Caches{}
	for _, alias := range cfg.Caches() {
		client, err := c.client(cfg, alias)
		if err != nil {
			return nil, err
		}
		all[alias] = client
	}
	return all, nil
}

// main returns the client of the default cache, for functions that name no
// alias.
func (c *caches) main(cfg *settings.Config) (goredis.UniversalClient, error) {
	alias, err := selection.DefaultCache(cfg, c.plan.Program.ClientTakers)
	if err != nil {
		return nil, err
	}
	return c.client(cfg, alias)
}

// client connects to a cache at the first call, and returns the same client
// afterwards.
func (c *caches) client(cfg *settings.Config, alias string) (goredis.UniversalClient, error) {
	if client, ok := c.open[alias]; ok {
		return client, nil
	}
	client, err := selection.OpenCache(c.ctx, cfg, alias, c.log)
	if err != nil {
		return nil, err
	}
	c.life.endWith(owning, hook{name: "close cache " + alias, budget: hookBudget, run: func(context.Context) error { return client.Close() }})
	if c.open == nil {
		c.open = map[string]goredis.UniversalClient{}
	}
	c.open[alias] = client
	return client, nil
}
