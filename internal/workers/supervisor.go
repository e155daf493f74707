package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/systemd"
)

// Config configures a Supervisor.
type Config struct {
	Workers int      // at least 1
	Path    string   // path of the executable
	Args    []string // with the program's name first
	Environ []string // of this process; the workers get it, and their own variables
	Dir     string   // the folder of the workers; "" or one that cannot be entered: of this process
	Stdout  io.Writer
	Stderr  io.Writer

	Grace     time.Duration                // see [Grace]; a worker that takes longer is killed
	Hang      time.Duration                // a worker that does not answer for so long is killed; 0 disables
	Permanent func(status int) bool        // reports whether a worker that exits with this status would do so again; may be nil
	Place     any                          // of locks and messages; encodes as JSON, for Line.Place
	Started   func(report json.RawMessage) // called once, when all workers are ready for the first time

	Settings *settings.Config // in force
	Files    *settings.Files  // that Settings was loaded from
	// Load checks and loads a configuration from the disk into files, and
	// applies it to this process. The workers have started with the files of
	// started, which is nil if they are not known.
	Load func(old *settings.Config, files, started *settings.Files) (*settings.Config, []config.Change, error)

	// Hangups requests a reload of the configuration, or the end of the program
	// if EndAtHangup is set. Restarts requests a restart of the workers, one after
	// the other. Both may be nil.
	Hangups     <-chan os.Signal
	EndAtHangup bool
	Restarts    <-chan os.Signal

	Log *slog.Logger
}

// Grace returns how long a worker may take to end if its shutdown.timeout is
// that long. At the end of shutdown.timeout the worker cuts off its remaining
// work, so that it needs little more.
func Grace(shutdown time.Duration) time.Duration { return shutdown + 5*time.Second }

// Supervisor runs a program as several workers. It owns the resources that the
// workers share, namely the listeners and the hub, and serves no requests
// itself. Its methods may be called concurrently.
type Supervisor struct {
	config  Config
	log     *slog.Logger
	runner  *runner
	hub     *cluster.Hub // of the lines; of locks and messages, too, unless they have a socket
	manager *systemd.Manager
	inputs  generations

	reloading sync.Mutex       // held during a reload of the configuration
	settings  *settings.Config // in force; guarded by reloading

	mu      sync.Mutex // guards the fields below
	lines   map[*cluster.Client]*workerLine
	reloads int // number of reloads of the configuration
	ready   bool
	started bool
}

// workerLine is the supervisor's end of the line to a worker.
type workerLine struct {
	process *Process
	peer    *cluster.Client
	reloads int           // number of reloads when the worker was started
	spoke   chan struct{} // closed by the worker's first call
	first   sync.Once     // closes spoke

	// Guarded by Supervisor.mu.
	ready  bool   // the log has reported that the worker is ready
	socket string // path of the worker's admin socket, once it is ready
}

// New returns a supervisor that has not started any process.
func New(c Config) *Supervisor {
	s := &Supervisor{config: c, log: c.Log, settings: c.Settings, lines: map[*cluster.Client]*workerLine{}}
	s.inputs.begin(1, c.Files)
	s.hub = cluster.NewHub(cluster.HubConfig{Log: c.Log, Handle: s.answer})
	s.runner = newRunner(c, s.serve)
	return s
}

// Share adds a listener that each worker inherits. It is called before Run.
func (s *Supervisor) Share(l *Listener) {
	s.runner.listeners = append(s.runner.listeners, l)
}

// Run runs the workers until ctx ends or the workers cannot run. It handles the
// signals of Config, and notifies the service manager. It returns nil if all
// workers ended without an error, and a *SpentError if the workers cannot run.
// No worker is left when Run returns.
func (s *Supervisor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.manager = systemd.Find(s.config.Environ, s.log, func() { _ = s.runner.Workers() })
	defer s.manager.Close()
	over := make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() { s.handleSignals(ctx, cancel, over) })
	err := s.runner.Run(ctx)
	close(over)
	signals.Wait()
	return err
}

// Close closes the hub, after Run has returned.
func (s *Supervisor) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), lineDrainTime)
	defer cancel()
	_ = s.hub.Close(ctx) // all workers have ended
}

// Abort makes all workers write their stacks and end at once. It returns when
// they have ended.
func (s *Supervisor) Abort() { s.runner.Abort() }

// Stopping reports whether all workers are ending or have ended.
func (s *Supervisor) Stopping() bool { return s.runner.Stopping() }

// Ready reports whether any worker was ever ready.
func (s *Supervisor) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// Restart replaces a worker, or all of them if id is 0, one after the other.
// Each new worker is ready before the old one is asked to end. If a new worker
// does not become ready, the old ones continue to serve, and Restart returns
// the reason.
func (s *Supervisor) Restart(ctx context.Context, id int) error {
	if id == 0 {
		return s.runner.Restart(ctx)
	}
	return s.runner.RestartOne(ctx, id)
}

