package boot

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// frameworkTypes are the values that every function may take.
func frameworkTypes() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[*slog.Logger](), reflect.TypeFor[*lock.Locker](), reflect.TypeFor[*bus.Bus](), clientType(), reflect.TypeFor[Caches](),
		reflect.TypeFor[prometheus.Registerer](),
	}
}

// appTypes are those that functions inside an app may take, too.
func appTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[megactx.AppInfo]()} }

// booting is a boot under way, and later what it came to. The stages run one
// after the other on one goroutine.
type booting struct {
	ctx     context.Context // ends when the program is to stop before it has started
	process Process
	program *program
	began   time.Time
	failed  chan error

	config  *config.Config
	log     *slog.Logger
	logs    *logs
	veil    veil // masks what the process says of its configuration
	life    lifecycle
	probes  *probes
	metrics *metrics.Metrics
	lookout *lookout
	caches  *caches
	locker  *lock.Locker
	bus     *bus.Bus
	hosts   []*megactx.Host
	sites   []site
	servers []*server
	admin   *admin.Server // nil where it cannot be had
	member  *membership   // nil where there is no supervisor
	party   party         // of locks and messages of the driver cluster
	report  Report
	told    atomic.Pointer[Report] // for those who ask while the process runs

	reloading sync.Mutex                    // held while the configuration is read again
	inForce   atomic.Pointer[config.Config] // config, with what has changed since

	// The steps, until they are in order.
	injections []step // hooks of the injector
	first      []step // OnPrimary
	hooks      []step // OnStart and OnStop
	listeners  []step // Subscribe and Respond
	tasks      []step // Run
}

func newBooting(ctx context.Context, p Process, program *program) *booting {
	b := &booting{
		ctx: ctx, process: p, program: program, began: time.Now(),
		failed: make(chan error, 1), probes: newProbes(),
	}
	b.probes.veil = &b.veil
	b.caches = &caches{booting: b}
	b.life.took = b.report.phase
	b.life.endWith(locking, hook{name: "cluster", budget: lockTime, run: b.party.close}) // after all that goes by it
	b.life.endWith(working, hook{name: "background", budget: longBudget, run: b.background})
	return b
}

// start boots: the injector puts the program together and takes its addresses,
// then everything starts in its order. What a failure leaves behind is the
// caller's to end.
func (b *booting) start() error {
	if err := b.join(); err != nil {
		return err
	}
	app := fx.New(b.stages())
	if err := app.Err(); err != nil {
		return err
	}
	if err := b.ctx.Err(); err != nil {
		return err
	}
	b.order()
	return b.life.start(b.ctx)
}

// stages is the whole boot. The order of the modules is the order in which
// they are invoked.
func (b *booting) stages() fx.Option {
	stages := []fx.Option{
		b.process.injectorLog(),
		fx.RecoverFromPanics(),
		b.injected(),
		fx.Module("config", fx.Provide(b.loadConfig, b.openLog, b.registerer)),
		fx.Module("decide", fx.Provide(b.decide), fx.Invoke(func(decisions) {})),
		fx.Module("ops", fx.Invoke(b.openOps)),
		fx.Module("lock", fx.Provide(b.openLock, b.newLocker), fx.Invoke(func(*lock.Locker) {})),
		fx.Module("bus", fx.Provide(b.openBus, b.newBus), fx.Invoke(func(*bus.Bus) {})),
		b.sharedStage(),
	}
	for _, a := range b.program.runs {
		stages = append(stages, b.appStage(a))
	}
	return fx.Options(append(stages, fx.Module("listeners", fx.Invoke(b.listen)))...)
}

// order puts the steps that the stages have collected into the order in which
// they are done: what the injector was given as it is, what only the primary
// does, OnStart, subscriptions, Run, and at last the listeners and the readiness.
func (b *booting) order() {
	b.life.steps = slices.Concat(b.injections, b.first, b.hooks, b.listeners, b.tasks, b.serves())
}

// decide makes every decision before anything is opened.
func (b *booting) decide(c *config.Config) (d decisions, err error) {
	d, err = b.program.decide(c, b.process)
	if err == nil && c.Cluster.Workers > 1 && !b.report.Rehearsed && !b.process.isWorker() && b.process.Offline == nil {
		err = supervisorMissing(c, nil)
	}
	if err == nil {
		err = b.stays(c, d)
	}
	b.report.Lock, b.report.Bus, b.report.LeftOut = d.lock, d.bus, b.program.leftOut()
	return d, err
}

func (b *booting) openLock(c *config.Config, d decisions, log *slog.Logger) (driver.Driver, error) {
	if o := b.process.Offline; o != nil {
		return o.Lock, nil
	}
	defer b.report.phase("lock", time.Now())
	return openLock(b.ctx, c, d.lock, log, &b.party)
}

// lockTime is what leases in use get to be released, once all work is over.
const lockTime = 2 * time.Second

func (b *booting) newLocker(c *config.Config, d driver.Driver, log *slog.Logger) (*lock.Locker, error) {
	l, err := lock.New(d, lock.Config{
		TTL: c.Lock.TTL, Wait: c.Lock.Wait, FIFO: c.Lock.FIFO,
		Observer: observers{lockLog{log}, b.metrics}, Identify: b.process.identify(),
	})
	if err != nil {
		return nil, errors.Join(err, d.Close(b.ctx))
	}
	b.locker = l
	b.metrics.Locker(l)
	b.report.Lock.opened(l.Info())
	b.life.endWith(locking, hook{name: "locks", budget: lockTime, run: l.Close})
	b.dependOnLocks(c, l)
	return l, nil
}

// sharedStage holds what every app may use.
func (b *booting) sharedStage() fx.Option {
	shared := b.program.shared
	options := append(b.provided("", &shared), b.caches.provide(&shared)...)
	options = append(options, shared.fx...)
	if len(shared.hooks)+len(shared.messages) > 0 {
		calls := append([]fx.Option{fx.Provide(fx.Private, b.sharedHost)}, b.bindHooks(shared.hooks)...)
		options = append(options, fx.Module("shared", append(calls, b.bindMessages(shared.messages)...)...))
	}
	return fx.Options(options...)
}

// sharedHost is what hooks and subscriptions run in that belong to no app.
func (b *booting) sharedHost(c *config.Config, log *slog.Logger, l *lock.Locker, messages *bus.Bus) *megactx.Host {
	host := &megactx.Host{App: megactx.AppInfo{Env: c.Env}, Log: log, Locker: l, Bus: messages}
	b.hosts = append(b.hosts, host)
	return host
}

// appStage puts one app together: its private values, its routes and hooks.
func (b *booting) appStage(a *app) fx.Option {
	served := b.program.served(a)
	building := &building{booting: b, name: a.name, part: served}
	options := []fx.Option{
		fx.Decorate(func(log *slog.Logger) *slog.Logger { return b.logs.app(a.name, log) }, labeled(a.name)),
		fx.Provide(fx.Private, building.speaks, building.info, building.newHost),
	}
	options = append(options, b.provided(a.name, &a.part)...)
	options = append(options, a.fx...)
	for _, f := range served.uses {
		options = append(options, fx.Invoke(f.invocation(building.use)))
	}
	for _, f := range served.routes {
		options = append(options, fx.Invoke(f.invocation(building.route)))
	}
	options = append(options, b.bindHooks(a.hooks)...)
	options = append(options, b.bindMessages(a.messages)...)
	options = append(options, fx.Invoke(building.finish))
	return fx.Module("app."+a.name, options...)
}
