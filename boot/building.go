package boot

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"reflect"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	"github.com/megaframework/mega/internal/variable"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// building is an app under construction.
type building struct {
	*booting
	name   string
	part   plan.Part
	live   bool // its files are read from disk
	wraps  []func(megactx.Handler) megactx.Handler
	std    []func(http.Handler) http.Handler
	routes []plan.Bound

	stdPlaces []failure.Fact // of the functions in std
}

// readFromDisk makes the app read its embedded files from disk, under mega dev:
// after a change it needs neither a build nor a restart. It reports the paths to
// mega dev.
func (a *building) readFromDisk() {
	report := variable.Get(a.process.Environ, "MEGA_RUN_DEV")
	if report == "" || a.plan.Config.Env != "dev" {
		return
	}
	part, paths := a.part.OnDisk()
	f, err := os.OpenFile(report, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return // without mega dev the files stay embedded
	}
	defer func() { _ = f.Close() }() // each line is one write
	for _, path := range paths {
		if _, err := fmt.Fprintln(f, path); err != nil {
			return
		}
	}
	a.part, a.live = part, true
}

func (a *building) texts(p *plan.Plan) (*locale.Texts, error) { return p.Texts(a.part) }

func (a *building) info(p *plan.Plan, l *locale.Texts) megactx.AppInfo { return p.AppInfo(a.name, l) }

func (a *building) newHost(p *plan.Plan, info megactx.AppInfo, log *slog.Logger, l *lock.Locker, limits *limit.Limiter, messages *bus.Bus, texts *locale.Texts) (*request.Host, error) {
	var refresh func() (*request.Files, error)
	if a.live {
		refresh = p.Fresh(a.part) // first, so that it notices a change during the next line
	}
	host, err := p.Host(a.part, info, texts)
	if err != nil {
		return nil, err
	}
	if info.Env == "dev" {
		if err := p.CheckViews(a.part); err != nil {
			return nil, err
		}
	}
	host.Log, host.Locker, host.Limiter, host.Bus, host.Served, host.Refresh, host.Mask = log, l, limits, messages, a.served, refresh, a.veil.Text
	a.metrics.App(a.name, host.InFlight)
	a.apps.hosts = append(a.apps.hosts, host)
	return host, nil
}

// use adds the middleware of a Use option, which wraps all handlers of the app.
func (a *building) use(f plan.Bound) {
	if f.Takes() == reflect.TypeFor[http.Handler]() {
		a.stdPlaces = append(a.stdPlaces, f.Place(a.name)...)
		a.std = append(a.std, func(next http.Handler) http.Handler {
			h, _ := reflect.TypeAssert[http.Handler](f.Call(next)[0]) // the router refuses nil
			return h
		})
		return
	}
	a.wraps = append(a.wraps, func(next megactx.Handler) megactx.Handler {
		return f.Call(next)[0].Interface().(megactx.Handler)
	})
}

func (a *building) route(f plan.Bound) { a.routes = append(a.routes, f) }

// finish builds the app's handler.
func (a *building) finish(host *request.Host) error {
	router := router.New(host, a.wraps...)
	for _, wrap := range a.std {
		router.UseStd(wrap)
	}
	for _, f := range a.routes {
		add := func(context.Context) error { return f.AddRoutes(router) }
		if err := a.awaitReturn("A function of mega.Routes", f.Place(host.App.Name), add); err != nil {
			return err
		}
	}
	if len(a.std) > 0 { // without a route, the router calls them now
		complete := func(context.Context) error { router.Handler(); return nil }
		if err := a.awaitReturn("A function of mega.Use", a.stdPlaces, complete); err != nil {
			return err
		}
	}
	if err := a.plan.Reachable(a.name, router.Routes()); err != nil {
		return err
	}
	app := a.plan.Config.Apps[a.name]
	a.apps.all = append(a.apps.all, listen.App{
		Name: a.name, Addr: string(app.Addr), Host: app.Host, Prefix: app.Prefix,
		Routes: router.Routes(), Context: host, Handler: router.Handler(),
	})
	return nil
}
