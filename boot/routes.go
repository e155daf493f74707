package boot

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
)

// Routes returns the routes of the running program, app by app.
func (r *Running) Routes() []Route { return r.b.routes() }

func (b *booting) routes() []Route {
	all := []Route{}
	for _, s := range b.sites {
		all = append(all, s.listed()...)
	}
	return all
}

// ListRoutes returns the routes of the program that options describe, without
// opening anything. It calls the functions of Routes with zero values for
// parameters that need a constructor. That is enough for a method value, as in
// r.Get("/", h.Home) with a nil h. If a function needs more, the error names
// it; the running program has the complete list.
func ListRoutes(p Process, options ...Option) ([]Route, error) {
	program, err := p.program(options)
	if err != nil {
		return nil, err
	}
	c, err := config.Load(p.source(program))
	if err != nil {
		return nil, failureOf(err)
	}
	all := []Route{}
	for _, a := range program.runs {
		routes, err := program.routesOf(a, c)
		if err != nil {
			return nil, err
		}
		s := site{app: a.name, host: c.Apps[a.name].Host, prefix: c.Apps[a.name].Prefix, routes: routes}
		all = append(all, s.listed()...)
	}
	return all, nil
}

func (p *program) routesOf(a *app, c *config.Config) ([]megactx.Route, error) {
	info := megactx.AppInfo{Name: a.name, Env: c.Env, Locales: c.Apps[a.name].Locales, Prefix: c.Apps[a.name].Prefix}
	known := map[reflect.Type]reflect.Value{
		reflect.TypeOf(info):            reflect.ValueOf(info),
		reflect.TypeFor[*slog.Logger](): reflect.ValueOf(slog.New(slog.DiscardHandler)),
	}
	for _, s := range slices.Concat(p.shared.sections, a.sections) {
		if v, ok := c.Section(a.name, s.name); ok {
			known[s.typ] = reflect.ValueOf(v)
		}
	}
	router := megactx.NewRouter(&megactx.Host{App: info})
	for _, f := range p.served(a).routes {
		if err := addRoutes(router, f.unbound(known)); err != nil {
			return nil, f.unlisted(err)
		}
	}
	return router.Routes(), nil
}

// unbound returns the function with the known values, and zero values for all
// other parameters.
func (f function) unbound(known map[reflect.Type]reflect.Value) bound {
	b := bound{function: f}
	for in := range f.value.Type().Ins() {
		value, ok := known[in]
		if !ok && !isArgument(in) {
			value = reflect.Zero(in)
		}
		b.values = append(b.values, value)
	}
	return b
}

// unlisted returns the error for a function whose routes cannot be listed:
// either the routes are wrong, or they depend on a value that is not available.
func (f function) unlisted(err error) error {
	if len(f.needs()) == 0 {
		return err
	}
	return &Failure{
		Code: "boot.routes_unknown", Exit: ExitUnavailable, Cause: failureOf(err).Cause,
		Text:  "The routes cannot be listed before what their function takes is made.",
		Facts: []Fact{{Name: "declared", Value: f.declared()}, {Name: "given at", Value: f.site}, {Name: "takes", Value: fmt.Sprint(f.needs())}},
		Actions: []string{
			"ask the running program:  /ops/routes at ops.addr",
			"take no values apart:     a method of a nil h, as in r.Get(\"/\", h.Home), can be listed",
		},
	}
}
