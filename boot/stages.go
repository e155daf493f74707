package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/fx"

	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// frameworkTypes are the values that every function may take.
func frameworkTypes() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[*slog.Logger](), reflect.TypeFor[*lock.Locker](), reflect.TypeFor[megactx.AppInfo]()}
}

// booting is a boot under way, and later what it came to. The stages run one
// after the other on one goroutine.
type booting struct {
	ctx     context.Context // ends when the program is to stop before it has started
	process Process
	program *program
	began   time.Time
	failed  chan error

	config *config.Config
	log    *slog.Logger
	life   lifecycle
	probes *probes
	tasks  []namedHook
	sites  []site
	report Report
}

// site is an app that waits for its listener.
type site struct {
	app     string
	host    *megactx.Host
	handler http.Handler
}

func newBooting(ctx context.Context, p Process, program *program) *booting {
	return &booting{ctx: ctx, process: p, program: program, began: time.Now(), failed: make(chan error, 1), probes: &probes{}}
}

// stages is the whole boot. The order of the modules is the order in which
// they are invoked.
func (b *booting) stages() fx.Option {
	stages := []fx.Option{
		b.process.injectorLog(),
		fx.RecoverFromPanics(),
		fx.Module("config", fx.Provide(b.loadConfig, b.openLog)),
		fx.Module("decide", fx.Provide(b.decide)),
		fx.Module("lock", fx.Provide(b.openLock, b.newLocker), fx.Invoke(func(*lock.Locker) {})),
		fx.Module("bus", fx.Invoke(openBus)),
		b.sharedStage(),
	}
	for _, a := range b.program.runs {
		stages = append(stages, b.appStage(a))
	}
	return fx.Options(append(stages,
		fx.Module("listeners", fx.Invoke(b.listen)),
		fx.Module("lifecycle", fx.Invoke(func(lc fx.Lifecycle) {
			lc.Append(fx.Hook{OnStart: b.life.start, OnStop: b.life.stop})
		})),
	)...)
}

// decide makes every decision before anything is opened.
func (b *booting) decide(c *config.Config) (d decisions, err error) {
	d, err = b.program.decide(c, b.process)
	b.report.Lock, b.report.Bus = d.lock, d.bus
	return d, err
}

func (b *booting) openLock(c *config.Config, d decisions, log *slog.Logger) (driver.Driver, error) {
	return openLock(b.ctx, c, d.lock, log)
}

// lockTime is what leases in use get to be released, once the requests are
// over.
const lockTime = 2 * time.Second

func (b *booting) newLocker(c *config.Config, d driver.Driver, log *slog.Logger) (*lock.Locker, error) {
	l, err := lock.New(d, lock.Config{
		TTL: c.Lock.TTL, Wait: c.Lock.Wait, FIFO: c.Lock.FIFO,
		Observer: lockLog{log}, Identify: megactx.Identify,
	})
	if err != nil {
		return nil, errors.Join(err, d.Close(b.ctx))
	}
	info := l.Info()
	b.report.Lacks = info.Lacks
	b.report.Lock.Warnings = append(b.report.Lock.Warnings, info.Warnings...)
	b.life.locks = append(b.life.locks, namedHook{name: "locks", budget: 2 * lockTime, stop: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lockTime)
		defer cancel()
		return l.Close(ctx)
	}})
	return l, nil
}

// sharedStage holds what every app may use.
func (b *booting) sharedStage() fx.Option {
	shared := b.program.shared
	options := b.provided(&shared)
	if len(shared.hooks) > 0 {
		host := func(c *config.Config, log *slog.Logger, l *lock.Locker) *megactx.Host {
			return &megactx.Host{App: megactx.AppInfo{Env: c.Env}, Log: log, Locker: l}
		}
		hooks := []fx.Option{fx.Provide(fx.Private, host)}
		options = append(options, fx.Module("shared", append(hooks, b.bindHooks(shared.hooks)...)...))
	}
	return fx.Options(options...)
}

