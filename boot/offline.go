package boot

import (
	"context"
	"net/http"

	"github.com/megaframework/mega/bus"
	busdriver "github.com/megaframework/mega/bus/driver"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// Offline is a program without sockets, as a test kit runs it: nothing listens
// and nothing is operated from outside, and requests are made of
// [Running.Handler]. All else is as in the program itself.
type Offline struct {
	// Lock keeps the locks, whatever the configuration and the apps ask for.
	Lock driver.Driver
	// Bus carries the messages, likewise. Default: what the configuration says.
	Bus busdriver.Driver
}

func (o *Offline) lock() Decision {
	info := o.Lock.Info()
	return byCaller("lock", info.Name, info.Scope.String())
}

func (o *Offline) bus() Decision {
	info := o.Bus.Info()
	return byCaller("bus", info.Name, info.Scope.String())
}

func byCaller(component, name, scope string) Decision {
	return Decision{Component: component, Chosen: name, Scope: scope, Why: "it was given to the boot", Origin: "its caller"}
}

// placed is the step of the listeners in a program without any.
func (b *booting) placed() {
	for _, s := range b.sites {
		b.report.Apps = append(b.report.Apps, Served{App: s.app})
	}
}

// Handler returns what serves the app of that name, its prefix left out.
func (r *Running) Handler(app string) (http.Handler, bool) {
	s, ok := r.b.site(app)
	return s.handler, ok
}

// Ctx returns a Ctx of the app of that name for work outside a request.
func (r *Running) Ctx(ctx context.Context, app string) (*megactx.Ctx, bool) {
	s, ok := r.b.site(app)
	if !ok {
		return nil, false
	}
	return s.context.New(ctx), true
}

// Bus is the bus of the program.
func (r *Running) Bus() *bus.Bus { return r.b.bus }

// Locks is the Locker of the program.
func (r *Running) Locks() *lock.Locker { return r.b.locker }

func (b *booting) site(app string) (site, bool) {
	for _, s := range b.sites {
		if s.app == app {
			return s, true
		}
	}
	return site{}, false
}
