package plan

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/megaframework/mega/internal/failure"
)

// satisfied returns an error if a function of part takes a value without a
// constructor.
func (p *Program) satisfied(part *Part, makers map[reflect.Type]string) error {
	for _, f := range part.functions() {
		for _, t := range f.Needs() {
			if _, ok := makers[t]; !ok {
				return p.missing(part, f, t, makers)
			}
		}
	}
	return nil
}

// missing returns the failure for a value without a constructor. It names the
// constructor that was probably meant: of the other of T and *T, of the same
// type in another app, or of a type that implements the interface.
func (p *Program) missing(part *Part, f Function, t reflect.Type, makers map[reflect.Type]string) error {
	out := &failure.Failure{
		Code: "boot.not_provided", Exit: failure.ExitInternal, Text: "Nothing provides " + typeName(t) + ".",
		Facts:   []failure.Fact{{Name: "needed by", Value: "mega." + f.Option + " at " + f.Site}, {Name: "declared", Value: f.Declared()}},
		Actions: []string{"Add its constructor: mega.Provide(…)"},
	}
	provided := func(t reflect.Type, where string) {
		out.Facts = append(out.Facts, failure.Fact{Name: "provided", Value: fmt.Sprintf("%v, %s", t, where)})
	}
	if other, site := sibling(t, makers); other != nil {
		provided(other, "by "+site)
		out.Actions = []string{fmt.Sprintf("Take %v instead of %v", other, t)}
		return out
	}
	if app, site := p.foreignMaker(t); app != "" {
		provided(t, fmt.Sprintf("inside the app %q alone, by %s", app, site))
		out.Text = fmt.Sprintf("Nothing provides %v here: the values of the app %q are private to it.", t, app)
		own := "Add the constructor here too, for a value of its own: mega.Provide(…)"
		if part.Name == "" { // a shared constructor beside the app's would be provided twice
			own = fmt.Sprintf("Move mega.%s at %s into mega.App(%q, …)", f.Option, f.Site, app)
		}
		out.Actions = []string{fmt.Sprintf("Move the constructor out of mega.App(%q, …), so that all apps share one value", app), own}
		return out
	}
	if isSection(t) {
		out.Actions = append([]string{fmt.Sprintf("Declare its section of the configuration: mega.Config[%v](\"…\")", t)}, out.Actions...)
	}
	if made, site := implementer(t, makers); made != nil {
		provided(made, "which implements it, by "+site)
		out.Actions = []string{fmt.Sprintf("Return %v from the constructor, in place of %v", t, made), fmt.Sprintf("Take %v instead of %v", made, t)}
	}
	return out
}

// isSection reports whether t is a section of the configuration: a struct whose
// fields have keys.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Tag.Get("key") != "" })
}

// sibling returns *T for T, or T for *T, if there is a constructor of it.
func sibling(t reflect.Type, makers map[reflect.Type]string) (reflect.Type, string) {
	candidates := []reflect.Type{reflect.PointerTo(t)}
	if t.Kind() == reflect.Pointer {
		candidates = append(candidates, t.Elem())
	}
	for _, other := range candidates {
		if site, ok := makers[other]; ok {
			return other, site
		}
	}
	return nil, ""
}

// foreignMaker returns an app with a constructor of t, and its call site.
func (p *Program) foreignMaker(t reflect.Type) (app, site string) {
	for _, a := range p.Apps {
		if own, err := a.makers(); err == nil && own[t] != "" {
			return a.Name, own[t]
		}
	}
	return "", ""
}

// implementer returns the type that the program provides and that implements
// the interface t, or nil if there is none or more than one.
func implementer(t reflect.Type, makers map[reflect.Type]string) (reflect.Type, string) {
	if t.Kind() != reflect.Interface || t.NumMethod() == 0 {
		return nil, ""
	}
	var found []reflect.Type
	for made, site := range makers {
		if site != "mega" && made.Implements(t) {
			found = append(found, made)
		}
	}
	if len(found) != 1 {
		return nil, ""
	}
	return found[0], makers[found[0]]
}
