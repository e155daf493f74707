package boot

import (
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.uber.org/fx"

	"github.com/megaframework/mega/config"
)

// program is the result of the options.
type program struct {
	shared part
	apps   []*app
	runs   []*app // the apps that this process runs
}

// app is one app of the program.
type app struct {
	name, site string
	part
}

// part contains the options of the program or of one app.
type part struct {
	provides []function
	sections []sectionOption
	layers   []config.Layer
	routes   []function
	uses     []function
	hooks    []hookOption
	messages []messageOption
	views    []fs.FS
	public   []fs.FS
	locales  []fs.FS
	scopes   []scopeOption
	fx       []fx.Option // options that go to the injector unchanged
}

// newProgram sorts the options, and checks everything that can be checked
// before anything runs.
func newProgram(options []Option) (*program, error) {
	p := &program{}
	if err := p.collect(options); err != nil {
		return nil, err
	}
	if len(p.apps) == 0 {
		return nil, &Failure{
			Code: "boot.no_app", Exit: ExitInternal, Text: "The program has no app.",
			Actions: []string{`give mega.Main one: mega.App("main", …)`},
		}
	}
	for _, a := range p.apps {
		a.sections = slices.DeleteFunc(a.sections, p.shared.has)
	}
	p.runs = p.apps
	return p, p.check()
}

// narrow removes all apps from runs except the named ones. Without names it
// removes none. The configuration schema still contains the other apps, so that
// processes that run different apps can share a configuration.
func (p *program) narrow(only []string) error {
	if len(only) == 0 {
		return nil
	}
	for _, name := range only {
		if !slices.Contains(p.names(), name) {
			return &Failure{
				Code: "boot.unknown_app", Exit: ExitUsage, Text: fmt.Sprintf("There is no app %q to run alone.", name),
				Facts: []Fact{{Name: "its apps", Value: strings.Join(p.names(), ", ")}},
			}
		}
	}
	p.runs = slices.DeleteFunc(slices.Clone(p.apps), func(a *app) bool { return !slices.Contains(only, a.name) })
	return nil
}

// running returns the names of the apps that this process runs.
func (p *program) running() (names []string) {
	for _, a := range p.runs {
		names = append(names, a.name)
	}
	return names
}

// requirements returns the requirements of the apps that this process runs.
func (p *program) requirements() (all []Requirement) {
	for _, a := range p.runs {
		components := []string{"lock"}
		if len(p.shared.messages)+len(a.messages) > 0 {
			components = append(components, "bus")
		}
		for _, s := range slices.Concat(p.shared.scopes, a.scopes) {
			for _, of := range components {
				all = append(all, Requirement{App: a.name, Component: of, Scope: s.scope, Site: s.site})
			}
		}
	}
	return all
}

// leftOut returns the names of the apps that this process does not run.
func (p *program) leftOut() (names []string) {
	for _, a := range p.apps {
		if !slices.Contains(p.runs, a) {
			names = append(names, a.name)
		}
	}
	return names
}

// HasApp reports whether o is an app, or a module with one.
func HasApp(o Option) bool {
	switch o := o.(type) {
	case appOption:
		return true
	case moduleOption:
		return slices.ContainsFunc(o.options, HasApp)
	}
	return false
}

func (p *program) collect(options []Option) error {
	for _, o := range options {
		switch o := o.(type) {
		case appOption:
			if err := p.addApp(o); err != nil {
				return err
			}
		case moduleOption:
			if err := p.collect(o.options); err != nil {
				return err
			}
		default:
			p.shared.add(o)
		}
	}
	return nil
}

func (p *program) addApp(o appOption) error {
	if !config.ValidName(o.name) {
		return appFailure(o, "an app's name is a lower-case word")
	}
	if slices.ContainsFunc(p.apps, func(a *app) bool { return a.name == o.name }) {
		return appFailure(o, "there are two of them")
	}
	a := &app{name: o.name, site: o.site}
	if err := a.collect(o.options); err != nil {
		return err
	}
	p.apps = append(p.apps, a)
	return nil
}

func appFailure(o appOption, why string) error {
	return &Failure{
		Code: "boot.app", Exit: ExitInternal,
		Text: fmt.Sprintf("The app %q cannot be: %s.", o.name, why), Facts: []Fact{{Name: "given at", Value: o.site}},
	}
}

func (a *app) collect(options []Option) error {
	for _, o := range options {
		switch o := o.(type) {
		case appOption:
			return appFailure(o, "it is inside the app "+a.name)
		case moduleOption:
			if err := a.collect(o.options); err != nil {
				return err
			}
		default:
			a.add(o)
		}
	}
	return nil
}

func (p *part) add(o Option) {
	switch o := o.(type) {
	case provideOption:
		p.provides = append(p.provides, o.constructors...)
	case sectionOption:
		if !p.has(o) {
			p.sections = append(p.sections, o)
		}
	case layerOption:
		p.layers = append(p.layers, o.layer)
	case routesOption:
		p.routes = append(p.routes, o.fn)
	case useOption:
		p.uses = append(p.uses, o.fn)
	case hookOption:
		p.hooks = append(p.hooks, o)
	case messageOption:
		p.messages = append(p.messages, o)
	case viewsOption:
		p.views = append(p.views, o.files)
	case publicOption:
		p.public = append(p.public, o.files)
	case localesOption:
		p.locales = append(p.locales, o.files)
	case scopeOption:
		p.scopes = append(p.scopes, o)
	case fxOption:
		p.fx = append(p.fx, o.options...)
	}
}

