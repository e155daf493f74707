//go:build linux || darwin

package shell

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// front is the command's side of a lease: it starts the command, forwards signals
// to it, and reports to the holder. The process that a script has started has one
// front. A process that runs several commands at once has one for each. A front
// belongs to one goroutine.
type front struct {
	p       Process
	order   Order
	path    string // of the command
	command []string
	stdio   Stdio
	alone   bool // this process has no other command, so the command gets its signals and its terminal

	messages *json.Encoder
	pipe     *os.File    // to the holder, for messages; the holder takes its close for the end of the front
	reports  chan report // closed when the holder has ended

	signals  chan os.Signal
	terminal *terminal // nil without one

	group         int    // of the command
	stopRequested bool   // SIGTSTP was forwarded to the group
	done          bool   // the last report has arrived: the lease is released or lost
	lossReason    string // why the lease was lost; "" if it was not
}

// holderTime bounds the wait for a holder that has to end.
const holderTime = 5 * time.Second

// notifySignals begins to receive the signals that are forwarded to the command
// (X3), until the process ends. A signal that this process ignores is not received:
// the command ignores it, too.
func (f *front) notifySignals() {
	for _, s := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGCONT,
	} {
		if !signal.Ignored(s) {
			signal.Notify(f.signals, s)
		}
	}
}

// await waits for a report of the holder before the command runs. A signal ends
// the wait, and leaves nothing in the queue (X8).
func (f *front) await(what string) (report, error) {
	for {
		select {
		case r, ok := <-f.reports:
			switch {
			case !ok:
				return r, &Error{Code: "cli.failed", Exit: ExitLost, Text: "The holder of the lease has ended."}
			case r.Err != nil:
				return r, r.Err
			case r.What == what:
				return r, nil
			}
		case s := <-f.signals:
			switch s {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
				return report{}, Status(128 + int(s.(syscall.Signal)))
			}
		}
	}
}

// close closes the pipe to the holder, and waits at most holderTime for the holder's
// end. It does not wait if the lease is released and this process ends with its
// command.
func (f *front) close() {
	_ = f.pipe.Close()
	if f.done && f.alone {
		return
	}
	bound := time.After(holderTime)
	for {
		select {
		case _, ok := <-f.reports:
			if !ok {
				return
			}
		case <-bound:
			return
		}
	}
}

// environ returns the environment of the command (X1).
func (f *front) environ(g report) []string {
	return runEnviron(f.p.Environ, f.order.Key, g.Fence, g.Slot, g.Token)
}

// runEnviron returns environ with a lease in the place of another one: this
// process may be the command of an exec itself.
func runEnviron(environ []string, key string, fence uint64, slot int, token string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return strings.HasPrefix(kv, "MEGA_RUN_") })
	return append(env,
		"MEGA_RUN_KEY="+key, "MEGA_RUN_FENCE="+strconv.FormatUint(fence, 10),
		"MEGA_RUN_SLOT="+strconv.Itoa(slot), "MEGA_RUN_TOKEN="+token,
	)
}

// run starts the command and returns its exit status.
func (f *front) run(g report) error {
	// The command is killed when the thread that has started it ends, see
	// ownGroup. The calls before this one take twice as long on a locked thread,
	// notifySignals most of all.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if f.alone {
		f.terminal = openTerminal()
	}
	give := f.terminal.foreground() && !isPipe(os.Stdin) && !isPipe(os.Stdout)
	child, err := os.StartProcess(f.path, f.command, &os.ProcAttr{
		Dir: f.stdio.Dir, Env: f.environ(g), Files: []*os.File{f.stdio.In, f.stdio.Out, f.stdio.Err}, Sys: ownGroup(),
	})
	if err != nil {
		_ = f.messages.Encode(message{Done: true}) // else the holder waits for a command that may have started
		return cannotRun(f.command[0], err)
	}
	f.group = child.Pid
	_ = child.Release() // statuses waits for it, also for its stops
	_ = f.messages.Encode(message{Group: f.group})
	if give {
		f.giveTerminal()
	}
	if f.alone {
		signal.Notify(f.signals, syscall.SIGTSTP)
	}
	return f.supervise(statuses(f.group))
}

// statuses returns the stops of a process, and its end as the last one.
func statuses(pid int) <-chan syscall.WaitStatus {
	all := make(chan syscall.WaitStatus, 1)
	go func() {
		defer close(all)
		for {
			var s syscall.WaitStatus
			_, err := syscall.Wait4(pid, &s, syscall.WUNTRACED, nil)
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				return
			}
			all <- s
			if s.Exited() || s.Signaled() {
				return
			}
		}
	}()
	return all
}

