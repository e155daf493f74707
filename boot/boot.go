// Package boot starts and stops a program. It reads the configuration and starts
// the drivers, the locks, the bus, the apps and the listeners in that order, and
// stops them in reverse order.
//
// Package mega has the options that describe a program, and starts it from a
// command line. Use package boot directly to run a program inside another one or
// in a test kit (Start, Offline), for a command line of your own (OwnProcess,
// Main), to test a configuration (Plan), or for options of fx (Fx).
//
// The configuration makes every choice. The boot report lists each choice with
// its reason and the key that decided. If a requested service is unavailable,
// the boot fails with a Failure, which names the request, its place in the
// configuration, the cause and the remedy.
//
// # How it works
//
// fx resolves and calls constructors in two runs: one computes the plan, the
// other builds the program from it and opens its resources. The lifecycle then
// starts the steps that the second run has collected. Only this package imports
// fx, and of what a start runs only internal/selection chooses among the drivers.
//
//	boot.go       Start, Main: one start, from the plan to the exit status
//	process.go    what belongs to the process: its environment, its executable, its report
//	planning.go   the first run: program, configuration, decisions
//	stages.go     the second run: log, drivers, apps, listeners
//	  backends.go   the drivers, with lock.Locker and bus.Bus on them
//	  limits.go     the same for limit.Limiter
//	  providing.go  constructors, sections and caches; fx.go the options of fx
//	  building.go   an app: pages, texts, routes
//	  hooks.go      OnStart and the like; primary.go OnPrimary, Lead and Every
//	  messages.go   subscriptions, and what restores them
//	  listening.go  addresses, and the last steps of a start
//	  observe.go    metrics and probes; admin.go the admin socket
//	lifecycle.go  hooks with names and budgets, and the shutdown in phases
//	reload.go     the configuration is read again
//	supervise.go  the supervisor of serve --workers; worker.go the other side
//	command.go    a command instead of the program; offline.go a program for tests
//	failure.go    any error of a boot as a Failure
package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/dig"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/systemd"
	"github.com/megaframework/mega/internal/workers"
)

// Process describes the process that a program runs in.
type Process struct {
	Name    string    // of the program; default: the executable's
	Environ []string  // as from os.Environ
	Stderr  io.Writer // the destination of the report and the log; nil discards them

	Args []string // arguments of the process, with its name first; workers are started with the same

	Dir    string   // the folder where the search for configuration files begins; "" disables the search
	Config string   // the configuration file, or its folder, instead of the search
	Set    []string // key=value, overrides all other sources
	// Flags are the flags that set keys of Set, for errors: cluster.workers by
	// --workers. Other keys were set by --set.
	Flags map[string]string
	Only  []string // the apps to run; empty runs them all
	Trace []string // the parts of the boot to trace: "fx"
	// Verbose makes the boot report list all candidates, settings and slow
	// phases.
	Verbose bool
	JSON    bool // Main writes a failed boot as JSON instead of a panel

	// Each signal of Hangups makes Main reload the configuration. In env dev
	// the signal ends the program instead, since it means a closed terminal.
	// Hangups may be nil.
	Hangups <-chan os.Signal

	// Each signal of Restarts requests a restart of the workers, one after the
	// other. AtSecondSignal registers a function that is called before a second
	// signal ends the process at once. Both may be nil. Both matter only in a
	// process that has workers.
	Restarts       <-chan os.Signal
	AtSecondSignal func(do func())

	// Command is the name of the command that Main runs instead of the program,
	// with the arguments Words. It is empty to serve.
	Command string
	Words   []string

	Offline *Offline // for test kits: the program runs without sockets
}

func (p Process) withDefaults() Process {
	if p.Stderr == nil {
		p.Stderr = io.Discard
	}
	return p
}

// Report describes a boot: in Lock, Bus and Limit the selected drivers with the
// reason and the scope of each, in Apps the apps with their URLs, in Ops the URL of the
// probes, in Set the keys that do not have their default. /ops/boot shows it as
// JSON, the boot report as text.
type Report = plan.Report

// Running is a program that has started.
type Running struct {
	b    *booting
	stop func() error
}