// has reports whether the part already has that section, possibly from another
// module.
func (p *part) has(s sectionOption) bool {
	return slices.ContainsFunc(p.sections, func(o sectionOption) bool { return o.name == s.name && o.typ == s.typ })
}

// served returns the options of the app together with the shared ones.
func (p *program) served(a *app) part {
	return part{
		routes:  slices.Concat(p.shared.routes, a.routes),
		uses:    slices.Concat(p.shared.uses, a.uses),
		views:   slices.Concat(p.shared.views, a.views),
		public:  slices.Concat(p.shared.public, a.public),
		locales: slices.Concat(p.shared.locales, a.locales),
	}
}

// sections returns the configuration sections that the program adds.
func (p *program) sections() (all []config.Section) {
	add := func(app string, part part) {
		for _, s := range part.sections {
			all = append(all, config.Section{App: app, Name: s.name, Type: s.typ, Site: s.site})
		}
	}
	add("", p.shared)
	for _, a := range p.apps {
		add(a.name, a.part)
	}
	return all
}

// layers returns the program's own sources of configuration, first the shared
// ones, then each app's.
func (p *program) layers() (all []config.Layer) {
	all = slices.Clone(p.shared.layers)
	for _, a := range p.apps {
		for _, l := range a.layers {
			l.App = a.name
			all = append(all, l)
		}
	}
	return all
}

func (p *program) names() (all []string) {
	for _, a := range p.apps {
		all = append(all, a.name)
	}
	return all
}

func (p *program) parts() []*part {
	all := []*part{&p.shared}
	for _, a := range p.apps {
		all = append(all, &a.part)
	}
	return all
}

// functions returns all functions of a part.
func (p *part) functions() []function {
	return slices.Concat(p.provides, p.routes, p.uses, p.background())
}

// check finds functions with a wrong shape, values with two constructors, and
// values without one. It runs before the injector, whose errors are harder to
// read.
func (p *program) check() error {
	for _, part := range p.parts() {
		for _, f := range part.functions() {
			if err := f.check(); err != nil {
				return err
			}
		}
		for _, h := range part.hooks {
			if err := h.check(); err != nil {
				return err
			}
		}
	}
	shared, err := p.shared.makers(framework(frameworkTypes()))
	if err != nil {
		return err
	}
	if p.opaque() {
		return nil // only the injector knows the provided values
	}
	// Shared routes and wrappers belong to each app, and may take its values.
	base := part{provides: p.shared.provides, hooks: p.shared.hooks, messages: p.shared.messages}
	if err := base.satisfied(shared); err != nil {
		return err
	}
	for _, a := range p.apps {
		makers, err := a.makers(framework(appTypes()), shared)
		if err != nil {
			return err
		}
		if err := uncircled(slices.Concat(p.shared.provides, a.provides)); err != nil {
			return err
		}
		served := p.served(a)
		for _, part := range []*part{&a.part, &served} {
			if err := part.satisfied(makers); err != nil {
				return err
			}
		}
	}
	return nil
}

// opaque reports whether the program has options of the injector (Fx).
func (p *program) opaque() bool {
	return slices.ContainsFunc(p.parts(), func(part *part) bool { return len(part.fx) > 0 })
}

// framework returns a map that names mega as the constructor of these types.
func framework(types []reflect.Type) map[reflect.Type]string {
	makers := map[reflect.Type]string{}
	for _, t := range types {
		makers[t] = "mega"
	}
	return makers
}

// makers returns the call site of the constructor of each type: those in outer
// and the part's own. The program may replace mega's redis client.
func (p *part) makers(outer ...map[reflect.Type]string) (map[reflect.Type]string, error) {
	all := map[reflect.Type]string{}
	for _, makers := range outer {
		maps.Copy(all, makers)
	}
	add := func(t reflect.Type, site string) error {
		if first, taken := all[t]; taken && (t != clientType() || first != "mega") {
			return &Failure{
				Code: "boot.provided_twice", Exit: ExitInternal, Text: fmt.Sprintf("%v is provided twice.", t),
				Facts: []Fact{{Name: "first", Value: first}, {Name: "again", Value: site}},
			}
		}
		all[t] = site
		return nil
	}
	for _, s := range p.sections {
		if err := add(s.typ, s.site); err != nil {
			return nil, err
		}
	}
	for _, f := range p.provides {
		for _, t := range f.makes() {
			if err := add(t, f.site); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// satisfied returns an error if a function of the part takes a value without a
// constructor.
func (p *part) satisfied(makers map[reflect.Type]string) error {
	for _, f := range p.functions() {
		for _, t := range f.needs() {
			if _, ok := makers[t]; !ok {
				return &Failure{
					Code: "boot.not_provided", Exit: ExitInternal, Text: fmt.Sprintf("Nothing provides %v.", t),
					Facts:   []Fact{{Name: "needed by", Value: "mega." + f.option + " at " + f.site}, {Name: "declared", Value: f.declared()}},
					Actions: []string{"add its constructor: mega.Provide(…)"},
				}
			}
		}
	}
	return nil
}
