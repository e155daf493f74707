package plan

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
)

// Route is a route of an app, with the host, method and pattern that clients
// use.
type Route struct {
	App     string `json:"app"`
	Host    string `json:"host,omitempty"` // the host that requests must have; empty for any host
	Method  string `json:"method"`         // * for any method
	Pattern string `json:"pattern"`        // below the app's prefix
	Handler string `json:"handler,omitempty"`
}

// Routes returns the routes of the program without opening anything. It calls
// the functions of Routes with zero values for parameters that need a
// constructor. That is enough for a method value, as in r.Get("/", h.Home) with
// a nil h. If a function needs more, the error names it; the running program has
// the complete list.
func (p *Plan) Routes() ([]Route, error) {
	all := []Route{}
	for _, a := range p.Program.Runs {
		routes, err := p.routesOf(a)
		if err != nil {
			return nil, err
		}
		if err := p.Reachable(a.Name, routes); err != nil {
			return nil, err
		}
		all = append(all, p.Listed(a.Name, routes)...)
	}
	return all, nil
}

// Listed returns the routes of an app as its clients see them.
func (p *Plan) Listed(name string, routes []router.Route) (all []Route) {
	app := p.Config.Apps[name]
	for _, r := range routes {
		all = append(all, Route{App: name, Host: app.Host, Method: r.Method, Pattern: app.Prefix + r.Pattern, Handler: r.Handler})
	}
	return all
}

// Reachable returns an error for a route of an app that no request can reach,
// because another app of the same address and host has the prefix of its path.
func (p *Plan) Reachable(name string, routes []router.Route) error {
	app := p.Config.Apps[name]
	for _, other := range p.Program.Runs {
		o := p.Config.Apps[other.Name]
		if o.Addr != app.Addr || o.Host != app.Host || len(o.Prefix) <= len(app.Prefix) || !p.Program.Listens(other.Name) {
			continue
		}
		for _, r := range routes {
			if path := app.Prefix + r.Pattern; strings.HasPrefix(path+"/", o.Prefix+"/") {
				return p.hidden(name, other.Name, r.Method+" "+path, r.Site)
			}
		}
	}
	return nil
}

func (p *Plan) hidden(app, other, route, site string) error {
	key := "apps." + other + ".prefix"
	return &failure.Failure{
		Code: "boot.route_conflict", Exit: failure.ExitInternal,
		Text:    fmt.Sprintf("A route of the app %q cannot be reached.", app),
		Cause:   fmt.Errorf("the app %q receives all requests for %s and paths below it", other, p.Config.Apps[other].Prefix),
		Facts:   []failure.Fact{{Name: "route", Value: route + " at " + site}, failure.Setting(p.Config, key)},
		Actions: []string{"Remove the route, or change its pattern", "Use another prefix: " + failure.Set(p.Config, key, p.Config.Apps[other].Prefix+"2")},
	}
}

func (p *Plan) routesOf(a *Part) ([]router.Route, error) {
	info := p.AppInfo(a.Name, nil)
	known := map[reflect.Type]reflect.Value{
		reflect.TypeOf(info):            reflect.ValueOf(info),
		reflect.TypeFor[*slog.Logger](): reflect.ValueOf(slog.New(slog.DiscardHandler)),
	}
	for _, s := range slices.Concat(p.Program.Shared.Sections, a.Sections) {
		if v, ok := p.Config.Section(a.Name, s.Name); ok {
			known[s.Type] = reflect.ValueOf(v)
		}
	}
	router := router.New(&request.Host{App: request.App(info)})
	for _, f := range p.Program.Served(a).Routes {
		add := func() error { return f.Unbound(known).AddRoutes(router) }
		if err := p.awaitReturn(f, a.Name, add); err != nil {
			return nil, unlisted(f, err)
		}
	}
	return router.Routes(), nil
}

// awaitReturn calls a function of Routes of an app, with the timeout that it has at a
// start. A function that hangs is left running.
func (p *Plan) awaitReturn(f Function, app string, call func() error) error {
	done := make(chan error, 1)
	go func() {
		err := fmt.Errorf("%s, %s: the function ended its goroutine (runtime.Goexit) and did not return", f.Declared(), f.Site)
		defer func() { done <- err }()
		err = call()
	}()
	timer := time.NewTimer(p.ReturnBudget())
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return p.Overrun("A function of mega.Routes", f.Place(app))
	}
}

// AddRoutes calls a function of Routes. The router panics on an invalid route;
// AddRoutes returns the panic as an error of the function, unless it is a Failure.
func (b Bound) AddRoutes(router megactx.Router) (err error) {
	refused := func(cause error) error {
		return &failure.Failure{
			Code: "boot.routes", Exit: failure.ExitInternal, Text: "The routes cannot be used.", Cause: cause,
			Facts: []failure.Fact{{Name: "declared", Value: b.Declared()}, {Name: "given at", Value: b.Site}},
		}
	}
	defer func() {
		switch value := recover().(type) {
		case nil:
		case conflict:
			err = conflicting(value)
		case *failure.Failure: // of a function that the router calls
			err = value
		case error:
			err = refused(value)
		default:
			err = refused(fmt.Errorf("%v", value))
		}
	}()
	if err := ErrorOf(b.Call(router)); err != nil {
		return refused(err)
	}
	return nil
}

// conflict is the panic of a router whose app has the route already.
type conflict interface {
	error
	Code() string
	Places() (first, again string)
}

func conflicting(c conflict) error {
	first, again := c.Places()
	return &failure.Failure{
		Code: c.Code(), Exit: failure.ExitInternal, Text: "Two routes of an app are in conflict.", Cause: c,
		Facts:   []failure.Fact{{Name: "first", Value: first}, {Name: "again", Value: again}},
		Actions: []string{"Remove one of them, or change its pattern"},
	}
}

// unlisted returns the error for a function whose routes cannot be listed:
// either the routes are wrong, or they depend on a value that is not available.
func unlisted(f Function, err error) error {
	var c conflict
	if len(f.Needs()) == 0 || errors.As(err, &c) {
		return err
	}
	return &failure.Failure{
		Code: "boot.routes_unknown", Exit: failure.ExitUnavailable, Cause: cmp.Or(errors.Unwrap(err), err),
		Text:  "The routes cannot be listed before what their function takes is made.",
		Facts: []failure.Fact{{Name: "declared", Value: f.Declared()}, {Name: "given at", Value: f.Site}, {Name: "takes", Value: fmt.Sprint(f.Needs())}},
		Actions: failure.Actions("Ask the running program", "/ops/routes at ops.addr",
			"Take no values apart", "a method of a nil h, as in r.Get(\"/\", h.Home), can be listed"),
	}
}