// Start boots the program that options describe. If ctx ends before the program
// has started, or if a part of it fails to start, Start stops the parts that
// have started. After Start returns, the end of ctx has no effect.
func Start(ctx context.Context, p Process, options ...Option) (*Running, error) {
	p = p.withDefaults()
	return start(ctx, p, time.Now(), func(in workers.Inputs) (*plan.Plan, error) { return p.plan(ctx, options, in) })
}

// start boots the program of a plan. A worker can compute its plan only after
// it has joined its supervisor, which keeps the files of the configuration.
func start(ctx context.Context, p Process, began time.Time, planned func(workers.Inputs) (*plan.Plan, error)) (*Running, error) {
	b := newBooting(ctx, p, began)
	if err := b.start(planned); err != nil {
		return nil, b.gaveUp(err, b.unwind())
	}
	b.report.Took = time.Since(b.began)
	if p.Command != "" {
		p.warn(&b.report, b.log)
	} else if !b.supervised() { // for workers, the supervisor writes the report
		p.report(&b.report, b.plan.Config, b.log)
	}
	b.publish() // before the supervisor counts this worker as ready, since it asks for the report then
	b.reportReady()
	return &Running{b, sync.OnceValue(func() error {
		defer b.over.end(nil)
		return b.shutdown()
	})}, nil
}

// stoppedError is the error of a boot that was stopped before it was complete.
type stoppedError struct {
	why  error // the end of its context
	cut  error // shutdown errors; may be nil
	mask func(string) string
}

func (e *stoppedError) Error() string {
	return e.mask(errors.Join(fmt.Errorf("stopped before it had started: %w", e.why), e.cut).Error())
}

func (e *stoppedError) Unwrap() error { return e.why }

// gaveUp returns the error of a failed boot. It includes cut, the errors of the
// parts that could not be stopped.
func (b *booting) gaveUp(err, cut error) error {
	if why := b.ctx.Err(); why != nil && errors.Is(err, why) {
		if errors.Is(err, errStuck) {
			cut = errors.Join(dig.RootCause(err), cut)
		}
		return &stoppedError{why, cut, b.veil.Text}
	}
	f := *b.process.failureOf(err)
	f.Mask = b.veil.Text
	if cut != nil {
		f.Facts = append(slices.Clip(f.Facts), failure.Fact{Name: "left behind", Value: cut.Error()})
	}
	return &f
}

// Report returns the boot report.
func (r *Running) Report() Report { return *r.b.reported.Load() }

// Log returns the logger of the process.
func (r *Running) Log() *slog.Logger { return r.b.log }

// Wait blocks until ctx ends, the program shuts itself down, or Stop has stopped it,
// and returns nil. If the program cannot continue, Wait returns the cause.
func (r *Running) Wait(ctx context.Context) error {
	err := r.until(ctx, nil)
	if _, isAsked := errors.AsType[shutdownError](err); isAsked {
		return nil
	}
	return err
}

// until is like Wait, and also reloads the configuration at each hangup. Its error has
// the exit status with which the program shuts itself down, unless that is 0.
func (r *Running) until(ctx context.Context, hangups <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.b.line.Lost():
			r.b.log.Error("supervisor exited")
			return nil
		case <-r.b.over.done:
			if errors.Is(r.b.over.cause, shutdownError{}) {
				return nil
			}
			return r.b.over.cause
		case <-hangups:
			if r.b.plan.Config.Env == "dev" {
				r.b.log.Info("terminal closed")
				return nil
			}
			r.b.log.Info("configuration reload requested")
			unhook := context.AfterFunc(ctx, r.b.current.end) // reload first waits for a reload at the admin socket
			_, _ = r.b.reload(nil)                            // reload logs its errors
			unhook()
		}
	}
}

// Stop shuts the program down: it reports not ready, accepts no new work,
// finishes the work in flight, closes the locks, and closes the provided
// values, all within shutdown.timeout. It returns the names of the parts that
// were cut off. Every call returns when the shutdown is complete, with the same
// error.
func (r *Running) Stop() error { return r.stop() }

