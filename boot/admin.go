package boot

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/admin"
)

// Route is a route of an app, where a client finds it.
type Route struct {
	App     string `json:"app"`
	Host    string `json:"host,omitempty"` // what a request has to be for; empty for any
	Method  string `json:"method"`         // * for every one
	Pattern string `json:"pattern"`        // below the app's prefix
	Handler string `json:"handler,omitempty"`
}

func (s site) listed() (all []Route) {
	for _, r := range s.routes {
		all = append(all, Route{App: s.app, Host: s.host, Method: r.Method, Pattern: s.prefix + r.Pattern, Handler: r.Handler})
	}
	return all
}

// adminTime is what a request at the admin socket gets to be finished, in the
// end.
const adminTime = 2 * time.Second

// operated is the process for whoever operates it. It is complete when the apps
// are put together.
func (b *booting) operated() admin.Process {
	info, messages := b.locker.Info(), b.bus.Info()
	routes := b.routes()
	return admin.Process{
		Info: admin.Info{
			Name: b.report.Program, PID: b.report.PID, Env: b.config.Env, Apps: b.program.running(),
			Driver: info.Name, Scope: info.Scope.String(), Since: b.began, Worker: b.process.worker(), Meets: b.config.Cluster.Socket,
			Bus: admin.Reach{Driver: messages.Name, Scope: messages.Scope.String()},
		},
		Locks:    b.locker,
		Bus:      b.bus,
		Boot:     b.seen,
		Config:   func() any { return b.settings() },
		Routes:   func() any { return routes },
		Reload:   func(context.Context) ([]admin.Change, error) { return changed(b.reloadAlone()) },
		SetLevel: b.logs.set,
		Log:      b.log,
	}
}

// reloadAlone reloads a process without a supervisor. Workers go by the files that
// their supervisor has read.
func (b *booting) reloadAlone() ([]config.Change, error) {
	if b.supervised() {
		return nil, errors.New("reload the configuration of a worker: only its supervisor can")
	}
	return b.reload(nil)
}

func changed(changes []config.Change, err error) (all []admin.Change, _ error) {
	for _, c := range changes {
		all = append(all, admin.Change{Key: c.Key, Old: c.Old, New: c.New, Origin: c.Origin.String(), Live: c.Live})
	}
	return all, err
}

// seen is the report, or nothing before there is one.
func (b *booting) seen() any {
	if r := b.told.Load(); r != nil {
		return r
	}
	return nil
}

// openAdmin opens the admin socket, or that of a worker for its supervisor.
func (b *booting) openAdmin(context.Context) error {
	folders := admin.Folders(b.process.Environ)
	switch {
	case b.process.Offline != nil:
	case b.supervised():
		b.admin = opened(b.log, "no socket for the supervisor: this worker is left out of metrics, pages and verbs")(
			admin.OpenWorker(b.operated(), b.lookout.handler(), folders))
	default:
		if b.admin = opened(b.log, noAdmin)(admin.Open(b.operated(), folders)); b.admin != nil {
			b.report.Admin = b.admin.Path()
		}
	}
	return nil
}

// noAdmin is what a process tells that has no admin socket.
const noAdmin = "no admin socket: this process cannot be changed while it runs"

// opened returns a socket, or nil where it cannot be had. A process without one
// serves all the same, so that this stops no boot: it is told.
func opened(log *slog.Logger, without string) func(*admin.Server, error) *admin.Server {
	return func(s *admin.Server, err error) *admin.Server {
		switch {
		case errors.Is(err, admin.ErrUnsupported):
			log.Debug("no admin socket", "error", err)
		case err != nil:
			log.Warn(without, "error", err)
		}
		return s
	}
}

func (b *booting) closeAdmin(ctx context.Context) error {
	if b.admin == nil {
		return nil
	}
	return b.admin.Close(ctx)
}