// appStage puts one app together: its private values, its routes and hooks.
func (b *booting) appStage(a *app) fx.Option {
	served := b.program.served(a)
	building := &building{booting: b, name: a.name, part: served}
	options := []fx.Option{
		fx.Decorate(func(log *slog.Logger) *slog.Logger { return log.With("app", a.name) }),
		fx.Provide(fx.Private, building.info, building.newHost),
	}
	options = append(options, b.provided(&a.part)...)
	for _, f := range served.uses {
		options = append(options, fx.Invoke(f.invocation(building.use)))
	}
	for _, f := range served.routes {
		options = append(options, fx.Invoke(f.invocation(building.route)))
	}
	options = append(options, b.bindHooks(a.hooks)...)
	options = append(options, fx.Invoke(building.finish))
	return fx.Module("app."+a.name, options...)
}

// provided makes a part's constructors and sections known to the injector. Those
// of an app are private to it.
func (b *booting) provided(p *part) (options []fx.Option) {
	private := p != &b.program.shared
	provide := func(constructor any) {
		if private {
			options = append(options, fx.Provide(fx.Private, constructor))
			return
		}
		options = append(options, fx.Provide(constructor))
	}
	for _, s := range p.sections {
		provide(b.section(s))
	}
	for _, f := range p.provides {
		provide(b.constructor(f))
	}
	return options
}

// section returns a constructor of a section's value.
func (b *booting) section(s sectionOption) any {
	t := reflect.FuncOf([]reflect.Type{reflect.TypeFor[*config.Config]()}, []reflect.Type{s.typ}, false)
	return reflect.MakeFunc(t, func(in []reflect.Value) []reflect.Value {
		v, ok := in[0].Interface().(*config.Config).Section("", s.name)
		if !ok { // every section of the program was given to Load
			panic("no section " + s.name)
		}
		return []reflect.Value{reflect.ValueOf(v)}
	}).Interface()
}

// constructor wraps a constructor so that its failure says where it is, and
// what it makes is closed in the end.
func (b *booting) constructor(f function) any {
	made, failure := f.makes(), reflect.TypeFor[error]()
	t := reflect.FuncOf(f.needs(), append(slices.Clip(made), failure), false)
	return reflect.MakeFunc(t, func(in []reflect.Value) []reflect.Value {
		out, err := construct(f, in)
		if err == nil {
			b.closeLater(out)
			return append(out, reflect.Zero(failure))
		}
		for _, t := range made {
			out = append(out, reflect.Zero(t))
		}
		return append(out, reflect.ValueOf(&err).Elem())
	}).Interface()
}

func construct(f function, in []reflect.Value) (values []reflect.Value, err error) {
	facts := []Fact{{"constructor", f.declared()}, {"provided at", f.site}}
	defer func() {
		if value := recover(); value != nil {
			values, err = nil, &Failure{
				Code: "boot.constructor_panicked", Exit: ExitInternal, Text: "A constructor panicked.", Cause: panicked(value), Facts: facts,
			}
		}
	}()
	out := f.value.Call(in)
	if len(out) == len(f.makes()) {
		return out, nil
	}
	values = out[:len(out)-1]
	if cause := errorOf(out); cause != nil {
		return nil, &Failure{
			Code: "boot.constructor_failed", Exit: ExitUnavailable, Text: "Something that the program needs cannot be had.", Cause: cause, Facts: facts,
		}
	}
	return values, nil
}

// closeLater has the values that can be closed closed in the end.
func (b *booting) closeLater(values []reflect.Value) {
	for _, v := range values {
		if stop, ok := closer(v.Interface()); ok {
			b.life.values = append(b.life.values, namedHook{name: "close " + v.Type().String(), stop: stop, budget: budget})
		}
	}
}

