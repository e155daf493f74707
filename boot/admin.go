package boot

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock/driver"
)

// routes returns the routes of the running program, app by app.
func (b *booting) routes() []plan.Route {
	all := []plan.Route{}
	for _, a := range b.apps.all {
		all = append(all, b.plan.Listed(a.Name, a.Routes)...)
	}
	return all
}

// adminTime is the time that requests at the admin socket get to finish when
// the socket closes.
const adminTime = 2 * time.Second

// operated returns the view of the process that the admin socket serves. It is
// complete when all apps are built.
func (b *booting) operated() admin.Process {
	info, messages, limits := b.locker.Info(), b.bus.Info(), b.limiter.Info()
	routes := b.routes()
	return admin.Process{
		Info: admin.Info{
			Name: b.report.Program, PID: b.report.PID, Main: admin.MainPackage(), Env: b.plan.Config.Env, Apps: b.plan.Program.Running(),
			Driver: info.Name, Scope: info.Scope.String(), Since: b.began, Worker: b.process.worker(), Ops: b.report.Ops, Meets: b.plan.Config.Cluster.Socket,
			Bus:   admin.DriverScope{Driver: messages.Name, Scope: messages.Scope.String()},
			Limit: admin.DriverScope{Driver: limits.Name, Scope: limits.Scope.String()},
		},
		Locks:    b.locker,
		Limits:   b.limiter,
		Bus:      b.bus,
		Boot:     b.seen,
		Config:   func() any { return b.settings() },
		Routes:   func() any { return routes },
		Errors:   func() any { return b.logs.Recent() },
		Reload:   func(context.Context) ([]config.Change, error) { return b.reloadAlone() },
		SetLevel: b.logs.Set,
		Log:      b.log,
	}
}

// reloadAlone reloads the configuration of a process without a supervisor.
// Workers use the files that their supervisor has read.
func (b *booting) reloadAlone() ([]config.Change, error) {
	if b.supervised() {
		return nil, errors.New("reload the configuration of a worker: only its supervisor can")
	}
	return b.reload(nil)
}

// seen returns the boot report, or nil before there is a report.
func (b *booting) seen() any {
	if r := b.reported.Load(); r != nil {
		return r
	}
	return nil
}

// openAdmin opens the admin socket, or in a worker the socket for the
// supervisor.
func (b *booting) openAdmin(ctx context.Context) error {
	folders := admin.Folders(b.process.Environ)
	switch {
	case b.process.Offline != nil:
	case b.supervised():
		socket, err := admin.OpenWorker(b.operated(), b.pages.Handler(), folders)
		warnWithoutSocket(b.log, "no socket for the supervisor: this worker is left out of metrics, pages and verbs", err)
		b.admin = socket
	default:
		socket, err := admin.Open(b.operated(), folders)
		warnWithoutSocket(b.log, noAdmin, err)
		if b.admin = socket; socket != nil {
			b.report.Admin = socket.Path()
		}
		b.warnOfSiblings(ctx, folders)
	}
	return nil
}

// warnOfSiblings warns of other processes of this program if the locks of this one
// end at the process. It follows the opening of the admin socket: if two
// processes start at once, at least one finds the other. Each readiness check
// looks again, so the first process finds the second, and each the other's end.
func (b *booting) warnOfSiblings(ctx context.Context, folders []string) {
	if b.locker.Info().Scope != driver.Process || b.plan.Config.Env == "test" {
		return
	}
	look := func(ctx context.Context) error {
		if all := admin.Siblings(ctx, folders, b.report.Program); len(all) > 0 {
			return errors.New(admin.Separate(all))
		}
		return nil
	}
	if err := look(ctx); err != nil {
		b.report.Lock.Warnings = append(slices.Clip(b.report.Lock.Warnings), err.Error())
	}
	b.probes.AddWarning(ops.Check{Name: "processes", Budget: 2 * time.Second, Run: look})
}

// noAdmin is the warning of a process without an admin socket.
const noAdmin = "no admin socket: this process cannot be changed while it runs"

// warnWithoutSocket logs the error of an admin socket that cannot be opened. It does
// not fail the boot: the process serves without the socket.
func warnWithoutSocket(log *slog.Logger, without string, err error) {
	switch {
	case errors.Is(err, admin.ErrUnsupported):
		log.Debug("no admin socket", "error", err)
	case err != nil:
		log.Warn(without, "error", err)
	}
}

func (b *booting) closeAdmin(ctx context.Context) error {
	if b.admin == nil {
		return nil
	}
	return b.admin.Close(ctx)
}
