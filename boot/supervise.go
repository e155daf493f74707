package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/workers"
)

// supervisor is the process that runs a program with several workers. It opens
// what the workers share, namely the listeners and cluster.socket, and serves
// probes, metrics and the admin socket for all of them.
type supervisor struct {
	process   Process
	program   *plan.Program
	began     time.Time
	watch     watch
	config    *config.Config
	pinned    pinned // the selected drivers and their addresses, fixed for the life of the program
	logs      *logs
	veil      veil // masks the secrets of the configuration
	log       *slog.Logger
	listeners []*workers.Listener
	backends  selection.Backends // the connection to cluster.socket
	workers   *workers.Supervisor

	mu     sync.Mutex // guards report
	report Report     // the boot report
}

// supervises returns the program and the configuration of a process that has to
// run workers, and the files that the configuration was loaded from. It returns
// nil for a process that serves by itself, and for a process that cannot start:
// Start then reports the cause.
func (p Process) supervises(options []Option) (*plan.Program, *config.Config, *config.Files) {
	if p.isWorker() || p.Offline != nil {
		return nil, nil, nil
	}
	program, err := p.program(options)
	if err != nil {
		return nil, nil, nil
	}
	s := p.source(program)
	s.Files = new(config.Files)
	c, err := config.Load(s)
	if err != nil || c.Cluster.Workers < 2 {
		return nil, nil, nil
	}
	s.Files.Keep()
	return program, c, s.Files
}

// supervise runs the workers until ctx ends, and returns the exit status.
func (p Process) supervise(ctx context.Context, program *plan.Program, c *config.Config, files *config.Files) int {
	s := &supervisor{process: p, program: program, began: time.Now(), config: c, report: plan.NewReport(c)}
	s.veil.add(c, program.Sections())
	s.logs = newLogs(p.Stderr, c, 0, &s.veil)
	s.log = s.logs.process()
	defer s.close()
	switch err := s.prepare(ctx, files); {
	case err != nil && ctx.Err() != nil:
		return ExitOK // stopped before anything had started
	case err != nil:
		f := *failureOf(err)
		f.Mask = s.veil.text
		return p.tellFailure(&f)
	}
	return s.run(ctx)
}

// prepare selects the drivers, and opens the resources that the workers share.
func (s *supervisor) prepare(ctx context.Context, files *config.Files) (err error) {
	var d selection.Decisions
	if d, err = s.process.decide(s.program, s.config); err != nil {
		return err
	}
	s.pinned = pins(d, s.config)
	s.report.Lock, s.report.Bus, s.report.LeftOut, s.report.Workers = d.Lock, d.Bus, s.program.LeftOut(), s.config.Cluster.Workers
	if err := s.openOps(); err != nil {
		return err
	}
	// Before the workers join: if this process becomes the hub, its workers can
	// restart without another process taking over as hub.
	if err := s.backends.JoinSocket(ctx, s.config, d, s.log); err != nil {
		return err
	}
	for _, a := range s.addresses() {
		if err := s.listen(ctx, a); err != nil {
			return err
		}
	}
	return s.newWorkers(files)
}

// newWorkers makes the supervisor of the workers, which are not running yet.
func (s *supervisor) newWorkers(files *config.Files) error {
	path, err := os.Executable()
	if err != nil {
		return &Failure{Code: "boot.failed", Exit: ExitInternal, Text: "The executable that workers are started from cannot be found.", Cause: err}
	}
	s.workers = workers.New(workers.Config{
		Workers: s.config.Cluster.Workers,
		Path:    path, Args: s.process.args(path), Environ: s.process.Environ, Stdout: os.Stdout, Stderr: s.process.Stderr,
		Listeners: s.listeners,
		Grace:     workers.Grace(s.config.Shutdown.Timeout), Hang: s.config.Cluster.HangTimeout, Permanent: permanent,
		Place: s.pinned, Started: s.started,
		Settings: s.config, Files: files, Load: s.load,
		Hangups: s.process.Hangups, EndAtHangup: s.config.Env == "dev", Restarts: s.process.Restarts,
		Log: s.log,
	})
	return nil
}

// permanent reports whether a worker that ended with this status would fail in
// the same way after a restart.
func permanent(status int) bool { return status == ExitUsage || status == ExitConfig }

