package boot

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
)

// Routes returns the routes of the running program, app by app.
func (r *Running) Routes() []Route { return r.b.routes() }

func (b *booting) routes() []Route {
	all := []Route{}
	for _, a := range b.apps {
		all = append(all, listed(a)...)
	}
	return all
}

// ListRoutes returns the routes of the program of a plan, without
// opening anything. It calls the functions of Routes with zero values for
// parameters that need a constructor. That is enough for a method value, as in
// r.Get("/", h.Home) with a nil h. If a function needs more, the error names
// it; the running program has the complete list.
func ListRoutes(of *plan.Plan) ([]Route, error) {
	program, c := of.Program, of.Config
	all := []Route{}
	for _, a := range program.Runs {
		routes, err := routesOf(program, a, c)
		if err != nil {
			return nil, err
		}
		app := c.Apps[a.Name]
		all = append(all, listed(listen.App{Name: a.Name, Host: app.Host, Prefix: app.Prefix, Routes: routes})...)
	}
	return all, nil
}

func routesOf(p *plan.Program, a *plan.Part, c *config.Config) ([]megactx.Route, error) {
	info := megactx.AppInfo{Name: a.Name, Env: c.Env, Locales: c.Apps[a.Name].Locales, Prefix: c.Apps[a.Name].Prefix}
	known := map[reflect.Type]reflect.Value{
		reflect.TypeOf(info):            reflect.ValueOf(info),
		reflect.TypeFor[*slog.Logger](): reflect.ValueOf(slog.New(slog.DiscardHandler)),
	}
	for _, s := range slices.Concat(p.Shared.Sections, a.Sections) {
		if v, ok := c.Section(a.Name, s.Name); ok {
			known[s.Type] = reflect.ValueOf(v)
		}
	}
	router := megactx.NewRouter(&megactx.Host{App: info})
	for _, f := range p.Served(a).Routes {
		if err := addRoutes(router, f.Unbound(known)); err != nil {
			return nil, unlisted(f, err)
		}
	}
	return router.Routes(), nil
}

// unlisted returns the error for a function whose routes cannot be listed:
// either the routes are wrong, or they depend on a value that is not available.
func unlisted(f plan.Function, err error) error {
	if len(f.Needs()) == 0 {
		return err
	}
	return &Failure{
		Code: "boot.routes_unknown", Exit: ExitUnavailable, Cause: failureOf(err).Cause,
		Text:  "The routes cannot be listed before what their function takes is made.",
		Facts: []Fact{{Name: "declared", Value: f.Declared()}, {Name: "given at", Value: f.Site}, {Name: "takes", Value: fmt.Sprint(f.Needs())}},
		Actions: []string{
			"ask the running program:  /ops/routes at ops.addr",
			"take no values apart:     a method of a nil h, as in r.Get(\"/\", h.Home), can be listed",
		},
	}
}
