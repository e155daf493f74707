package boot

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/console"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock"
)

// lockObserver passes the events of locks to the metrics and the log.
type lockObserver struct {
	log     *logging.LockEvents
	metrics *metrics.Metrics
}

// Observe passes an event on.
func (o lockObserver) Observe(e lock.Event) {
	o.metrics.Observe(e)
	o.log.Observe(e)
}

// counted starts the metrics of the process.
func (b *booting) counted(c *settings.Config) {
	build := ops.NewBuild(c.Name)
	b.metrics = metrics.New(build.Metrics())
	b.pages = ops.NewPages(b.probes, b.metrics, build, c.Env == "dev")
}

// openOps starts the ops listener, so that the boot can be observed, too. If
// another process has the default address, it uses a free port.
func (b *booting) openOps(made *plan.Plan, log *slog.Logger) error {
	if b.process.Offline != nil || b.process.Command != "" {
		return nil
	}
	b.degraded(made.Decisions)
	b.life.endWith(watching, hook{name: "checks", budget: lastWord, run: b.probes.Drain})
	if b.supervised() { // the supervisor has the listener, and calls this process
		return nil
	}
	pages := b.pages.Handler()
	shown := console.New(console.Config{On: made.Config.Ops.Console, Program: made.Config.Name, Pages: pages})
	server, err := ops.Listen(made.Config, shown.Mount(pages), log)
	if err != nil {
		return withApps(b.ctx, made, log, err)
	}
	b.report.Ops = server.URL()
	b.life.endWith(watching, hook{name: "ops", budget: hookBudget, run: func(ctx context.Context) error {
		shown.Close() // ends the streams, for which the server waits
		return server.Drain(ctx)
	}})
	shown.Start()
	server.Serve(b.fail)
	return nil
}

// publish makes the report and the views of the started process available.
func (b *booting) publish() {
	report := b.report
	b.reported.Store(&report)
	for _, p := range report.Phases {
		b.metrics.Boot(p.Name, p.Took)
	}
	b.metrics.Boot("total", report.Took)
	b.pages.Publish(admin.Views(b.operated()))
}

// contain makes a panic of a check its error.
func contain(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return contained(ctx, run) }
}

// registerer returns the registry for the program's own metrics.
func (b *booting) registerer(*settings.Config) prometheus.Registerer { return b.metrics.Registerer() }

// labeled adds the label "app" to the metrics of an app, so that two apps may
// use the same module.
func labeled(app string) func(prometheus.Registerer) prometheus.Registerer {
	return func(r prometheus.Registerer) prometheus.Registerer {
		return prometheus.WrapRegistererWith(prometheus.Labels{"app": app}, r)
	}
}

// served counts one request of an app.
func (b *booting) served(r request.Finished) {
	b.metrics.Served(metrics.Request{App: r.App, Route: r.Route, Method: r.Method, Status: r.Status, Took: r.Took})
}

// degraded registers locks, messages and limits whose scope is this process with
// the probes. Limits that follow the locks are not named again.
func (b *booting) degraded(d plan.Decisions) {
	for _, decision := range d.All() {
		if here := decision.EndsHere(); here != "" {
			b.probes.Degrade(here)
		}
	}
}

// identify returns a function that completes the Holder of a lock with its
// origin: the worker, and either a request of an app or a caller at the admin
// socket.
func (p Process) identify() func(context.Context, *lock.Holder) {
	worker := p.worker()
	return func(ctx context.Context, h *lock.Holder) {
		h.Worker = worker
		identify(ctx, h)
	}
}

func identify(ctx context.Context, h *lock.Holder) {
	if megactx.Identify(ctx, h); h.App == "" { // the lookup costs time at every lock
		admin.Identify(ctx, h)
	}
}