// args returns the arguments of the workers, which are the arguments of this
// process.
func (p Process) args(path string) []string {
	if len(p.Args) == 0 {
		return []string{path}
	}
	return slices.Clone(p.Args)
}

// addresses returns the addresses on which the apps listen. A worker computes the
// same list.
func (s *supervisor) addresses() []listen.Address {
	var apps []listen.App
	for _, a := range s.program.Runs {
		app := s.config.Apps[a.Name]
		apps = append(apps, listen.App{Name: a.Name, Addr: string(app.Addr), Host: app.Host, Prefix: app.Prefix})
	}
	return listen.Addresses(apps)
}

func (s *supervisor) listen(ctx context.Context, a listen.Address) error {
	name := a.Apps[0].Name
	l, err := workers.OpenAddress(ctx, a.Addr, s.config.Boot.WaitFor, s.log)
	if err != nil {
		return listenFailure(s.config, "apps."+name+".addr", a.Addr, err)
	}
	shared, err := workers.Listen(name, l.TCPListener)
	if err != nil {
		return supervisorMissing(s.config, err)
	}
	s.listeners = append(s.listeners, shared)
	return nil
}

// run runs the workers until ctx ends or the workers cannot run.
func (s *supervisor) run(ctx context.Context) int {
	if s.process.AtSecondSignal != nil {
		s.process.AtSecondSignal(s.workers.Abort)
	}
	s.serveOps()
	err := s.workers.Run(ctx)
	spent, isSpent := errors.AsType[*workers.SpentError](err)
	switch {
	case isSpent:
		return s.process.tellFailure(s.spentFailure(spent))
	case err != nil:
		s.log.Error("stopped with work cut off", "error", err)
		return ExitCut
	}
	s.log.Info("stopped")
	return ExitOK
}

// close releases the resources that the workers shared.
func (s *supervisor) close() {
	s.closeOps()
	if s.workers != nil {
		s.workers.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	_ = s.backends.Close(ctx) // this process held no lock or subscription
	for _, l := range s.listeners {
		_ = l.Close() // the process ends
	}
}

// load loads the configuration again, and applies it to this process.
func (s *supervisor) load(old *config.Config, files *config.Files) (*config.Config, []config.Change, error) {
	source := s.process.source(s.program)
	source.Files = files
	next, changes, err := config.Reload(old, source)
	if err == nil {
		s.veil.add(next, s.program.Sections())
		s.logs.apply(next)
	}
	return next, changes, err
}

// started completes the boot report with the report of a worker, and writes it.
func (s *supervisor) started(text json.RawMessage) {
	var of Report
	if err := json.Unmarshal(text, &of); err != nil {
		s.log.Error("boot report of a worker not decoded", "error", err)
	}
	s.mu.Lock()
	s.report.Lock.CarriedOut(of.Lock)
	s.report.Bus.CarriedOut(of.Bus)
	s.report.Apps, s.report.Primary, s.report.Took = of.Apps, of.Primary, time.Since(s.began)
	report := s.report
	s.mu.Unlock()
	s.process.report(&report, s.config, s.log)
}

// spentFailure returns the Failure of a program whose supervisor has given up on its
// workers.
func (s *supervisor) spentFailure(e *workers.SpentError) *Failure {
	text := fmt.Sprintf("Worker %d ended %d times in a row before it was ready.", e.Worker, e.Deaths)
	if e.Deaths == 1 {
		text = fmt.Sprintf("Worker %d ended before it was ready, and the next one would, too.", e.Worker)
	}
	f := &Failure{
		Code: "cluster.worker_died", Exit: ExitInternal, Text: text, Cause: e.Cause,
		Facts: []Fact{failure.Setting(s.config, "cluster.workers")},
		Actions: []string{
			"read why:               it has said so above",
			"see it fail by itself:  " + strings.Join([]string{s.process.name(), "serve", "--workers", "1"}, " "),
		},
	}
	if e.Cause == nil { // the worker was started, and ended
		f.Facts = append([]Fact{{Name: "the last one", Value: e.Last}}, f.Facts...)
	}
	if slices.Contains([]int{ExitUsage, ExitUnavailable, ExitOverrun, ExitConfig}, e.Status) {
		f.Exit = e.Status
	}
	return f
}
