package workers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/systemd"
)

// State is the state of a worker.
type State string

// The states of a worker.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Stopping State = "stopping"
	Failing  State = "failing" // its processes died before they were ready; it has none until the next attempt
	Down     State = "down"    // its first process has not been started, or the last one has died and has not been replaced
)

// Worker describes the state of a worker.
type Worker struct {
	ID         int       `json:"id"` // from 1 on; a replacement keeps the number
	PID        int       `json:"pid"`
	Generation int       `json:"generation"` // grows with each restart of all workers
	State      State     `json:"state"`
	Since      time.Time `json:"since"`    // when the worker entered its state
	Restarts   int       `json:"restarts"` // how many processes with this number were replaced

	Ended  string    `json:"ended,omitempty"` // of a failing worker: how its last process ended
	Next   time.Time `json:"next,omitzero"`   // when a worker without a process gets one; zero: at once
	Socket string    `json:"-"`               // path of its admin socket; empty without one
}

// Process is a worker process that has been started. Its methods may be called
// concurrently.
type Process struct {
	of         *runner
	id         int
	generation int
	began      time.Time
	cmd        *exec.Cmd
	ready      chan struct{} // closed when the worker is ready
	over       chan struct{} // closed when the process and its line have ended
	gone       bool          // the process has ended; belongs to turns

	mu    sync.Mutex // guards the fields below
	state State
	since time.Time
	once  bool          // Ready was called
	grace time.Duration // the time from the request to end until the kill
	kill  *time.Timer   // runs after the request to end, or the end of the line
	asked bool          // the worker was asked to end
	late  bool          // the worker was killed because it did not end in time
	dead  bool          // the process has ended
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// wasReady reports whether Ready was called.
func (p *Process) wasReady() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.once
}

// Worker returns the current state of the process, without its Restarts.
func (p *Process) Worker() Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Worker{ID: p.id, PID: p.PID(), Generation: p.generation, State: p.state, Since: p.since}
}

// SetGrace sets the time that the worker has to end, in place of Config.Grace:
// a worker of a later generation may have a longer grace period. It has no
// effect after the worker was asked to end.
func (p *Process) SetGrace(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked {
		p.grace = grace
	}
}

// Ready marks the worker as ready. Only the first call counts.
func (p *Process) Ready() {
	first, serves := p.settle()
	if serves { // before the waiter logs more
		p.of.config.Log.Info("worker ready", "worker", p.id, "pid", p.PID(), "generation", p.generation, "took", time.Since(p.began))
	}
	if first {
		close(p.ready)
	}
}

func (p *Process) settle() (first, serves bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.once {
		return false, false
	}
	p.once = true
	if p.state != Starting {
		return true, false
	}
	p.state, p.since = Ready, time.Now()
	return true, true
}

// start starts a worker process. It returns neither a process nor an error if
// all workers are ending.
func (s *runner) start(id, generation int) (*Process, error) {
	s.starting.RLock()
	defer s.starting.RUnlock()
	if s.Stopping() {
		return nil, nil
	}
	ours, theirs, err := cluster.Pair()
	if err != nil {
		return nil, fmt.Errorf("create the line to the worker: %w", err)
	}
	defer func() { _ = theirs.Close() }()
	files := []*os.File{theirs}
	defer func() {
		for _, f := range files[1:] {
			_ = f.Close()
		}
	}()
	for _, l := range s.listeners {
		f, err := l.file()
		if err != nil {
			_ = ours.Close()
			return nil, fmt.Errorf("pass listener %s: %w", l.Name, err)
		}
		files = append(files, f)
	}
	p := &Process{
		of: s, id: id, generation: generation, began: time.Now(), cmd: s.command(id, generation, files),
		ready: make(chan struct{}), over: make(chan struct{}), state: Starting, since: time.Now(),
		grace: s.config.Grace,
	}
	if err := p.cmd.Start(); err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	s.enter(p)
	line := make(chan struct{})
	go func() {
		defer close(line)
		s.serve(p, ours)
		p.lineEnded()
	}()
	go p.wait(line, ours)
	return p, nil
}

// firstFile is the descriptor of the first inherited file.
const firstFile = 3

