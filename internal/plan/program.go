package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/settings"
)

// Program is the result of the options.
type Program struct {
	Shared Part
	Apps   []*Part
	Runs   []*Part // the apps that this process runs
}

// Part contains the options of one app, or the options that all apps share.
type Part struct {
	Name, Site string // empty for the shared options

	Provides []Function
	Sections []settings.Section
	Layers   []settings.Layer
	Routes   []Function
	Uses     []Function
	Hooks    []Hook
	Messages []Message
	Views    []Files
	Public   []Files
	Locales  []Files
	Opaque   []OpaqueValues

	scopes []scopeOption
}

// OpaqueValues are options that go to the injector unchanged.
type OpaqueValues struct {
	Values []any
	Site   string // file:line
}

// NewProgram sorts the options, and checks everything that can be checked
// before anything runs. The names in only are the apps to run; without names
// the program runs all its apps. The configuration schema still contains the
// other apps, so that processes that run different apps can share a
// configuration.
func NewProgram(options []Option, only []string) (*Program, error) {
	p := &Program{}
	if err := p.collect(options); err != nil {
		return nil, err
	}
	if len(p.Apps) == 0 {
		return nil, &failure.Failure{
			Code: "boot.no_app", Exit: failure.ExitInternal, Text: "The program has no app.",
			Actions: []string{`Give mega.Main one: mega.App("main", …)`},
		}
	}
	for _, a := range p.Apps {
		a.Sections = slices.DeleteFunc(a.Sections, p.Shared.has)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p, p.narrow(only)
}

func (p *Program) narrow(only []string) error {
	p.Runs = p.Apps
	if len(only) == 0 {
		return nil
	}
	for _, name := range only {
		if !slices.Contains(p.Names(), name) {
			return &failure.Failure{
				Code: "boot.unknown_app", Exit: failure.ExitUsage, Text: fmt.Sprintf("There is no app %q to run alone.", name),
				Facts: []failure.Fact{{Name: "its apps", Value: strings.Join(p.Names(), ", ")}},
			}
		}
	}
	p.Runs = slices.DeleteFunc(slices.Clone(p.Apps), func(a *Part) bool { return !slices.Contains(only, a.Name) })
	return nil
}

// Names returns the names of all apps.
func (p *Program) Names() []string { return names(p.Apps) }

// Running returns the names of the apps that this process runs.
func (p *Program) Running() []string { return names(p.Runs) }

// LeftOut returns the names of the apps that this process does not run.
func (p *Program) LeftOut() []string {
	return names(slices.DeleteFunc(slices.Clone(p.Apps), func(a *Part) bool { return slices.Contains(p.Runs, a) }))
}

func names(apps []*Part) (all []string) {
	for _, a := range apps {
		all = append(all, a.Name)
	}
	return all
}

// Requirements returns the requirements of the apps that this process runs.
func (p *Program) Requirements() (all []Requirement) {
	for _, a := range p.Runs {
		components := []string{"lock"}
		if len(p.Shared.Messages)+len(a.Messages) > 0 {
			components = append(components, "bus")
		}
		for _, s := range slices.Concat(p.Shared.scopes, a.scopes) {
			for _, of := range components {
				all = append(all, Requirement{App: a.Name, Component: of, Scope: s.scope, Site: s.site})
			}
		}
	}
	return all
}

// Timed returns the functions of Every that this process runs.
func (p *Program) Timed() (all []Function) {
	for _, part := range append([]*Part{&p.Shared}, p.Runs...) {
		for _, h := range part.Hooks {
			if h.Kind == KindEvery {
				all = append(all, h.Fn)
			}
		}
	}
	return all
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

func (p *Program) collect(options []Option) error {
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
			p.Shared.add(o)
		}
	}
	return nil
}

func (p *Program) addApp(o appOption) error {
	if !settings.ValidName(o.name) {
		return appFailure(fmt.Sprintf("The name %q of an app is not a lower-case word.", o.name), o.site)
	}
	if i := slices.Index(p.Names(), o.name); i >= 0 {
		f := appFailure(fmt.Sprintf("Two apps have the name %q.", o.name), o.site, "Rename one of them, or join them in one mega.App")
		f.Facts = []failure.Fact{{Name: "first", Value: p.Apps[i].Site}, {Name: "again", Value: o.site}}
		return f
	}
	a := &Part{Name: o.name, Site: o.site}
	if err := a.collect(o.options); err != nil {
		return err
	}
	p.Apps = append(p.Apps, a)
	return nil
}

