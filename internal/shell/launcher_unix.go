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

// launcher is the command's side of a lease: it starts the command, forwards signals
// to it, and reports to the holder. The process that a script has started has one
// launcher. A process that runs several commands at once has one for each. A launcher
// belongs to one goroutine.
type launcher struct {
	p       Process
	order   Order
	path    string // of the command
	command []string
	stdio   Stdio
	alone   bool // this process has no other command, so the command gets its signals and its terminal

	messages *json.Encoder
	pipe     *os.File    // to the holder, for messages; the holder takes its close for the end of the launcher
	reports  chan report // closed when the holder has ended

	signals  chan os.Signal
	terminal *terminal // nil without one

	group         int    // of the command
	stopRequested bool   // SIGTSTP was forwarded to the group
	preparing     bool   // the holder has the slot, and cleans or prepares it
	interrupted   bool   // a person has ended the wait before the command
	done          bool   // the last report has arrived: the lease is released or lost
	left          bool   // a signal has ended the wait for the last report
	lossReason    string // why the lease was lost; "" if it was not
}

// holderTime bounds the wait for a holder that has to end.
const holderTime = 5 * time.Second

// notifySignals begins to receive the signals that are forwarded to the command
// (X3), until the process ends. A signal that this process ignores is not received:
// the command ignores it, too.
func (l *launcher) notifySignals() {
	for _, s := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGCONT,
	} {
		if !signal.Ignored(s) {
			signal.Notify(l.signals, s)
		}
	}
}

// await waits for a report of the holder before the command runs. A signal ends
// the wait, and leaves nothing in the queue (X8).
func (l *launcher) await(what string) (report, error) {
	for {
		select {
		case r, ok := <-l.reports:
			switch {
			case !ok:
				return r, &Error{Code: "cli.failed", Exit: ExitLost, Text: "The holder of the lease has ended."}
			case r.Err != nil:
				return r, r.Err
			case r.What == what:
				return r, nil
			}
			l.track(r)
		case s := <-l.signals:
			switch s {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
				l.interrupted = isPersons(s)
				return report{}, Status(128 + int(s.(syscall.Signal)))
			}
		}
	}
}

// track records whether the holder has a slot in hand.
func (l *launcher) track(r report) {
	if r.What == preparing || r.What == failing {
		l.preparing = r.What == preparing
	}
}

// close closes the pipe to the holder, and waits at most holderTime for the holder's
// end. It does not wait if this process ends with its command and the lease is released
// or left to the holder. A person who has interrupted the wait for a slot does not wait
// for its --cleanup, as in finish; the report of it may come after the signal.
func (l *launcher) close() {
	_ = l.pipe.Close()
	if (l.done || l.left) && l.alone {
		return
	}
	bound := time.After(holderTime)
	for {
		if l.interrupted && l.preparing && l.order.Cleanup != "" {
			l.p.warn(cleaningOn)
			return
		}
		select {
		case r, ok := <-l.reports:
			if !ok {
				return
			}
			l.track(r)
		case <-bound:
			return
		}
	}
}

// tokenVariable begins the variable by which the holder recognises a command whose group
// was not reported.
const tokenVariable = "MEGA_RUN_TOKEN="

// runEnviron returns environ with a lease (X1) in the place of another one: this
// process may be the command of an exec itself.
func runEnviron(environ []string, key string, fence uint64, slot int, token string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return strings.HasPrefix(kv, "MEGA_RUN_") })
	return append(env,
		"MEGA_RUN_KEY="+key, "MEGA_RUN_FENCE="+strconv.FormatUint(fence, 10),
		"MEGA_RUN_SLOT="+strconv.Itoa(slot), tokenVariable+token,
	)
}

// run starts the command and returns its exit status.
func (l *launcher) run(g report) error {
	// The command is killed when the thread that has started it ends, see
	// ownGroup. The calls before this one take twice as long on a locked thread,
	// notifySignals most of all.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if l.alone {
		l.terminal = openTerminal()
	}
	give := l.terminal.foreground() && !isPipe(os.Stdin) && !isPipe(os.Stdout)
	environ := runEnviron(l.p.Environ, l.order.Key, g.Fence, g.Slot, g.Token)
	child, err := os.StartProcess(l.path, l.command, &os.ProcAttr{
		Dir: l.stdio.Dir, Env: environ, Files: []*os.File{l.stdio.In, l.stdio.Out, l.stdio.Err}, Sys: ownGroup(),
	})
	if err != nil {
		_ = l.messages.Encode(message{Done: true}) // else the holder waits for a command that may have started
		return cannotRun(l.command[0], err)
	}
	l.group = child.Pid
	_ = child.Release() // statuses waits for it, also for its stops
	_ = l.messages.Encode(message{Group: l.group})
	if give {
		l.giveTerminal()
	}
	if l.alone {
		signal.Notify(l.signals, syscall.SIGTSTP)
	}
	return l.supervise(statuses(l.group))
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
func (l *launcher) supervise(states <-chan syscall.WaitStatus) error {
	reports := l.reports
	for {
		select {
		case s, ok := <-states:
			switch {
			case !ok:
				return errUnwaited()
			case s.Stopped():
				l.suspend(s.StopSignal())
			default:
				return l.finish(s)
			}
		case s := <-l.signals:
			l.forward(s.(syscall.Signal))
		case r, ok := <-reports:
			if l.handleLast(r); !ok { // nobody renews the lease any more, or enforces its end
				l.recordLoss("its holder has ended")
				_ = signalGroup(l.group, syscall.SIGKILL)
			}
			if !ok || l.done { // the holder may see the end of the command first
				reports = nil
			}
		}
	}
}