// Main runs a whole program: it starts, serves until ctx ends, stops, and
// returns the exit status that mega.Main documents. If the configuration has
// several workers, Main runs the supervisor, and each worker calls Main in turn.
//
// It is for a program with a command line of its own; others call mega.Main.
func Main(ctx context.Context, p Process, options ...Option) int {
	p = p.withDefaults()
	defer workers.Reap(slog.New(slog.NewTextHandler(p.Stderr, nil)))()
	if p.Command != "" {
		return p.command(ctx, options)
	}
	if p.isWorker() || p.Offline != nil {
		running, err := Start(ctx, p, options...)
		return p.serve(ctx, running, err)
	}
	began := time.Now()
	made, err := p.plan(ctx, options, workers.Inputs{})
	switch {
	case err != nil && ctx.Err() != nil:
		return failure.ExitOK // stopped before anything had started
	case err != nil:
		return p.notStarted(p.failureOf(err))
	case made.Config.Cluster.Workers > 1:
		return p.supervise(ctx, made)
	}
	running, err := start(ctx, p, began, func(workers.Inputs) (*plan.Plan, error) { return made, nil })
	return p.serve(ctx, running, err)
}

// serve serves until ctx ends, stops, and returns the exit status. err is the
// error of a start without success.
func (p Process) serve(ctx context.Context, running *Running, err error) int {
	if err != nil {
		return p.notStarted(err)
	}
	log := running.Log()
	var manager *systemd.Manager
	if !running.b.supervised() { // a supervisor notifies for all its workers
		manager = systemd.Find(p.Environ, log, running.b.probes.Touch)
	}
	defer manager.Close()
	manager.Ready()
	broken := running.until(ctx, p.Hangups)
	manager.Stopping()
	if _, isAsked := errors.AsType[shutdownError](broken); broken != nil && !isAsked {
		logError(log, "program failed", broken)
	}
	log.Info("stopping")
	cut := running.Stop()
	switch {
	case cut != nil:
		logError(log, "stopped with errors", cut)
	default:
		log.Info("stopped")
	}
	return status(broken, cut)
}

// logError logs an error of the program with the stack of a panic.
func logError(log *slog.Logger, text string, err error) {
	log.LogAttrs(context.Background(), slog.LevelError, text, logging.ErrorAttrs(err)...)
}

// notStarted reports the failed start and returns the exit status.
func (p Process) notStarted(err error) int {
	stopped, ok := errors.AsType[*stoppedError](err)
	switch {
	case !ok:
		return p.writeFailure(failureOf(err))
	case stopped.cut != nil:
		fmt.Fprintf(p.Stderr, "%s was %s\n", p.name(), plain.Text(stopped.Error()))
		return failure.ExitCut
	}
	return failure.ExitOK
}

func (p Process) writeFailure(f *Failure) int {
	if n := p.worker(); n > 0 { // distinguishes the panels of the workers
		of := *f
		of.Facts = append([]failure.Fact{{Name: "worker", Value: strconv.Itoa(n)}}, f.Facts...)
		f = &of
	}
	if !p.JSON {
		f.Print(p.Stderr, p.name())
		return f.Exit
	}
	text := json.NewEncoder(p.Stderr)
	text.SetEscapeHTML(false)
	_ = text.Encode(f) // no other place is left to report to
	return f.Exit
}

func status(broken, cut error) int {
	asked, isAsked := errors.AsType[shutdownError](broken)
	switch {
	case isAsked:
		return asked.code
	case broken != nil:
		return failure.ExitInternal
	case cut != nil:
		return failure.ExitCut
	}
	return failure.ExitOK
}

func (p Process) name() string {
	if p.Name != "" {
		return p.Name
	}
	exe, err := os.Executable()
	if err != nil {
		return "program"
	}
	return strings.TrimSuffix(filepath.Base(exe), ".exe")
}

// env returns the environment of a process without MEGA_ENV: dev under go run,
// test under go test, else production.
func env() string {
	exe, err := os.Executable()
	if err != nil {
		return "production"
	}
	return envOf(exe)
}

func envOf(exe string) string {
	switch {
	case strings.HasSuffix(strings.TrimSuffix(exe, ".exe"), ".test"):
		return "test"
	case failure.GoRun(exe):
		return "dev"
	}
	return "production"
}

// openLog creates the loggers. They are available from the first stage on.
func (b *booting) openLog(c *settings.Config) *slog.Logger {
	b.logs = logging.New(b.process.Stderr, c, b.process.worker(), &b.veil)
	b.log = b.logs.Process()
	b.life.log = b.log
	return b.log
}

// fail makes the program end. Only the first call takes effect; later calls log
// their error.
func (b *booting) fail(err error) {
	if !b.over.end(err) {
		b.log.Error("further failure", "error", fmt.Sprint(err))
	}
}
