package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/systemd"
	"github.com/megaframework/mega/internal/workers"
)

// crew is the supervisor of a program with several workers. It owns the
// resources that the workers share, namely the listeners and the hub, and
// serves no requests itself.
type crew struct {
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
	hub       *cluster.Hub // of the lines; of locks and messages, too, unless cluster.socket is set
	party     party        // the connection to cluster.socket
	workers   *workers.Supervisor

	reloading sync.Mutex                    // held during a reload of the configuration
	inForce   atomic.Pointer[config.Config] // config, with the changes of reloads
	inputs    generations
	manager   *systemd.Manager // nil if no service manager expects notifications

	mu      sync.Mutex // guards the fields below
	members map[*cluster.Peer]*member
	reloads int    // number of reloads of the configuration
	report  Report // the boot report
	told    bool
}

// member is a worker and its line.
type member struct {
	process *workers.Process
	peer    *cluster.Peer
	reloads int           // number of reloads when the worker was started
	spoke   chan struct{} // closed by the worker's first call
	first   sync.Once     // closes spoke

	socket string // the worker's admin socket, once the worker is ready
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
	w := &crew{
		process: p, program: program, began: time.Now(), config: c, members: map[*cluster.Peer]*member{},
		report: plan.NewReport(c),
	}
	w.veil.add(c, program.Sections())
	w.logs = newLogs(p.Stderr, c, 0, &w.veil)
	w.log = w.logs.process()
	w.inForce.Store(c)
	w.inputs.begin(1, files)
	defer w.close()
	switch err := w.prepare(ctx); {
	case err != nil && ctx.Err() != nil:
		return ExitOK // stopped before anything had started
	case err != nil:
		f := *failureOf(err)
		f.Mask = w.veil.text
		return p.tellFailure(&f)
	}
	return w.run(ctx)
}

// prepare selects the drivers, and opens the resources that the workers share.
func (w *crew) prepare(ctx context.Context) (err error) {
	var d decisions
	if d, err = w.process.decide(w.program, w.config); err != nil {
		return err
	}
	w.pinned = d.pins(w.config)
	w.report.Lock, w.report.Bus, w.report.LeftOut, w.report.Workers = d.lock, d.bus, w.program.LeftOut(), w.config.Cluster.Workers
	if err := w.openOps(); err != nil {
		return err
	}
	if err := w.meet(ctx, d); err != nil {
		return err
	}
	for _, a := range w.addresses() {
		if err := w.listen(ctx, a); err != nil {
			return err
		}
	}
	w.hub = cluster.NewHub(cluster.HubConfig{Log: w.log, Handle: w.answer})
	w.workers, err = w.crewed()
	return err
}

// meet joins the processes at cluster.socket before the workers do. If this
// process becomes the hub, its workers can restart without another process
// taking over as hub.
func (w *crew) meet(ctx context.Context, d decisions) error {
	for _, of := range []Decision{d.lock, d.bus} {
		if of.Chosen == "cluster" && w.config.Cluster.Socket != "" {
			_, err := w.party.join(ctx, w.config, of, w.log)
			return err
		}
	}
	return nil
}

// crewed returns the supervisor of the workers, which are not running yet.
func (w *crew) crewed() (*workers.Supervisor, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, &Failure{Code: "boot.failed", Exit: ExitInternal, Text: "The executable that workers are started from cannot be found.", Cause: err}
	}
	return workers.New(workers.Config{
		Workers: w.config.Cluster.Workers,
		Path:    path, Args: w.process.args(path), Env: systemd.Without(w.process.Environ), Stdout: os.Stdout, Stderr: w.process.Stderr,
		Listeners: w.listeners, Grace: w.config.Shutdown.Timeout + graceTime,
		Serve: w.serve, Hopeless: hopeless, Log: w.log,
	}), nil
}

// graceTime is the time that a worker gets in addition to its shutdown.timeout.
// At the end of shutdown.timeout, the worker cuts off the remaining work.
const graceTime = 5 * time.Second

// hopeless reports whether a worker that ended with this status would fail in
// the same way after a restart.
func hopeless(status int) bool { return status == ExitUsage || status == ExitConfig }

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
func (w *crew) addresses() []listen.Address {
	var apps []listen.App
	for _, a := range w.program.Runs {
		app := w.config.Apps[a.Name]
		apps = append(apps, listen.App{Name: a.Name, Addr: string(app.Addr), Host: app.Host, Prefix: app.Prefix})
	}
	return listen.Addresses(apps)
}

func (w *crew) listen(ctx context.Context, a listen.Address) error {
	name := a.Apps[0].Name
	l, err := workers.OpenAddress(ctx, a.Addr, w.config.Boot.WaitFor, w.log)
	if err != nil {
		return listenFailure(w.config, "apps."+name+".addr", a.Addr, err)
	}
	shared, err := workers.Listen(name, l.TCPListener)
	if err != nil {
		return supervisorMissing(w.config, err)
	}
	w.listeners = append(w.listeners, shared)
	return nil
}

