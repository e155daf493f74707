package boot

import (
	"cmp"
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
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/console"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/secrets"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/workers"
)

// supervisor is the parent process of `serve --workers`. It opens the listeners and
// cluster.socket, which the workers share, and serves probes, metrics and the admin
// socket for all of them.
type supervisor struct {
	process   Process
	plan      *plan.Plan
	began     time.Time
	done      <-chan struct{} // closed when the program has to end
	pages     ops.Supervisor  // of ops.addr
	console   *console.Console
	ops       *listen.Server   // nil before it is open
	admin     *admin.Server    // nil if it cannot be opened
	pinned    selection.Pinned // the selected drivers and their addresses, fixed for the life of the program
	logs      *logging.Logs
	veil      secrets.Veil // masks the secrets of the configuration
	log       *slog.Logger
	listeners []*workers.Listener
	files     *settings.Files    // of the last reload, or nil
	dir       string             // path of the working folder; "" if it is not known
	backends  selection.Backends // the connection to cluster.socket
	workers   *workers.Supervisor

	mu     sync.Mutex // guards report
	report Report     // the boot report
}

// supervise runs the workers until ctx ends, and returns the exit status.
func (p Process) supervise(ctx context.Context, made *plan.Plan) int {
	s := &supervisor{process: p, plan: made, began: time.Now(), done: ctx.Done(), report: made.Report()}
	s.veil.Add(made.Config, made.Program.Sections())
	s.logs = logging.New(p.Stderr, made.Config, 0, &s.veil)
	s.log = s.logs.Process()
	defer s.close()
	switch err := s.prepare(ctx); {
	case err != nil && ctx.Err() != nil:
		return failure.ExitOK // stopped before anything had started
	case err != nil:
		f := *failureOf(err)
		f.Mask = s.veil.Text
		return p.writeFailure(&f)
	}
	return s.run(ctx)
}

// prepare opens the resources that the workers share.
func (s *supervisor) prepare(ctx context.Context) error {
	if s.plan.Refused != nil {
		return s.plan.Refused
	}
	s.pinned = selection.Pins(s.plan.Decisions, s.plan.Config)
	s.report.Workers = s.plan.Config.Cluster.Workers
	if err := s.newWorkers(); err != nil {
		return err
	}
	if err := s.openOps(ctx); err != nil { // the probes answer while the rest waits
		return err
	}
	// Before the workers join: if this process becomes the hub, its workers can
	// restart without another process taking over as hub.
	if err := s.backends.JoinSocket(ctx, s.plan.Config, s.plan.Decisions, s.log); err != nil {
		return err
	}
	return openAll(addresses(s.plan), s.plan.Config.Boot.WaitFor, func(a listen.Address, wait time.Duration) error { return s.listen(ctx, a, wait) })
}

// newWorkers makes the supervisor of the workers, which are not running yet.
func (s *supervisor) newWorkers() error {
	var err error
	// By its path: a folder that was replaced since has the files of the new build.
	if s.dir, err = os.Getwd(); err != nil {
		s.dir = "" // it was removed
	}
	path, err := s.process.executable(s.dir)
	if err != nil {
		return &Failure{Code: "boot.failed", Exit: failure.ExitInternal, Text: "Cannot find the executable of the program, which the workers need.", Cause: err}
	}
	s.workers = workers.New(workers.Config{
		Workers: s.plan.Config.Cluster.Workers,
		Path:    path, Args: s.process.args(path), Environ: s.process.Environ, Dir: s.dir, Stdout: os.Stdout, Stderr: s.process.Stderr,
		Grace: workers.Grace(s.plan.Config.Shutdown.Timeout), Hang: s.plan.Config.Cluster.HangTimeout, Permanent: permanent,
		Place: s.pinned, Started: s.started,
		Settings: s.plan.Config, Files: s.plan.Files, Load: s.load,
		Hangups: s.process.Hangups, EndAtHangup: s.plan.Config.Env == "dev", Restarts: s.process.Restarts,
		Log: s.log,
	})
	return nil
}

// permanent reports whether a worker that ended with this status would fail in
// the same way after a restart.
func permanent(status int) bool { return status == failure.ExitUsage || status == failure.ExitConfig }

