package redistest

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// Process is a child process that does not outlive this one: on Linux the
// kernel kills it when this process dies in any way. There it leads a process
// group, and every signal goes to the whole group.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended; err is set before
	err  error
}

// StartProcess starts cmd, which must not have been started, as a child that
// does not outlive this process.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = ownedChild()
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run starts the process and waits for it on one thread. The kernel kills the
// child when the thread that started it ends, so the thread must live as long.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process and returns the same error as
// [exec.Cmd.Wait].
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Kill ends the process with SIGKILL and waits for its exit. It is idempotent.
func (p *Process) Kill() error {
	if p.gone() {
		return nil
	}
	if err := killGroup(p.cmd); err != nil && !p.gone() {
		return fmt.Errorf("kill %s: %w", p.cmd.Path, err)
	}
	<-p.done
	return nil
}

// Stop asks the process to end, and kills it if it runs after grace.
func (p *Process) Stop(grace time.Duration) error {
	if p.gone() {
		return nil
	}
	if err := errors.Join(terminate(p.cmd), p.Continue()); err != nil {
		return p.Kill()
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
		return p.Kill()
	}
}

// Pause stops the process (SIGSTOP) until Continue. It returns when each thread
// of the process has stopped: a thread may answer for a while after the signal
// was sent.
func (p *Process) Pause() error {
	if err := pause(p.cmd); err != nil {
		return err
	}
	for end := time.Now().Add(stopTimeout); !isStopped(p.PID()) && !p.gone(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("process %d does not stop within %v", p.PID(), stopTimeout)
		}
	}
	return nil
}

// stopTimeout is the maximum time from SIGSTOP until the threads have stopped.
const stopTimeout = 20 * time.Second

// Continue resumes a paused process (SIGCONT).
func (p *Process) Continue() error { return proceed(p.cmd) }

func (p *Process) gone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
