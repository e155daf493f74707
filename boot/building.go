package boot

import (
	"fmt"
	"log/slog"
	"net/http"
	"reflect"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock"
)

// building is an app under construction.
type building struct {
	*booting
	name   string
	part   plan.Part
	wraps  []func(megactx.Handler) megactx.Handler
	std    []func(http.Handler) http.Handler
	routes []plan.Bound
}

// speaks returns the app's texts, or nil if the app has none.
func (a *building) speaks(c *config.Config) (*locale.Texts, error) {
	if len(a.part.Locales) == 0 {
		return nil, nil
	}
	l, err := locale.Parse(c.Apps[a.name].Locales, a.part.Locales...)
	if err != nil {
		return nil, a.failure("boot.locales", "Its texts cannot be used.", err)
	}
	return l, nil
}

func (a *building) info(c *config.Config, l *locale.Texts) megactx.AppInfo {
	app := c.Apps[a.name]
	if l != nil {
		app.Locales = l.Names()
	}
	return megactx.AppInfo{Name: a.name, Env: c.Env, Locales: app.Locales, Prefix: app.Prefix}
}

func (a *building) newHost(info megactx.AppInfo, log *slog.Logger, l *lock.Locker, messages *bus.Bus, texts *locale.Texts) (*megactx.Host, error) {
	views, err := megactx.ParseViews(a.part.Views...)
	if err != nil {
		return nil, a.failure("boot.views", "Its pages cannot be used.", err)
	}
	public, err := megactx.ReadPublic(a.part.Public...)
	if err != nil {
		return nil, a.failure("boot.public", "Its public files cannot be read.", err)
	}
	host := &megactx.Host{App: info, Log: log, Locker: l, Bus: messages, Views: views, Public: public, Locales: texts}
	host.Served = a.served
	a.metrics.App(a.name, host.InFlight)
	a.hosts = append(a.hosts, host)
	return host, host.SetLimits(limitsOf(a.plan.Config.Apps[a.name]))
}

func limitsOf(app config.App) megactx.Limits {
	return megactx.Limits{Body: int64(app.BodyLimit), Timeout: app.Timeout, Origins: app.TrustedOrigins}
}

func (a *building) failure(code, text string, err error) error {
	return &Failure{Code: code, Exit: ExitInternal, Text: fmt.Sprintf("The app %q cannot be put together. %s", a.name, text), Cause: err}
}

// use adds the middleware of a Use option, which wraps all handlers of the app.
func (a *building) use(f plan.Bound) {
	if f.Takes() == reflect.TypeFor[http.Handler]() {
		a.std = append(a.std, func(next http.Handler) http.Handler { return f.Call(next)[0].Interface().(http.Handler) })
		return
	}
	a.wraps = append(a.wraps, func(next megactx.Handler) megactx.Handler {
		return f.Call(next)[0].Interface().(megactx.Handler)
	})
}

func (a *building) route(f plan.Bound) { a.routes = append(a.routes, f) }

// finish builds the app's handler.
func (a *building) finish(host *megactx.Host) error {
	router := megactx.NewRouter(host, a.wraps...)
	for _, wrap := range a.std {
		router.UseStd(wrap)
	}
	for _, f := range a.routes {
		if err := addRoutes(router, f); err != nil {
			return err
		}
	}
	app := a.plan.Config.Apps[a.name]
	a.apps = append(a.apps, listen.App{
		Name: a.name, Addr: string(app.Addr), Host: app.Host, Prefix: app.Prefix,
		Routes: router.Routes(), Context: host, Handler: router.Handler(),
	})
	return nil
}

// addRoutes calls a function of Routes. The router panics on an invalid route;
// addRoutes returns the panic as an error of the function.
func addRoutes(router megactx.Router, f plan.Bound) (err error) {
	refused := func(cause error) error {
		return &Failure{
			Code: "boot.routes", Exit: ExitInternal, Text: "The routes cannot be used.", Cause: cause,
			Facts: []Fact{{Name: "declared", Value: f.Declared()}, {Name: "given at", Value: f.Site}},
		}
	}
	defer func() {
		if value := recover(); value != nil {
			err = refused(fmt.Errorf("%v", value))
		}
	}()
	if err := plan.ErrorOf(f.Call(router)); err != nil {
		return refused(err)
	}
	return nil
}
