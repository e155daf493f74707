package boot

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/fx"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/secrets"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/workers"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// booting is the state of a boot, and later of the running program. The stages
// run one after the other.
type booting struct {
	ctx     context.Context // ends if the program has to stop before it has started
	process Process
	plan    *plan.Plan // nil until it is computed
	current current
	began   time.Time
	over    over

	log  *slog.Logger
	logs *logging.Logs
	veil secrets.Veil // masks secrets in the output of the process

	life       lifecycle
	steps      steps
	command    command
	unfinished atomic.Int32 // the tasks that have not returned

	probes   *ops.Probes
	metrics  *metrics.Metrics
	pages    *ops.Pages
	report   Report
	reported atomic.Pointer[Report] // the report that the running process serves

	line     *workers.Line // nil without a supervisor
	backends selection.Backends
	locker   *lock.Locker
	limiter  *limit.Limiter
	bus      *bus.Bus
	declared []*declared // the subscriptions of the program
	refused  refusal

	apps  apps
	admin *admin.Server // nil if it cannot be opened
}

// over is how the program came to its end.
type over struct {
	once  sync.Once // decides which failure is the cause
	cause error     // of a program that ends itself; nil after Stop
	done  chan struct{}
}

// end records the cause, and reports whether it is the first one.
func (o *over) end(cause error) (first bool) {
	o.once.Do(func() {
		o.cause, first = cause, true
		close(o.done)
	})
	return first
}

// steps are the steps that the second run collects.
type steps struct {
	injected      []step // hooks of the injector
	primary       []step // OnPrimary
	hooks         []step // OnStart and OnStop
	subscriptions []step // Subscribe and Respond
	tasks         []step // Run, Lead and Every
}

// apps are the apps of the program with their servers.
type apps struct {
	all     []listen.App
	hosts   []*request.Host // of the apps, and of what belongs to no app
	servers []*listen.Server
}

func newBooting(ctx context.Context, p Process, began time.Time) *booting {
	ending, end := context.WithCancel(context.Background())
	b := &booting{
		ctx: ctx, process: p, began: began,
		current: current{ending: ending, end: end},
		over:    over{done: make(chan struct{})},
	}
	b.probes = ops.NewProbes(b.veil.Text)
	b.life.took = b.report.Record
	b.life.endWith(locking, hook{name: "cluster", budget: lockTime, run: b.backends.Close}) // after everything that uses it
	b.life.endWith(working, hook{name: "background", budget: longBudget, run: b.apps.background})
	return b
}

// start boots: the injector builds the program and opens its listeners, then
// everything starts in order. After an error the caller has to call unwind.
func (b *booting) start(planned func(workers.Inputs) (*plan.Plan, error)) error {
	if err := b.join(); err != nil {
		return err
	}
	in, err := b.inputs()
	if err != nil {
		return err
	}
	made, err := planned(in)
	if err != nil {
		return err
	}
	b.current.files = cmp.Or(in.Live, made.Files)
	b.follow(made)
	if err := b.process.startable(made); err != nil {
		return err
	}
	if err := b.stays(made.Decisions, made.Config); err != nil {
		return err
	}
	if err := b.build(); err != nil {
		return err
	}
	if err := b.ctx.Err(); err != nil {
		return err
	}
	b.order()
	return b.life.start(b.ctx)
}

// build runs the stages on a goroutine of their own, which a constructor of Fx may end
// (runtime.Goexit): the program would then not even end at a signal.
func (b *booting) build() error {
	built := make(chan error, 1)
	go concluded(b.ctx, func(context.Context) error { return fx.New(b.stages()).Err() }, func(err error) { built <- err })
	return <-built
}

// stages returns the second half of the boot, in which everything is opened.
// The modules run in this order.
func (b *booting) stages() fx.Option {
	stages := []fx.Option{
		b.process.injectorLog(),
		fx.RecoverFromPanics(),
		b.injected(),
		fx.Module("plan", fx.Supply(b.plan, b.plan.Config)),
		fx.Module("open",
			fx.Provide(b.openLog, b.registerer, b.openLock, b.newLocker, b.openLimit, b.newLimiter, b.openBus, b.newBus),
			fx.Invoke(b.openOps, func(*lock.Locker) {}, func(*limit.Limiter) {}, func(*bus.Bus) {}), // the probes come first
		),
		b.sharedStage(),
	}
	if b.process.Command != "" {
		return fx.Options(append(stages, b.commandStage())...)
	}
	for _, a := range b.plan.Program.Runs {
		stages = append(stages, b.appStage(a))
	}
	return fx.Options(append(stages, fx.Module("listen", fx.Invoke(b.listen)))...)
}