// Workers returns the workers ordered by number. Of two processes with the same
// number the older one comes first. A worker without a process, before the first
// one or after a death, is in state Down.
func (s *Supervisor) Workers() []Worker {
	type key struct{ id, pid int }
	sockets := map[key]string{}
	s.mu.Lock()
	for _, l := range s.lines {
		sockets[key{l.process.id, l.process.PID()}] = l.socket
	}
	s.mu.Unlock()
	all := s.runner.Workers()
	for i, w := range all {
		all[i].Socket = sockets[key{w.ID, w.PID}]
	}
	return all
}

// serve runs the supervisor's side of the line to a worker. It returns when the
// line ends.
func (s *Supervisor) serve(p *Process, conn net.Conn) {
	s.mu.Lock() // calls of the worker wait until its line is known
	l := &workerLine{process: p, peer: s.hub.Join(conn, fmt.Sprintf("worker %d", p.id)), reloads: s.reloads, spoke: make(chan struct{})}
	s.lines[l.peer] = l
	s.mu.Unlock()
	if limit := s.config.Hang; limit > 0 {
		l.detectHang(limit)
	}
	<-l.peer.Done()
	s.mu.Lock()
	delete(s.lines, l.peer)
	socket := l.socket
	s.mu.Unlock()
	if socket != "" {
		_ = os.Remove(socket) // a worker that was killed leaves its socket behind
	}
}

// answer handles the calls of the workers.
func (s *Supervisor) answer(ctx context.Context, from *cluster.Client, name string, body []byte) ([]byte, error) {
	s.mu.Lock()
	l, ok := s.lines[from]
	s.mu.Unlock()
	if !ok {
		return nil, errors.New("the caller is not a worker")
	}
	l.first.Do(func() { close(l.spoke) })
	switch name {
	case callConfig:
		return json.Marshal(s.inputs.of(l.process.generation))
	case callPlace:
		return json.Marshal(s.config.Place)
	case callReady:
		return nil, s.workerReady(ctx, l, body)
	case callTurn:
		mine, err := s.runner.turns.begin(ctx, l.process, string(body))
		return word(mine), err
	case callDone:
		s.runner.turns.done(l.process, string(body))
		return nil, nil
	case callOthers:
		return word(!s.ending(l)), nil
	case callDraining:
		return word(s.drains(l)), nil
	}
	return nil, fmt.Errorf("unknown call %q", name)
}

// ending reports whether all workers are shutting down. The worker of l already
// is. A signal to the whole process group reaches every process, so that the
// worker may receive it before the supervisor. Therefore ending waits for
// signalSkew.
func (s *Supervisor) ending(l *workerLine) bool {
	if l.process.Worker().State == Stopping {
		return s.runner.Stopping()
	}
	return s.runner.ends()
}

// drains reports whether all workers are shutting down. In that case no process
// goes on accepting: the workers must serve the connections in the queues of
// the listeners before they end, and drains keeps new connections out of the
// queues.
func (s *Supervisor) drains(l *workerLine) bool {
	if !s.ending(l) {
		return false
	}
	for _, shared := range s.runner.listeners {
		shared.Control(func(fd uintptr) { _ = listen.TurnAway(fd) }) // otherwise connections of the last moment are lost
	}
	return true
}

// workerReady records that a worker has started.
func (s *Supervisor) workerReady(ctx context.Context, l *workerLine, body []byte) error {
	var r readyMessage
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	s.mu.Lock()
	l.socket = r.Socket
	s.mu.Unlock()
	s.inputs.begin(l.process.generation, r.Read)
	s.inputs.forget(s.runner.Oldest())
	if r.Grace > 0 { // workers of an older build do not send it
		l.process.SetGrace(r.Grace)
	}
	l.process.Ready() // logs it
	s.mu.Lock()       // from here on, and not before, a reload reaches the worker
	s.ready, l.ready = true, true
	behind := s.reloads != l.reloads
	s.mu.Unlock()
	if behind {
		_ = s.reloadWorker(ctx, l) // reloadWorker logs its errors
	}
	s.reportStart(r.Report)
	return nil
}

// reportStart calls Config.Started once all workers are ready for the first
// time.
func (s *Supervisor) reportStart(report json.RawMessage) {
	// The state of a process is Ready before that is logged, so that the state
	// of another worker's process does not show whether its record precedes the
	// report.
	ready := map[int]bool{}
	s.mu.Lock()
	for _, l := range s.lines {
		if l.ready {
			ready[l.process.id] = true
		}
	}
	due := !s.started && len(ready) == s.config.Workers
	s.started = s.started || due
	s.mu.Unlock()
	if due {
		s.manager.Ready()
		s.config.Started(report)
	}
}