// bindHooks gives the hooks their values, and their place in the lifecycle.
func (b *booting) bindHooks(hooks []hookOption) (options []fx.Option) {
	for _, h := range hooks {
		var have bound
		options = append(options,
			fx.Invoke(h.fn.invocation(func(f bound) { have = f })),
			fx.Invoke(func(host *megactx.Host) { b.hook(h, have, host) }),
		)
	}
	return options
}

func (b *booting) hook(h hookOption, f bound, host *megactx.Host) {
	run := func(ctx context.Context) error { return f.run(ctx, host) }
	switch h.kind {
	case onStart:
		b.life.hooks = append(b.life.hooks, namedHook{name: h.name, start: run})
	case onStop:
		b.life.hooks = append(b.life.hooks, namedHook{name: h.name, stop: run, budget: budget})
	case onReady:
		b.probes.checks = append(b.probes.checks, check{h.name, run})
	case onRun:
		b.tasks = append(b.tasks, b.task(h.name, run))
	}
}

// task is a hook around a function that runs until it is told to end.
func (b *booting) task(name string, run func(context.Context) error) namedHook {
	var cancel context.CancelFunc
	done := make(chan struct{})
	return namedHook{name: name, budget: budget,
		start: func(ctx context.Context) error {
			ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
			go func() {
				defer close(done)
				if err := contained(ctx, run); err != nil && ctx.Err() == nil {
					b.fail(fmt.Errorf("run %q: %w", name, err))
				}
			}()
			return nil
		},
		stop: func(ctx context.Context) error {
			cancel()
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
}

// listen takes every address before any app serves, so that a program serves
// whole or not at all.
func (b *booting) listen(c *config.Config) error {
	ops, err := b.listenOps(c)
	if err != nil {
		return err
	}
	b.report.Ops = ops.url()
	var apps []*server
	for _, s := range b.sites {
		key := "apps." + s.app + ".addr"
		addr := string(c.Apps[s.app].Addr)
		server, err := newServer(s.app, addr, s.host, s.handler, b.log)
		if err != nil {
			return listenFailure(c, key, addr, err)
		}
		b.abandonable(server)
		apps = append(apps, server)
		b.report.Apps = append(b.report.Apps, Served{App: s.app, URL: server.url()})
	}
	b.life.hooks = append(b.life.hooks, b.tasks...)
	b.life.hooks = append(b.life.hooks, b.serving("ops", c, []*server{ops}), b.serving("listeners", c, apps), namedHook{
		name: "readiness", start: func(context.Context) error { b.probes.serving.Store(true); return nil },
	})
	return nil
}

// listenOps takes the address for probes. The default one gives way to another
// process that has it.
func (b *booting) listenOps(c *config.Config) (*server, error) {
	addr := string(c.Ops.Addr)
	ops, err := newServer("ops", addr, nil, b.probes.handler(), b.log)
	if errors.Is(err, syscall.EADDRINUSE) && c.Origin("ops.addr").IsDefault() {
		ops, err = newServer("ops", "127.0.0.1:0", nil, b.probes.handler(), b.log)
	}
	if err != nil {
		return nil, listenFailure(c, "ops.addr", addr, err)
	}
	b.abandonable(ops)
	return ops, nil
}

// abandonable has a listener closed that never comes to serve.
func (b *booting) abandonable(s *server) {
	b.life.values = append(b.life.values, namedHook{name: "listener " + s.name, budget: budget, stop: func(context.Context) error {
		s.close()
		return nil
	}})
}

// serving is the hook of servers that begin and end together.
func (b *booting) serving(name string, c *config.Config, servers []*server) namedHook {
	return namedHook{name: name, budget: c.Shutdown.Timeout + budget,
		start: func(context.Context) error {
			for _, s := range servers {
				s.serve(b.fail)
			}
			return nil
		},
		stop: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, c.Shutdown.Timeout)
			defer cancel()
			errs := make([]error, len(servers))
			var wg sync.WaitGroup
			for i, s := range servers {
				wg.Go(func() { errs[i] = s.drain(ctx) })
			}
			wg.Wait()
			return errors.Join(errs...)
		},
	}
}