// follow makes the boot follow a plan. It opens nothing.
func (b *booting) follow(made *plan.Plan) {
	b.plan = made
	b.current.config.Store(made.Config)
	b.report = made.Report()
	b.veil.Add(made.Config, made.Program.Sections()) // before an error can contain its secrets
	b.counted(made.Config)
}

// order sorts the collected steps: hooks of the injector, OnPrimary, OnStart,
// subscriptions, Run, and finally the listeners and the readiness.
func (b *booting) order() {
	if b.process.Command != "" {
		b.life.steps = append(b.steps.injected, step{start: hook{"processes", hookBudget, b.lookForSiblings}})
		return
	}
	s := &b.steps
	b.unfinished.Store(int32(len(s.tasks)))
	b.life.steps = slices.Concat(s.injected, s.primary, s.hooks, s.subscriptions, s.tasks, b.serves())
}

// sharedStage returns the options that all apps share.
func (b *booting) sharedStage() fx.Option {
	shared := b.plan.Program.Shared
	clients := &caches{booting: b}
	options := append(b.provided("", &shared), clients.provide(&shared)...)
	options = append(options, opaque(&shared)...)
	if b.process.Command != "" {
		shared.Messages = nil
	}
	if len(shared.Hooks)+len(shared.Messages) > 0 {
		calls := append([]fx.Option{fx.Provide(fx.Private, b.sharedHost)}, b.bindHooks(shared.Hooks)...)
		options = append(options, fx.Module("shared", append(calls, b.bindMessages(shared.Messages)...)...))
	}
	return fx.Options(options...)
}

// sharedHost returns the host of hooks and subscriptions that do not belong to
// an app.
func (b *booting) sharedHost(c *settings.Config, log *slog.Logger, l *lock.Locker, limits *limit.Limiter, messages *bus.Bus) *request.Host {
	host := &request.Host{App: request.App{Env: c.Env}, Log: log, Locker: l, Limiter: limits, Bus: messages}
	b.apps.hosts = append(b.apps.hosts, host)
	return host
}

// commandStage returns the module of the app that has the command. It contains
// the command and the values that it takes, and nothing that serves.
func (b *booting) commandStage() fx.Option {
	i := slices.IndexFunc(b.plan.Program.Runs, b.has)
	if i < 0 {
		return fx.Options() // the command is a shared one
	}
	only := *b.plan.Program.Runs[i]
	only.Messages = nil
	building := &building{booting: b, name: only.Name, part: b.plan.Program.Served(&only)}
	return fx.Module("app."+only.Name, slices.Concat(b.base(building), b.provided(only.Name, &only), opaque(&only), b.bindHooks(only.Hooks))...)
}

// base returns the values that the framework provides to an app.
func (b *booting) base(a *building) []fx.Option {
	return []fx.Option{
		fx.Decorate(func(log *slog.Logger) *slog.Logger { return b.logs.App(a.name, log) }, labeled(a.name)),
		fx.Provide(fx.Private, a.texts, a.info, a.newHost),
	}
}

// appStage returns the module of one app: its private values, its routes and
// hooks.
func (b *booting) appStage(a *plan.Part) fx.Option {
	served := b.plan.Program.Served(a)
	building := &building{booting: b, name: a.Name, part: served}
	building.readFromDisk()
	options := b.base(building)
	options = append(options, b.provided(a.Name, a)...)
	options = append(options, opaque(a)...)
	for _, f := range served.Uses {
		options = append(options, fx.Invoke(f.Invocation(building.use)))
	}
	for _, f := range served.Routes {
		options = append(options, fx.Invoke(f.Invocation(building.route)))
	}
	options = append(options, b.bindHooks(a.Hooks)...)
	options = append(options, b.bindMessages(a.Messages)...)
	options = append(options, fx.Invoke(building.finish))
	return fx.Module("app."+a.Name, options...)
}
