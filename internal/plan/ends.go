package plan

import (
	"net/http"
	"reflect"
	"slices"
)

// Listens reports whether an app can answer a request: it has routes, public
// files, or a wrapper of all that it serves. Another app needs no listener.
func (p *Program) Listens(app string) bool {
	i := slices.IndexFunc(p.Runs, func(a *Part) bool { return a.Name == app })
	if i < 0 {
		return false
	}
	served := p.Served(p.Runs[i])
	wrapsAll := func(f Function) bool {
		return slices.Contains(slices.Collect(f.Value.Type().Ins()), reflect.TypeFor[http.Handler]())
	}
	return len(served.Routes)+len(served.Public) > 0 || slices.ContainsFunc(served.Uses, wrapsAll)
}

// Ends reports whether the program ends when its Run functions have returned:
// it has some, and nothing that waits for work: a listener, a subscription, a
// responder, an interval, or an option of the injector, which may be any of
// them.
func (p *Program) Ends() bool {
	runs := false
	for _, part := range append([]*Part{&p.Shared}, p.Runs...) {
		if len(part.Messages)+len(part.Opaque) > 0 || p.Listens(part.Name) {
			return false
		}
		for _, h := range part.Hooks {
			if h.Kind == KindEvery {
				return false
			}
			runs = runs || h.Kind == KindRun || h.Kind == KindLead
		}
	}
	return runs
}