func (s *runner) command(id, generation int, files []*os.File) *exec.Cmd {
	var listeners []string
	for i, l := range s.listeners {
		listeners = append(listeners, l.Name+"="+strconv.Itoa(firstFile+1+i))
	}
	return &exec.Cmd{
		Path: s.config.Path, Args: s.config.Args, Dir: existing(s.config.Dir), Stdout: s.config.Stdout, Stderr: s.config.Stderr, ExtraFiles: files,
		Env: append(Without(systemd.Without(s.config.Environ)),
			envID+"="+strconv.Itoa(id), envLine+"="+strconv.Itoa(firstFile), envGeneration+"="+strconv.Itoa(generation),
			envListeners+"="+strings.Join(listeners, ","),
		),
		WaitDelay: lineDrainTime, SysProcAttr: continueAtParentDeath(),
	}
}

// existing returns dir if it is a folder that this process may enter, and ""
// otherwise: a worker that has its files from the supervisor needs no folder.
func existing(dir string) string {
	if _, err := os.Stat(dir + "/."); err != nil { // looks up a name in dir
		return ""
	}
	return dir
}

// lineDrainTime is how long the supervisor reads the rest of a line after its worker
// has ended. A child of the worker that has inherited the line keeps it open no
// longer than that.
const lineDrainTime = 200 * time.Millisecond

// wait waits for the end of the process and then for the end of its line.
func (p *Process) wait(line <-chan struct{}, conn net.Conn) {
	err := p.cmd.Wait()
	p.mu.Lock()
	p.dead = true
	if p.kill != nil {
		p.kill.Stop()
	}
	p.mu.Unlock()
	late := time.AfterFunc(lineDrainTime, func() { hangUp(conn) })
	<-line
	late.Stop()
	p.of.leave(p, err)
	close(p.over)
}

// lineEnded gives a worker without a line its grace period to end by itself. A
// worker that is stopped does not notice the end of its line, and without a line
// nothing detects that it hangs.
func (p *Process) lineEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead && p.kill == nil {
		p.kill = time.AfterFunc(p.grace, p.killLate)
	}
}

// hangUp ends the line of a worker that has ended, in the same way as the
// worker's own exit does. The reader of the line then sees the end of the
// stream. It does not see an error that this side has made, which would not
// describe the worker.
func hangUp(conn net.Conn) {
	if c, ok := conn.(*net.UnixConn); !ok || c.CloseRead() != nil {
		_ = conn.Close() // the line ends in any case
	}
}

// cut returns the error that Run reports for a worker that ended with err, or nil, and
// whether the worker was asked to end. A worker that was asked to end before it was ready
// may have died of the signal itself, which is not an error.
func (p *Process) cut(err error, stopping bool) (cut error, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.late:
		return fmt.Errorf("killed: no exit within %v", p.grace), p.asked
	case (p.asked || stopping) && !p.once && terminated(p.cmd.ProcessState):
		return nil, p.asked
	case errors.Is(err, exec.ErrWaitDelay):
		return nil, p.asked
	}
	return err, p.asked
}

// terminated reports whether a process has died of a signal that ends all
// workers: the supervisor's SIGTERM, or one to the whole process group, which a
// worker that has just been started does not catch yet.
func terminated(s *os.ProcessState) bool {
	status, ok := s.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && slices.Contains([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}, status.Signal())
}

// Stop asks the worker to end: it finishes the work that it has accepted. Stop
// does not wait for the end.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked || p.dead {
		return
	}
	p.asked, p.state, p.since = true, Stopping, time.Now()
	if p.kill == nil {
		p.kill = time.AfterFunc(p.grace, p.killLate)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that the process has ended already
}

func (p *Process) killLate() {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	p.late = true
	grace := p.grace
	p.mu.Unlock()
	p.of.config.Log.Error("worker killed after its grace period", "worker", p.id, "pid", p.PID(), "after", grace)
	_ = p.cmd.Process.Kill()
}

// Hung makes the worker write its stacks and end, because it has not answered
// for the duration silent. The supervisor then replaces it like a worker that
// has died.
func (p *Process) Hung(silent time.Duration) {
	p.of.config.Log.Error("worker hung, killed", "worker", p.id, "pid", p.PID(), "silent", silent)
	p.abort()
}

// abortTime is how long a worker may take to write its stacks.
const abortTime = 2 * time.Second

func (p *Process) abort() {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // the runtime writes all stacks and ends
	late := time.AfterFunc(abortTime, func() { _ = p.cmd.Process.Kill() })
	go func() {
		<-p.over
		late.Stop()
	}()
}

// hasEnded reports whether the process has ended.
func (p *Process) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// ended returns a description of how the process ended and its exit status, or
// -1 after a signal.
func (p *Process) ended() (string, int) {
	return p.cmd.ProcessState.String(), p.cmd.ProcessState.ExitCode()
}