// supervise forwards signals to the command and handles its stops until it has
// ended. It kills the command if the holder ends first (X5).
func (f *front) supervise(states <-chan syscall.WaitStatus) error {
	reports := f.reports
	for {
		select {
		case s, ok := <-states:
			switch {
			case !ok:
				return errUnwaited()
			case s.Stopped():
				f.suspend(s.StopSignal())
			default:
				return f.finish(s)
			}
		case s := <-f.signals:
			f.forward(s.(syscall.Signal))
		case r, ok := <-reports:
			switch {
			case !ok:
				// Nobody renews the lease any more, or enforces its end.
				reports = nil
				f.recordLoss("its holder has ended")
				_ = signalGroup(f.group, syscall.SIGKILL)
			case r.What == stopping:
				f.recordLoss(r.Text)
			case r.What == over: // the holder may see the end of the command first
				f.handleLast(r)
				reports = nil
			}
		}
	}
}

// recordLoss records the first reason of a loss. The exit status is then ExitLost,
// whatever the command returns (X4).
func (f *front) recordLoss(why string) {
	if f.lossReason == "" {
		f.lossReason = why
	}
}

// handleLast handles a report that ends the lease: stopping or over.
func (f *front) handleLast(r report) {
	switch {
	case r.What == stopping:
		f.recordLoss(r.Text)
	case r.Err != nil:
		f.recordLoss(r.Err.Text)
	}
	if r.What == over {
		f.done = true
		if r.Err == nil && r.Text != "" {
			f.p.warn("%s", r.Text)
		}
	}
}

// finish waits for the release of the lease and returns the exit status (X2).
func (f *front) finish(s syscall.WaitStatus) error {
	f.terminal.takeBack(f.group)
	_ = f.messages.Encode(message{Done: true})
	for !f.done {
		r, ok := <-f.reports
		if !ok {
			break
		}
		f.handleLast(r)
	}
	if f.lossReason != "" {
		return &Error{Code: "lock.lost", Exit: ExitLost, Text: "The command was ended because its lease was lost: " + strings.TrimSuffix(f.lossReason, ".") + "."}
	}
	return statusOf(s)
}

// statusOf returns the exit status of a command that has ended (X2).
func statusOf(s syscall.WaitStatus) Status {
	if s.Signaled() {
		return Status(128 + int(s.Signal()))
	}
	return Status(s.ExitStatus())
}

func errUnwaited() error {
	return &Error{Code: "cli.failed", Exit: ExitLost, Text: "The command cannot be waited for."}
}

// forward sends a signal that this process has received to the group (X3).
func (f *front) forward(s syscall.Signal) {
	switch s {
	case syscall.SIGTSTP:
		f.stopRequested = true
	case syscall.SIGCONT:
		f.resume()
		return
	}
	_ = signalGroup(f.group, s)
}

// resume continues the group after this process was continued, in the
// foreground if this process is there.
func (f *front) resume() {
	if f.terminal.foreground() {
		f.giveTerminal()
		return
	}
	_ = signalGroup(f.group, syscall.SIGCONT)
}

// giveTerminal makes the group the foreground group of the terminal, and continues
// its members: one that has used the terminal before was stopped.
func (f *front) giveTerminal() {
	f.terminal.give(f.group)
	_ = signalGroup(f.group, syscall.SIGCONT)
}

// stopTime is the longest time from the call that stops this process to SIGCONT, as
// far as this process runs in it.
const stopTime = 100 * time.Millisecond

// suspend stops this process after the group was stopped by the signal by, and
// continues the group when this process continues. The holder renews the lease
// meanwhile (X3).
func (f *front) suspend(by syscall.Signal) {
	if f.terminal != nil && (by == syscall.SIGTTIN || by == syscall.SIGTTOU) {
		f.awaitTerminal()
		return
	}
	inFront := f.terminal.takeBack(f.group)
	if !inFront && !f.stopRequested {
		return // somebody has stopped the command alone
	}
	f.stopRequested = false
	if session, err := unix.Getsid(0); err != nil || session != os.Getpid() { // nothing continues a process without a shell
		if inFront { // with the script that this process belongs to, as the terminal would have
			signal.Ignore(syscall.SIGTSTP) // Go does not restore its default
			_ = signalGroup(syscall.Getpgrp(), syscall.SIGTSTP)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		f.continued()
		signal.Notify(f.signals, syscall.SIGTSTP)
	}
	f.resume()
}

// awaitTerminal handles the stop of a group that needs the terminal. In the
// foreground it gives the terminal to the group. In the background it stops this
// process and its script, as the terminal would have done; SIGCONT then resumes the
// group.
func (f *front) awaitTerminal() {
	switch f.terminal.owner() {
	case f.terminal.own, f.group: // the group may have received it meanwhile
		f.giveTerminal()
	default: // SIGTTIN has its default, under which a process that no shell continues does not stop
		_ = signalGroup(syscall.Getpgrp(), syscall.SIGTTIN)
	}
}

// continued waits at most stopTime for the SIGCONT that continues this process, and
// forwards other signals.
func (f *front) continued() {
	bound := time.After(stopTime)
	for {
		select {
		case s := <-f.signals:
			if s == syscall.SIGCONT {
				return
			}
			_ = signalGroup(f.group, s.(syscall.Signal))
		case <-bound:
			return
		}
	}
}

func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}