func appFailure(text, site string, actions ...string) *failure.Failure {
	return &failure.Failure{
		Code: "boot.app", Exit: failure.ExitInternal, Text: text, Facts: []failure.Fact{{Name: "given at", Value: site}}, Actions: actions,
	}
}

func (p *Part) collect(options []Option) error {
	for _, o := range options {
		switch o := o.(type) {
		case appOption:
			return appFailure(fmt.Sprintf("App %q is nested inside app %q. Apps cannot be nested.", o.name, p.Name), o.site,
				fmt.Sprintf("Pass mega.App(%q, …) to mega.Main, beside mega.App(%q, …)", o.name, p.Name))
		case moduleOption:
			if err := p.collect(o.options); err != nil {
				return err
			}
		default:
			p.add(o)
		}
	}
	return nil
}

func (p *Part) add(o Option) {
	switch o := o.(type) {
	case provideOption:
		p.Provides = append(p.Provides, o.constructors...)
	case sectionOption:
		if o.section.App = p.Name; !p.has(o.section) {
			p.Sections = append(p.Sections, o.section)
		}
	case layerOption:
		o.layer.App = p.Name
		p.Layers = append(p.Layers, o.layer)
	case routesOption:
		p.Routes = append(p.Routes, o.fn)
	case useOption:
		p.Uses = append(p.Uses, o.fn)
	case Hook:
		p.Hooks = append(p.Hooks, o)
	case Message:
		p.Messages = append(p.Messages, o)
	case viewsOption:
		p.Views = append(p.Views, o.files)
	case publicOption:
		p.Public = append(p.Public, o.files)
	case localesOption:
		p.Locales = append(p.Locales, o.files)
	case scopeOption:
		p.scopes = append(p.scopes, o)
	case opaqueOption:
		p.Opaque = append(p.Opaque, o.opaque)
	}
}

// has reports whether the part already has that section, possibly from another
// module.
func (p *Part) has(s settings.Section) bool {
	return slices.ContainsFunc(p.Sections, func(o settings.Section) bool { return o.Name == s.Name && o.Type == s.Type })
}

// Served returns the options of the app together with the shared ones.
func (p *Program) Served(a *Part) Part {
	return Part{
		Name:    a.Name,
		Routes:  slices.Concat(p.Shared.Routes, a.Routes),
		Uses:    slices.Concat(p.Shared.Uses, a.Uses),
		Views:   slices.Concat(p.Shared.Views, a.Views),
		Public:  slices.Concat(p.Shared.Public, a.Public),
		Locales: slices.Concat(p.Shared.Locales, a.Locales),
	}
}

// Sections returns the configuration sections that the program adds.
func (p *Program) Sections() (all []settings.Section) {
	for _, part := range p.parts() {
		all = append(all, part.Sections...)
	}
	return all
}

// Layers returns the program's own sources of configuration, first the shared
// ones, then each app's.
func (p *Program) Layers() (all []settings.Layer) {
	for _, part := range p.parts() {
		all = append(all, part.Layers...)
	}
	return all
}

// LongestCheck returns the longest budget of a readiness check.
func (p *Program) LongestCheck() time.Duration {
	longest := ReadyBudget
	for _, part := range p.parts() {
		for _, h := range part.Hooks {
			if h.Kind == KindReady {
				longest = max(longest, h.Budget)
			}
		}
	}
	return longest
}

// parts returns the shared options, and then each app's.
func (p *Program) parts() []*Part { return append([]*Part{&p.Shared}, p.Apps...) }

// functions returns all functions of a part.
func (p *Part) functions() []Function {
	return slices.Concat(p.Provides, p.Routes, p.Uses, p.background())
}

// checkFiles returns an error for an option without files.
func (p *Part) checkFiles() error {
	for _, o := range []struct {
		name  string
		files []Files
	}{{"Views", p.Views}, {"Public", p.Public}, {"Locales", p.Locales}} {
		for _, f := range o.files {
			if f.FS == nil {
				return Function{Option: o.name, Site: f.site}.wrong("it is nil", "an fs.FS, such as an embed.FS")
			}
		}
	}
	return nil
}

// background returns the functions that run outside requests.
func (p *Part) background() (all []Function) {
	for _, h := range p.Hooks {
		all = append(all, h.Fn)
	}
	for _, m := range p.Messages {
		all = append(all, m.Fn)
		if m.Gap != nil {
			all = append(all, *m.Gap)
		}
	}
	return all
}