// recordLoss records the first reason of a loss. The exit status is then ExitLost,
// whatever the command returns (X4).
func (l *launcher) recordLoss(why string) {
	if l.lossReason == "" {
		l.lossReason = why
	}
}

// handleLast handles a report that ends the lease, stopping or over, and no other.
func (l *launcher) handleLast(r report) {
	switch {
	case r.What == stopping:
		l.recordLoss(r.Text)
	case r.Err != nil:
		l.recordLoss(r.Err.Text)
	}
	if r.What == over {
		l.done = true
		if r.Err == nil && r.Text != "" {
			l.p.warn("%s", r.Text)
		}
	}
}

// finish waits for the release of the lease and returns the exit status (X2). SIGINT and
// SIGQUIT, which a person sends, end the wait for a --cleanup, which may take long. The
// holder completes it, and has the lease meanwhile (P3). After a loss it cleans nothing.
func (l *launcher) finish(s syscall.WaitStatus) error {
	l.terminal.takeBack(l.group)
	_ = l.messages.Encode(message{Done: true})
	var interrupts chan os.Signal // nil where the release alone is left: it is short
	if l.order.Cleanup != "" {
		interrupts = l.signals
	}
	for ended := false; !l.done && !ended; {
		select {
		case r, ok := <-l.reports:
			l.handleLast(r)
			ended = !ok
		case s := <-interrupts:
			if l.lossReason == "" && isPersons(s) {
				l.left = true
				l.p.warn(cleaningOn)
				return Status(128 + int(s.(syscall.Signal)))
			}
		}
	}
	if l.lossReason != "" {
		return &Error{Code: "lock.lost", Exit: ExitLost, Text: "The command was ended because its lease was lost: " + strings.TrimSuffix(l.lossReason, ".") + "."}
	}
	return statusOf(s)
}

// isPersons reports whether s is a signal that a person sends at a terminal.
func isPersons(s os.Signal) bool { return s == syscall.SIGINT || s == syscall.SIGQUIT }

// cleaningOn is the message to a person who has interrupted a --cleanup.
const cleaningOn = "interrupted; --cleanup continues in the background"

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
func (l *launcher) forward(s syscall.Signal) {
	switch s {
	case syscall.SIGTSTP:
		l.stopRequested = true
	case syscall.SIGCONT:
		l.resume()
		return
	}
	_ = signalGroup(l.group, s)
}

// resume continues the group after this process was continued, in the
// foreground if this process is there.
func (l *launcher) resume() {
	if l.terminal.foreground() {
		l.giveTerminal()
		return
	}
	_ = signalGroup(l.group, syscall.SIGCONT)
}

// giveTerminal makes the group the foreground group of the terminal, and continues
// its members: one that has used the terminal before was stopped.
func (l *launcher) giveTerminal() {
	l.terminal.give(l.group)
	_ = signalGroup(l.group, syscall.SIGCONT)
}

// stopTime is the longest time from the call that stops this process to SIGCONT, as
// far as this process runs in it.
const stopTime = 100 * time.Millisecond

// suspend stops this process after the group was stopped by the signal by, and
// continues the group when this process continues. The holder renews the lease
// meanwhile (X3).
func (l *launcher) suspend(by syscall.Signal) {
	if l.terminal != nil && (by == syscall.SIGTTIN || by == syscall.SIGTTOU) {
		l.awaitTerminal()
		return
	}
	inFront := l.terminal.takeBack(l.group)
	if !inFront && !l.stopRequested {
		return // somebody has stopped the command alone
	}
	l.stopRequested = false
	if session, err := unix.Getsid(0); err != nil || session != os.Getpid() { // nothing continues a process without a shell
		if inFront { // with the script that this process belongs to, as the terminal would have
			signal.Ignore(syscall.SIGTSTP) // Go does not restore its default
			_ = signalGroup(syscall.Getpgrp(), syscall.SIGTSTP)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		l.continued()
		signal.Notify(l.signals, syscall.SIGTSTP)
	}
	l.resume()
}

// awaitTerminal handles the stop of a group that needs the terminal. In the
// foreground it gives the terminal to the group. In the background it stops this
// process and its script, as the terminal would have done; SIGCONT then resumes the
// group.
func (l *launcher) awaitTerminal() {
	switch l.terminal.owner() {
	case l.terminal.own, l.group: // the group may have received it meanwhile
		l.giveTerminal()
	default: // SIGTTIN has its default, under which a process that no shell continues does not stop
		_ = signalGroup(syscall.Getpgrp(), syscall.SIGTTIN)
	}
}

// continued waits at most stopTime for the SIGCONT that continues this process, and
// forwards other signals.
func (l *launcher) continued() {
	bound := time.After(stopTime)
	for {
		select {
		case s := <-l.signals:
			if s == syscall.SIGCONT {
				return
			}
			_ = signalGroup(l.group, s.(syscall.Signal))
		case <-bound:
			return
		}
	}
}

func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}
