package supervisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// State is what a worker is doing.
type State string

// The states of a worker.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Stopping State = "stopping"
	Failing  State = "failing" // it has no process: those that were started died, and the next is tried in a while
)

// Worker is what there is to know of a worker.
type Worker struct {
	ID         int       `json:"id"` // from 1 on; whoever replaces it has it next
	PID        int       `json:"pid"`
	Generation int       `json:"generation"` // grows with each restart of all workers
	State      State     `json:"state"`
	Since      time.Time `json:"since"`    // when it came into its state
	Restarts   int       `json:"restarts"` // how many processes were replaced that had its number

	Ended string `json:"ended,omitempty"` // of one that fails, how the last process did
}

// Process is a worker that has been started. Its methods may be called
// concurrently.
type Process struct {
	of         *Supervisor
	id         int
	generation int
	began      time.Time
	cmd        *exec.Cmd
	ready      chan struct{} // closed when it is ready
	over       chan struct{} // closed when it has ended, and with it its line
	gone       bool          // the turns': it has ended

	mu    sync.Mutex // guards the fields below
	state State
	since time.Time
	told  []byte
	grace time.Duration // that it has to end once it was told to
	kill  *time.Timer   // runs once it was told to end
	asked bool          // it was told to end
	late  bool          // it was killed because it did not
	dead  bool          // it has ended
}

// ID is the number of the worker.
func (p *Process) ID() int { return p.id }

// Generation is that which it was started in.
func (p *Process) Generation() int { return p.generation }

// PID is that of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Over is closed when the process has ended, and with it its line.
func (p *Process) Over() <-chan struct{} { return p.over }

// Told is what the worker said when it was ready; nil before.
func (p *Process) Told() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told
}

// Worker is what there is to know of the process now, but for its Restarts.
func (p *Process) Worker() Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Worker{ID: p.id, PID: p.PID(), Generation: p.generation, State: p.state, Since: p.since}
}

// SetGrace sets the time that the worker has to end, in the place of Config.Grace: a
// worker of a later generation may have been given more. It changes nothing once
// the worker was told to end.
func (p *Process) SetGrace(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked {
		p.grace = grace
	}
}

// Ready says that the worker is, and what it told. Only the first call counts.
func (p *Process) Ready(told []byte) {
	first, serves := p.settle(told)
	if serves { // before whoever waits for it says more
		p.of.config.Log.Info("a worker is ready", "worker", p.id, "pid", p.PID(), "generation", p.generation, "took", time.Since(p.began))
	}
	if first {
		close(p.ready)
	}
}

func (p *Process) settle(told []byte) (first, serves bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told != nil {
		return false, false
	}
	p.told = append([]byte{}, told...)
	if p.state != Starting {
		return true, false
	}
	p.state, p.since = Ready, time.Now()
	return true, true
}

// start starts a worker.
func (s *Supervisor) start(id, generation int) (*Process, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("make a line to the worker: %w", err)
	}
	defer func() { _ = theirs.Close() }()
	files := []*os.File{theirs}
	defer func() {
		for _, f := range files[1:] {
			_ = f.Close()
		}
	}()
	for _, l := range s.config.Listeners {
		f, err := l.file()
		if err != nil {
			_ = ours.Close()
			return nil, fmt.Errorf("pass the listener %s on: %w", l.Name, err)
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
		s.config.Serve(p, ours)
	}()
	go p.wait(line, ours)
	return p, nil
}

// firstFile is the descriptor of the first inherited file.
const firstFile = 3

func (s *Supervisor) command(id, generation int, files []*os.File) *exec.Cmd {
	var listeners []string
	for i, l := range s.config.Listeners {
		listeners = append(listeners, l.Name+"="+strconv.Itoa(firstFile+1+i))
	}
	return &exec.Cmd{
		Path: s.config.Path, Args: s.config.Args, Stdout: s.config.Stdout, Stderr: s.config.Stderr, ExtraFiles: files,
		Env: append(without(s.config.Env),
			envID+"="+strconv.Itoa(id), envLine+"="+strconv.Itoa(firstFile), envGeneration+"="+strconv.Itoa(generation),
			envListeners+"="+strings.Join(listeners, ","),
		),
		WaitDelay: lastWord, SysProcAttr: wakes(),
	}
}

// lastWord is what a line gets to be read to its end when its worker is gone. A
// child of the worker that has inherited it keeps it open no longer than that.
const lastWord = 200 * time.Millisecond

// wait waits for the end of the process and then of its line.
func (p *Process) wait(line <-chan struct{}, conn net.Conn) {
	err := p.cmd.Wait()
	p.mu.Lock()
	p.dead = true
	if p.kill != nil {
		p.kill.Stop()
	}
	cut, asked := p.cutLocked(err), p.asked
	p.mu.Unlock()
	if asked && cut != nil {
		p.of.config.Log.Warn("a worker could not finish everything", "worker", p.id, "pid", p.PID(), "ended", cut)
	}
	late := time.AfterFunc(lastWord, func() { hangUp(conn) })
	<-line
	late.Stop()
	p.of.leave(p, cut)
	close(p.over)
}

// hangUp ends the line of a worker that is gone, as the worker's own end does:
// whoever reads it comes to its end, and not to one that this side has made,
// which would say nothing of the worker.
func hangUp(conn net.Conn) {
	if c, ok := conn.(*net.UnixConn); !ok || c.CloseRead() != nil {
		_ = conn.Close() // it ends one way or another
	}
}

// cutLocked is what went wrong with the end of a worker, as far as it has to be
// told in the end: that of one which was told to end before it was ready may be
// by the signal itself.
func (p *Process) cutLocked(err error) error {
	switch {
	case p.late:
		return fmt.Errorf("killed: it had not ended within %v", p.grace)
	case (p.asked || p.of.Stopping()) && p.told == nil && terminated(p.cmd.ProcessState):
		return nil
	case errors.Is(err, exec.ErrWaitDelay):
		return nil
	}
	return err
}

func terminated(s *os.ProcessState) bool {
	status, ok := s.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// Stop tells the worker to end: it finishes what it has accepted. It does not
// wait for that.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked || p.dead {
		return
	}
	p.asked, p.state, p.since = true, Stopping, time.Now()
	p.kill = time.AfterFunc(p.grace, p.killLate)
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // one that has ended has done so
}

func (p *Process) killLate() {
	p.mu.Lock()
	p.late = true
	grace := p.grace
	p.mu.Unlock()
	p.of.config.Log.Error("a worker does not end and is killed", "worker", p.id, "pid", p.PID(), "after", grace)
	_ = p.cmd.Process.Kill()
}

// Hung has the worker write its stacks and end, because it has not answered for
// that long. It is replaced as one that has died.
func (p *Process) Hung(silent time.Duration) {
	p.of.config.Log.Error("worker hung, killed", "worker", p.id, "pid", p.PID(), "silent", silent)
	p.abort()
}

// abortTime is what a worker gets to write its stacks.
const abortTime = 2 * time.Second

func (p *Process) abort() {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // the runtime writes all stacks and ends
	late := time.AfterFunc(abortTime, func() { _ = p.cmd.Process.Kill() })
	go func() {
		<-p.over
		late.Stop()
	}()
}

// ended is how a process ended, in words, and its exit status; -1 if that was a
// signal.
func (p *Process) ended() (string, int) {
	return p.cmd.ProcessState.String(), p.cmd.ProcessState.ExitCode()
}
