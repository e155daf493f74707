package plan

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// The checks of the graph of provided values. They call no constructor: the
// injector of the boot does. They run before it, because its errors are harder
// to read, and because the dry run has no injector.

// Caches contains the clients of all configured caches, by alias. A program
// that takes Caches connects to all of them.
type Caches map[string]goredis.UniversalClient

// ClientType returns the type under which the default cache is provided.
func ClientType() reflect.Type { return reflect.TypeFor[goredis.UniversalClient]() }

// frameworkTypes returns the types of the values that every function may take.
func frameworkTypes() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[*slog.Logger](), reflect.TypeFor[*lock.Locker](), reflect.TypeFor[*limit.Limiter](), reflect.TypeFor[*bus.Bus](), ClientType(), reflect.TypeFor[Caches](),
		reflect.TypeFor[prometheus.Registerer](),
	}
}

// appTypes returns the types of the values that only functions inside an app
// may take.
func appTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[megactx.AppInfo]()} }

// check finds functions with a wrong shape, hooks and subscriptions that cannot work,
// values with two constructors, and values without one.
func (p *Program) check() error {
	for _, part := range p.parts() {
		if err := part.check(); err != nil {
			return err
		}
	}
	if err := p.checkCommands(); err != nil {
		return err
	}
	return p.checkValues()
}

// check returns an error for an option that cannot work, whatever the others are.
func (p *Part) check() error {
	for _, f := range p.functions() {
		if err := f.check(); err != nil {
			return err
		}
	}
	return cmp.Or(p.checkHooks(), p.checkMessages(), p.checkFiles())
}

// checkValues returns an error for a value with two constructors, or without one, and
// for constructors that need each other.
func (p *Program) checkValues() error {
	shared, err := p.Shared.makers(framework(frameworkTypes()))
	if err != nil {
		return err
	}
	makers := make([]map[reflect.Type]string, len(p.Apps))
	for i, a := range p.Apps {
		if makers[i], err = a.makers(framework(appTypes()), shared); err != nil {
			return err
		}
	}
	if p.isOpaque() {
		return nil // only the injector knows the provided values
	}
	// Shared routes and wrappers belong to each app, and may take its values.
	base := Part{Provides: p.Shared.Provides, Hooks: p.Shared.Hooks, Messages: p.Shared.Messages}
	if err := p.satisfied(&base, shared); err != nil {
		return err
	}
	for i, a := range p.Apps {
		if err := acyclic(slices.Concat(p.Shared.Provides, a.Provides)); err != nil {
			return err
		}
		served := p.Served(a)
		for _, part := range []*Part{a, &served} {
			if err := p.satisfied(part, makers[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkHooks returns an error for a hook that cannot work, or for a second Lead
// or Every of the same name: the two would share a lock, and only one of them
// would lead, or run in a tick.
func (p *Part) checkHooks() error {
	type elected struct {
		kind Kind
		name string
	}
	sites := map[elected]string{}
	for _, h := range p.Hooks {
		if err := h.check(); err != nil {
			return err
		}
		if h.Kind != KindLead && h.Kind != KindEvery {
			continue
		}
		id := elected{h.Kind, h.Name}
		if first, taken := sites[id]; taken {
			return h.Fn.wrong(fmt.Sprintf("the name %q is taken", h.Name), "a name of its own: the "+string(h.Kind)+" at "+first+" has this one")
		}
		sites[id] = h.Fn.Site
	}
	return nil
}

// isOpaque reports whether the program has options of the injector.
func (p *Program) isOpaque() bool {
	return slices.ContainsFunc(p.parts(), func(part *Part) bool { return len(part.Opaque) > 0 })
}

// framework returns a map that names mega as the constructor of these types.
func framework(types []reflect.Type) map[reflect.Type]string {
	makers := map[reflect.Type]string{}
	for _, t := range types {
		makers[t] = "mega"
	}
	return makers
}

// makers returns the constructor of each type with its call site: those in outer
// and the part's own. The program may replace mega's redis client.
func (p *Part) makers(outer ...map[reflect.Type]string) (map[reflect.Type]string, error) {
	all := map[reflect.Type]string{}
	for _, makers := range outer {
		maps.Copy(all, makers)
	}
	add := func(t reflect.Type, site string) error {
		if first, taken := all[t]; taken && (t != ClientType() || first != "mega") {
			return twice(t, first, site)
		}
		all[t] = site
		return nil
	}
	for _, s := range p.Sections {
		if err := add(s.Type, s.Site); err != nil {
			return nil, err
		}
	}
	for _, f := range p.Provides {
		for _, t := range f.Makes() {
			if err := add(t, f.Name()+", given at "+f.Site); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// ProvidedBy returns an error for a type that the part and values provide. first
// returns the first of some types that values provide.
func (p *Part) ProvidedBy(values OpaqueValues, first func([]reflect.Type) (reflect.Type, bool)) error {
	makers, err := p.makers()
	if err != nil {
		return err
	}
	byPlace := func(a, b reflect.Type) int { return cmp.Compare(makers[a], makers[b]) }
	if t, ok := first(slices.SortedFunc(maps.Keys(makers), byPlace)); ok {
		return twice(t, makers[t], "boot.Fx, given at "+values.Site)
	}
	return nil
}

func twice(t reflect.Type, first, again string) error {
	return &failure.Failure{
		Code: "boot.provided_twice", Exit: failure.ExitInternal, Text: typeName(t) + " is provided twice.",
		Facts:   []failure.Fact{{Name: "first", Value: first}, {Name: "again", Value: again}},
		Actions: []string{"Remove one of them, or let them return different types"},
	}
}

// ClientTakers returns the functions that take the client of the default cache,
// as facts of a Failure.
func (p *Program) ClientTakers() (facts []failure.Fact) {
	for _, f := range p.takers(ClientType()) {
		facts = append(facts, failure.Fact{Name: "taken by", Value: f.Declared()}, failure.Fact{Name: "at", Value: f.Site})
	}
	return facts
}

// takers returns the functions that take a value of type t.
func (p *Program) takers(t reflect.Type) (all []Function) {
	for _, part := range p.parts() {
		for _, f := range part.functions() {
			if slices.Contains(f.Needs(), t) {
				all = append(all, f)
			}
		}
	}
	return all
}

// Takes reports whether a function that the boot would call takes a value of
// type t from the framework. It returns false for a program with options of the
// injector, which may provide every type.
func (p *Program) Takes(t reflect.Type) bool {
	if p.isOpaque() {
		return false
	}
	if reaches(t, p.Shared.background(), p.Shared.Provides) {
		return true
	}
	return slices.ContainsFunc(p.Runs, func(a *Part) bool {
		served := p.Served(a)
		called := slices.Concat(served.Routes, served.Uses, a.background())
		return reaches(t, called, slices.Concat(p.Shared.Provides, a.Provides))
	})
}

// reaches reports whether functions need t from the framework, directly or
// through the constructors of their parameters.
func reaches(t reflect.Type, called, makes []Function) bool {
	seen := map[reflect.Type]bool{}
	for len(called) > 0 {
		f := called[0]
		called = called[1:]
		for _, need := range f.Needs() {
			if seen[need] {
				continue
			}
			seen[need] = true
			i := slices.IndexFunc(makes, func(m Function) bool { return slices.Contains(m.Makes(), need) })
			switch {
			case i >= 0:
				called = append(called, makes[i])
			case need == t:
				return true
			}
		}
	}
	return false
}
