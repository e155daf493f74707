package boot

import (
	"context"
	"net/http"

	"github.com/megaframework/mega/bus"
	busdriver "github.com/megaframework/mega/bus/driver"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// Offline runs a program without sockets, for a test kit. Nothing listens, and
// there is no admin socket; requests go to [Running.Handler]. All else is the
// same as in the program itself.
type Offline struct {
	// Lock is the driver of locks. It takes precedence over the configuration
	// and the apps. Default: a driver in memory.
	Lock driver.Driver
	// Bus is the driver of messages, likewise. Default: the configured driver.
	Bus busdriver.Driver
	// Left, if it is not nil, is called at the end of the program with the keys of
	// the leases that are still held when all work has ended.
	Left func(held []string)
}

func (o *Offline) lock() plan.Decision {
	if o.Lock == nil {
		return byCaller("lock", "memory", driver.Process.String())
	}
	info := o.Lock.Info()
	return byCaller("lock", info.Name, info.Scope.String())
}

func (o *Offline) bus() plan.Decision {
	info := o.Bus.Info()
	return byCaller("bus", info.Name, info.Scope.String())
}

func byCaller(component, name, scope string) plan.Decision {
	return plan.Decision{Component: component, Chosen: name, Scope: scope, Why: "it was given to the boot", Origin: "its caller"}
}

// placed replaces the step of the listeners in a program without listeners.
func (b *booting) placed() {
	for _, a := range b.apps.all {
		b.report.Apps = append(b.report.Apps, plan.Served{App: a.Name})
	}
}

// Handler returns the handler of the named app, without its prefix, and reports
// whether there is such an app.
func (r *Running) Handler(app string) (http.Handler, bool) {
	a, ok := r.b.apps.find(app)
	return a.Handler, ok
}

// Ctx returns a Ctx of the named app for work outside a request, and reports
// whether there is such an app.
func (r *Running) Ctx(ctx context.Context, app string) (*megactx.Ctx, bool) {
	a, ok := r.b.apps.find(app)
	if !ok {
		return nil, false
	}
	return megactx.From(a.Context.Context(ctx))
}

// Bus returns the bus of the program.
func (r *Running) Bus() *bus.Bus { return r.b.bus }

// Locks returns the Locker of the program.
func (r *Running) Locks() *lock.Locker { return r.b.locker }

// Limits returns the Limiter of the program.
func (r *Running) Limits() *limit.Limiter { return r.b.limiter }

// find returns the named app, and reports whether there is such an app.
func (a *apps) find(name string) (listen.App, bool) {
	for _, app := range a.all {
		if app.Name == name {
			return app, true
		}
	}
	return listen.App{}, false
}