// run runs the workers until ctx ends or the workers cannot run.
func (w *crew) run(ctx context.Context) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.process.AtSecondSignal != nil {
		w.process.AtSecondSignal(w.workers.Abort)
	}
	w.manager = systemd.Find(w.process.Environ, w.log, func() { _ = w.workers.Workers() })
	defer w.manager.Close()
	over := make(chan struct{})
	var heeding sync.WaitGroup
	heeding.Go(func() { w.heed(ctx, cancel, over) })
	w.serveOps()
	err := w.workers.Run(ctx)
	close(over)
	heeding.Wait()
	spent, isSpent := errors.AsType[*workers.SpentError](err)
	switch {
	case isSpent:
		return w.process.tellFailure(w.given(spent))
	case err != nil:
		w.log.Error("stopped with work cut off", "error", err)
		return ExitCut
	}
	w.log.Info("stopped")
	return ExitOK
}

// close releases the resources that the workers shared.
func (w *crew) close() {
	w.closeOps()
	if w.hub != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastWord)
		defer cancel()
		_ = w.hub.Close(ctx) // all workers have ended
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	_ = w.party.close(ctx) // this process held no lock or subscription
	for _, l := range w.listeners {
		_ = l.Close() // the process ends
	}
}

// heed handles the signals for restarts and reloads until over is closed.
func (w *crew) heed(ctx context.Context, stop func(), over <-chan struct{}) {
	var restarts <-chan os.Signal
	if w.process.Restarts != nil {
		signals, off := w.process.Restarts()
		defer off()
		restarts = signals
	}
	wanted := make(chan struct{}, 1)
	var restarting sync.WaitGroup
	defer restarting.Wait()
	restarting.Go(func() { w.restarts(ctx, wanted, over) })
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			w.log.Info("stopping")
			w.manager.Stopping()
			<-over
			return
		case <-restarts:
			select {
			case wanted <- struct{}{}:
			default: // a pending restart will use the latest state
			}
		case <-w.process.Hangups:
			if w.config.Env == "dev" {
				w.log.Info("terminal closed")
				stop()
				continue
			}
			w.log.Info("configuration reload requested")
			_, _ = w.reload(ctx) // reload logs its errors
		}
	}
}

// restarts restarts the workers at each request until over is closed. A request
// that arrives during a restart is served afterwards, since that restart may
// have replaced some workers from the earlier state.
func (w *crew) restarts(ctx context.Context, wanted, over <-chan struct{}) {
	for {
		select {
		case <-wanted:
		case <-ctx.Done():
			return
		case <-over:
			return
		}
		if err := w.workers.RestartNext(ctx); err != nil && ctx.Err() == nil {
			w.log.Error("workers not restarted", "error", err)
		}
	}
}

// reload loads and checks the configuration. If it is valid, reload makes the
// workers load it.
func (w *crew) reload(ctx context.Context) ([]config.Change, error) {
	w.reloading.Lock()
	defer w.reloading.Unlock()
	s := w.process.source(w.program)
	s.Files = new(config.Files)
	next, changes, err := config.Reload(w.inForce.Load(), s)
	if err != nil {
		w.log.Error("configuration reload refused", "error", err)
		return nil, err
	}
	s.Files.Keep()
	w.inForce.Store(next)
	w.veil.add(next, w.program.Sections())
	w.inputs.reload(s.Files)
	w.logs.apply(next)
	w.workers.Again() // retries workers that could not start with the previous configuration
	return changes, w.passOn(ctx)
}