// listen opens the listener of an address, and reads its certificates into the
// copy of the files that the workers get.
func (s *supervisor) listen(ctx context.Context, a listen.Address, wait time.Duration) error {
	name := a.Apps[0].Name
	if _, err := listen.LoadCertificates(s.plan.Config, s.plan.Files, a.Names()...); err != nil {
		return err
	}
	l, err := workers.OpenAddress(ctx, a.Addr, wait, s.log)
	if err != nil {
		return listenFailure(s.plan.Config, "apps."+name+".addr", a.Addr, err)
	}
	shared, err := workers.Listen(name, l.TCPListener)
	if errors.Is(err, errors.ErrUnsupported) {
		return supervisorMissing(s.plan.Config, err)
	}
	if err != nil {
		return listenFailure(s.plan.Config, "apps."+name+".addr", a.Addr, err)
	}
	s.listeners = append(s.listeners, shared)
	s.workers.Share(shared)
	return nil
}

// run runs the workers until ctx ends or the workers cannot run.
func (s *supervisor) run(ctx context.Context) int {
	if s.process.AtSecondSignal != nil {
		s.process.AtSecondSignal(s.workers.Abort)
	}
	s.openAdmin()
	err := s.workers.Run(ctx)
	spent, isSpent := errors.AsType[*workers.SpentError](err)
	switch {
	case isSpent:
		return s.process.writeFailure(s.spentFailure(spent))
	case err != nil:
		s.log.Error("stopped with errors", "error", err)
		return failure.ExitCut
	}
	s.log.Info("stopped")
	return failure.ExitOK
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
func (s *supervisor) load(old *settings.Config, files, started *settings.Files) (*settings.Config, []config.Change, error) {
	if s.dir != "" {
		_ = os.Chdir(s.dir) // relative paths of certificates begin there, as in the workers
	}
	source := s.process.source(s.plan.Program, s.done)
	source.Files = files
	next, changes, err := settings.Reload(old, source)
	files.Keep()
	if err == nil {
		err = s.attach(next, files, changes)
	}
	if err == nil {
		s.files = files
		s.veil.Add(next, s.plan.Program.Sections())
		s.logs.Apply(next)
		s.logChanges(changes)
		changes = sinceRestart(changes, source, started)
	}
	return next, changes, err
}

// sinceRestart returns changes with the pending keys of the workers in place of the
// pending keys of this process: a restart of the workers has applied some of these.
// Without the files of their start, or for a build with other keys, it returns changes.
func sinceRestart(changes []config.Change, source settings.Source, started *settings.Files) []config.Change {
	if started == nil {
		return changes
	}
	fresh := source.Files
	source.Files = started
	running, err := settings.Load(source)
	if err != nil {
		return changes
	}
	source.Files = fresh
	_, pending, err := settings.Reload(running, source)
	if err != nil {
		return changes
	}
	isWorkers := func(c config.Change) bool { return !c.Live && !isSupervisors(c.Key) }
	all := slices.DeleteFunc(slices.Clone(changes), isWorkers)
	for _, c := range pending {
		if isWorkers(c) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b config.Change) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// logChanges logs the changed keys that only a restart of the whole program applies. A
// worker logs a key until it has read the new value, after a restart of the workers.
func (s *supervisor) logChanges(changes []config.Change) {
	for _, c := range changes {
		if isSupervisors(c.Key) {
			logChange(s.log, "configuration changed; restart the program to apply it", c)
		}
	}
}

// attach reads the certificates of all apps into the copy of the files that
// workers load the configuration from. A certificate whose keys have changed is in
// the copy twice: workers of a later generation use the new files, and the present ones
// the contents of the old files, which may have been removed.
func (s *supervisor) attach(c *settings.Config, files *settings.Files, changes []config.Change) error {
	for _, a := range s.plan.Program.Runs {
		if !s.plan.Program.Listens(a.Name) {
			continue
		}
		if err := listen.RecordCertificate(c, a.Name, changes, files); err != nil {
			return err
		}
	}
	files.Inherit(cmp.Or(s.files, s.plan.Files))
	return nil
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
	s.report.Limit.CarriedOut(of.Limit)
	s.report.Apps, s.report.Primary, s.report.Elected, s.report.Took = of.Apps, of.Primary, of.Elected, time.Since(s.began)
	report := s.report
	s.mu.Unlock()
	s.process.report(&report, s.plan.Config, s.log)
}

// spentFailure returns the Failure of a program whose supervisor has given up on its
// workers.
func (s *supervisor) spentFailure(e *workers.SpentError) *Failure {
	text := fmt.Sprintf("Worker %d ended %d times in a row before it was ready.", e.Worker, e.Deaths)
	if e.Deaths == 1 {
		text = fmt.Sprintf("Worker %d ended before it was ready. A restart would fail in the same way.", e.Worker)
	}
	f := &Failure{
		Code: "cluster.worker_died", Exit: failure.ExitInternal, Text: text, Cause: e.Cause,
		Facts: []failure.Fact{failure.Setting(s.plan.Config, "cluster.workers")},
		Actions: failure.Actions("Find the reason", "read the log above",
			"Run a single process", failure.Command(s.process.name())+" serve --workers 1"),
	}
	if actions := listen.MoreDescriptors(e.Cause); actions != nil {
		f.Actions = actions
	}
	if e.Cause == nil { // the worker was started, and ended
		f.Facts = append([]failure.Fact{{Name: "last exit", Value: e.Last}}, f.Facts...)
	}
	if slices.Contains([]int{failure.ExitUsage, failure.ExitUnavailable, failure.ExitOverrun, failure.ExitConfig}, e.Status) {
		f.Exit = e.Status
	}
	return f
}

// The ops listener and the admin socket of a supervisor.

// openOps opens the listener of ops.addr, and serves it.
func (s *supervisor) openOps(ctx context.Context) (err error) {
	c := s.plan.Config
	s.pages = ops.Supervisor{
		Workers: s.workers, Info: s.info, Longest: s.plan.Program.LongestCheck(), Build: ops.NewBuild(c.Name), Profile: c.Env == "dev", Log: s.log,
		Errors: func() any { return s.logs.Recent() },
	}
	pages := s.pages.Handler()
	s.console = console.New(console.Config{On: c.Ops.Console, Program: c.Name, Supervised: true, Pages: pages})
	if s.ops, err = ops.Listen(c, s.console.Mount(pages), s.log); err != nil {
		return withApps(ctx, s.plan, s.log, err)
	}
	s.report.Ops = s.ops.URL()
	s.console.Start()
	s.ops.Serve(func(err error) { s.log.Error("ops listener stopped", "error", err) })
	return nil
}

// openAdmin opens the admin socket. Its verbs need workers that run.
func (s *supervisor) openAdmin() {
	socket, err := admin.OpenSupervisor(s.operated(), admin.Folders(s.process.Environ))
	warnWithoutSocket(s.log, noAdmin, err)
	if s.admin = socket; socket != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.report.Admin = socket.Path()
	}
}

// closeOps closes the ops listener and the admin socket, after the workers have
// ended.
func (s *supervisor) closeOps() {
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	var err error
	if s.admin != nil {
		err = s.admin.Close(ctx)
	}
	if s.ops != nil {
		s.console.Close()
		err = errors.Join(err, s.ops.Drain(ctx))
	}
	if err != nil {
		s.log.Warn("ops requests cut off", "error", err)
	}
}

// operated returns the view of the supervisor that the admin socket serves.
func (s *supervisor) operated() admin.Supervisor {
	return admin.Supervisor{
		Info:     s.info,
		Workers:  s.pages.WorkerStates,
		Restart:  s.workers.Restart,
		Reload:   s.workers.Reload,
		SetLevel: s.logs.Set,
		Log:      s.log,
	}
}

func (s *supervisor) info() admin.Info {
	s.mu.Lock()
	r := s.report
	s.mu.Unlock()
	return admin.Info{
		Name: r.Program, PID: r.PID, Main: admin.MainPackage(), Env: r.Env, Apps: s.plan.Program.Running(), Since: s.began, Ops: r.Ops, Meets: s.plan.Config.Cluster.Socket,
		Driver: r.Lock.Chosen, Scope: r.Lock.Scope, Bus: admin.DriverScope{Driver: r.Bus.Chosen, Scope: r.Bus.Scope},
		Limit: admin.DriverScope{Driver: r.Limit.Chosen, Scope: r.Limit.Scope},
	}
}
