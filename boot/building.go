package boot

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"sync/atomic"

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

	lastStd plan.Bound // of the functions in std

	// A function of Use that was called and has not returned, or nil. The router calls
	// it, mostly when a function of Routes adds a route.
	wrapping atomic.Pointer[plan.Bound]
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
		a.lastStd = f
		a.std = append(a.std, func(next http.Handler) http.Handler { return wrap(a, f, next) })
		return
	}
	a.wraps = append(a.wraps, func(next megactx.Handler) megactx.Handler { return wrap(a, f, next) })
}

// wrap calls a function of Use. It panics with a Failure that names the function if this
// panics or returns nil.
func wrap[H any](a *building, f plan.Bound, next H) H {
	a.wrapping.Store(&f)
	made := a.call(f, next)
	a.wrapping.Store(nil) // not deferred: a function that does not return is named
	if made.IsNil() {
		panic(a.unusable(f, "returned no handler", nil))
	}
	return made.Interface().(H)
}

func (a *building) call(f plan.Bound, next any) reflect.Value {
	defer func() {
		if value := recover(); value != nil {
			a.wrapping.Store(nil)
			panic(a.unusable(f, "panicked", panicked(value)))
		}
	}()
	return f.Call(next)[0]
}

func (a *building) unusable(f plan.Bound, how string, cause error) *Failure {
	return &Failure{Code: "boot.failed", Exit: failure.ExitInternal, Text: "A function of mega." + f.Option + " " + how + ".", Cause: cause, Facts: f.Place(a.name)}
}

// called describes the function that was called when f did not return: f, or the function
// of Use that f was waiting for. That function may return just as its timeout passes.
func (a *building) called(f plan.Bound) called {
	return func() (string, []failure.Fact) {
		if inner := a.wrapping.Load(); inner != nil {
			f = *inner
		}
		return "A function of mega." + f.Option, f.Place(a.name)
	}
}

func (a *building) route(f plan.Bound) { a.routes = append(a.routes, f) }

// complete makes the router call the functions of Use that no route has called.
func complete(r *router.Router) (err error) {
	defer func() {
		switch value := recover().(type) {
		case nil:
		case *Failure: // of wrap
			err = value
		default:
			panic(value)
		}
	}()
	r.Handler()
	return nil
}

// finish builds the app's handler.
func (a *building) finish(host *request.Host) error {
	router := router.New(host, a.wraps...)
	for _, wrap := range a.std {
		router.UseStd(wrap)
	}
	for _, f := range a.routes {
		add := func(context.Context) error { return f.AddRoutes(router) }
		if err := a.awaitReturn(a.called(f), add); err != nil {
			return err
		}
	}
	if len(a.std) > 0 { // without a route, the router calls them now, and no other function
		if err := a.awaitReturn(a.called(a.lastStd), func(context.Context) error { return complete(router) }); err != nil {
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