// passOn makes all workers reload the configuration from the checked files.
func (w *crew) passOn(ctx context.Context) error {
	w.mu.Lock()
	w.reloads++
	members := make([]*member, 0, len(w.members))
	for _, m := range w.members {
		members = append(members, m)
	}
	w.mu.Unlock()
	errs := make([]error, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { errs[i] = w.passReload(ctx, m) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// reloadTime is the timeout of a worker's reload.
const reloadTime = 10 * time.Second

// passReload makes a worker reload the configuration. A worker that is still
// starting does so when it is ready.
func (w *crew) passReload(ctx context.Context, m *member) error {
	if m.process.Worker().State != workers.Ready {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	var body []byte
	var err error
	if live := w.inputs.live(m.process.Generation()); live != nil {
		body, err = json.Marshal(live)
	}
	if err == nil {
		_, err = m.peer.Call(ctx, callReload, body)
	}
	if err != nil {
		w.log.Error("configuration not reloaded by a worker", "worker", m.process.ID(), "pid", m.process.PID(), "error", err)
		return unheard{fmt.Errorf("worker %d, pid %d, has not read the configuration again: %w", m.process.ID(), m.process.PID(), err)}
	}
	return nil
}

// unheard is the error of a worker that has not followed a request.
type unheard struct{ error }

// Code returns the code of a worker that does not answer.
func (unheard) Code() string { return "worker.unanswered" }

// serve runs the supervisor's side of the line to a worker. It returns when the
// line ends.
func (w *crew) serve(p *workers.Process, conn net.Conn) {
	w.mu.Lock() // calls of the worker wait until the member is known
	m := &member{process: p, peer: w.hub.Join(conn, fmt.Sprintf("worker %d", p.ID())), reloads: w.reloads, spoke: make(chan struct{})}
	w.members[m.peer] = m
	w.mu.Unlock()
	if limit := w.config.Cluster.HangTimeout; limit > 0 {
		m.watchWorker(limit)
	}
	<-m.peer.Done()
	w.mu.Lock()
	delete(w.members, m.peer)
	socket := m.socket
	w.mu.Unlock()
	if socket != "" {
		_ = os.Remove(socket) // a worker that was killed leaves its socket behind
	}
}

func (w *crew) member(peer *cluster.Peer) (*member, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, ok := w.members[peer]
	return m, ok
}

// answer answers the calls of the workers.
func (w *crew) answer(ctx context.Context, from *cluster.Peer, name string, body []byte) ([]byte, error) {
	m, ok := w.member(from)
	if !ok {
		return nil, errors.New("the caller is no worker")
	}
	m.first.Do(func() { close(m.spoke) })
	switch name {
	case callConfig:
		return json.Marshal(w.inputs.of(m.process.Generation()))
	case callDecided:
		return json.Marshal(w.pinned)
	case callReady:
		return nil, w.isReady(ctx, m, body)
	case callTurn:
		mine, err := w.workers.Begin(ctx, m.process, string(body))
		return word(mine), err
	case callDone:
		w.workers.Done(m.process, string(body))
		return nil, nil
	case callOthers:
		return word(!w.ending(m)), nil
	case callDraining:
		return word(w.drains(m)), nil
	}
	return nil, fmt.Errorf("a supervisor does not answer %q", name)
}

func word(is bool) []byte {
	if is {
		return []byte(yes)
	}
	return []byte(no)
}

// ending reports whether all workers are shutting down. The worker m already
// is. A signal to the whole process group reaches every process, so that the
// worker may receive it before the supervisor. Therefore ending waits for
// hearsay.
func (w *crew) ending(m *member) bool {
	if m.process.Worker().State == workers.Stopping {
		return w.workers.Stopping()
	}
	timer := time.NewTimer(hearsay)
	defer timer.Stop()
	select {
	case <-w.workers.Ending():
		return true
	case <-timer.C:
		return false
	}
}

// hearsay is how much earlier than the supervisor a worker may receive the
// signal that ends all of them.
const hearsay = 100 * time.Millisecond

// drains reports whether all workers are shutting down. In that case no process
// goes on accepting: the workers must serve the connections in the queues of
// the listeners before they end, and drains keeps new connections out of the
// queues.
func (w *crew) drains(m *member) bool {
	if !w.ending(m) {
		return false
	}
	for _, l := range w.listeners {
		l.Control(func(fd uintptr) { _ = listen.TurnAway(fd) }) // otherwise connections of the last moment are lost
	}
	return true
}

// isReady records that a worker has started.
func (w *crew) isReady(ctx context.Context, m *member, body []byte) error {
	var r presented
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	w.mu.Lock()
	m.socket = r.Socket
	w.mu.Unlock()
	w.inputs.begin(m.process.Generation(), r.Read)
	w.inputs.forget(w.workers.Oldest())
	if r.Grace > 0 { // workers of an older build do not send it
		m.process.SetGrace(r.Grace)
	}
	m.process.Ready(nil)
	w.watch.started.Store(true)
	w.mu.Lock() // from here on, and not before, passOn reaches the worker
	behind := w.reloads != m.reloads
	w.mu.Unlock()
	if behind {
		_ = w.passReload(ctx, m) // passReload logs its error
	}
	w.tell(r.Report)
	return nil
}

// tell writes the report once all workers are ready for the first time.
func (w *crew) tell(of Report) {
	ready := map[int]bool{}
	for _, p := range w.workers.Workers() {
		if p.State == workers.Ready {
			ready[p.ID] = true
		}
	}
	w.mu.Lock()
	due := !w.told && len(ready) == w.report.Workers
	if due {
		w.told = true
		w.report.Lock.CarriedOut(of.Lock)
		w.report.Bus.CarriedOut(of.Bus)
		w.report.Apps, w.report.Primary, w.report.Took = of.Apps, of.Primary, time.Since(w.began)
	}
	report := w.report
	w.mu.Unlock()
	if due {
		w.manager.Ready()
		w.process.report(&report, w.config, w.log)
	}
}

// given returns the Failure of a program whose supervisor has given up on its
// workers.
func (w *crew) given(e *workers.SpentError) *Failure {
	text := fmt.Sprintf("Worker %d ended %d times in a row before it was ready.", e.Worker, e.Deaths)
	if e.Deaths == 1 {
		text = fmt.Sprintf("Worker %d ended before it was ready, and the next one would, too.", e.Worker)
	}
	f := &Failure{
		Code: "cluster.worker_died", Exit: ExitInternal, Text: text, Cause: e.Cause,
		Facts: []Fact{failure.Setting(w.config, "cluster.workers")},
		Actions: []string{
			"read why:               it has said so above",
			"see it fail by itself:  " + strings.Join([]string{w.process.name(), "serve", "--workers", "1"}, " "),
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
