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

// front is the process that the script has started, or one of several commands
// of a process.
type front struct {
	p       Process
	order   Order
	path    string // of the command
	command []string
	stdio   Stdio
	alone   bool // this process has no other command: it has its signals and its terminal

	words   *json.Encoder
	ear     *os.File    // the holder's end of words; its close is the end of the front
	reports chan report // closed when the holder has ended

	signals  chan os.Signal
	terminal *terminal // nil without one

	group   int    // of the command
	asked   bool   // the front has received a request to stop, and has passed it on to the group
	over    bool   // the lease is released, and the holder ends
	stopped string // why the lease was lost; "" if it was not
}

// holderTime bounds the wait for a holder that has to end.
const holderTime = 5 * time.Second

// listen receives the signals that belong to the command (X3), until the process
// ends with its verb. A signal that is ignored stays so, for the command too.
func (f *front) listen() {
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

// leave waits until the holder has given back what it has. A process that goes on
// waits for its end.
func (f *front) leave() {
	_ = f.ear.Close()
	if f.over && f.alone {
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
	// The command dies with the thread that has started it, see ownGroup. The
	// calls before it, listen most of all, take twice as long on a locked thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if f.alone {
		f.terminal = openTerminal()
	}
	hand := f.terminal.foreground() && !isPipe(os.Stdin) && !isPipe(os.Stdout)
	child, err := os.StartProcess(f.path, f.command, &os.ProcAttr{
		Dir: f.stdio.Dir, Env: f.environ(g), Files: []*os.File{f.stdio.In, f.stdio.Out, f.stdio.Err}, Sys: ownGroup(),
	})
	if err != nil {
		_ = f.words.Encode(word{Done: true}) // else the holder waits for a command that may have started
		return cannotRun(f.command[0], err)
	}
	f.group = child.Pid
	_ = child.Release() // statuses waits for it, also for its stops
	_ = f.words.Encode(word{Group: f.group})
	if hand {
		f.hand()
	}
	if f.alone {
		signal.Notify(f.signals, syscall.SIGTSTP)
	}
	return f.follow(statuses(f.group))
}

// ended is a change of the command's state.
type ended = syscall.WaitStatus

// statuses returns the stops of a process, and its end as the last one.
func statuses(pid int) <-chan ended {
	all := make(chan ended, 1)
	go func() {
		defer close(all)
		for {
			var s ended
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

// follow passes signals on until the command has ended.
func (f *front) follow(states <-chan ended) error {
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
			f.pass(s.(syscall.Signal))
		case r, ok := <-reports:
			switch {
			case !ok:
				// Nobody renews the lease any more, or enforces its end.
				reports = nil
				f.lost("its holder has ended")
				_ = kill(f.group, syscall.SIGKILL)
			case r.What == stopping:
				f.lost(r.Text)
			case r.What == over: // the holder may see the end of the command first
				f.end(r)
				reports = nil
			}
		}
	}
}

// lost records that the status is ExitLost, whatever the command returns (X4).
func (f *front) lost(why string) {
	if f.stopped == "" {
		f.stopped = why
	}
}

// end handles the last reports of the holder.
func (f *front) end(r report) {
	switch {
	case r.What == stopping:
		f.lost(r.Text)
	case r.Err != nil:
		f.lost(r.Err.Text)
	}
	if r.What == over {
		f.over = true
		if r.Err == nil && r.Text != "" {
			f.p.warn("%s", r.Text)
		}
	}
}

// finish waits for the release of the lease and returns the exit status (X2).
func (f *front) finish(s ended) error {
	f.terminal.takeBack(f.group)
	_ = f.words.Encode(word{Done: true})
	for !f.over {
		r, ok := <-f.reports
		if !ok {
			break
		}
		f.end(r)
	}
	if f.stopped != "" {
		return &Error{Code: "lock.lost", Exit: ExitLost, Text: "The command was ended because its lease was lost: " + strings.TrimSuffix(f.stopped, ".") + "."}
	}
	return statusOf(s)
}

// statusOf returns the exit status of a command that has ended (X2).
func statusOf(s ended) Status {
	if s.Signaled() {
		return Status(128 + int(s.Signal()))
	}
	return Status(s.ExitStatus())
}

func errUnwaited() error {
	return &Error{Code: "cli.failed", Exit: ExitLost, Text: "The command cannot be waited for."}
}

// pass passes a signal to the group (X3).
func (f *front) pass(s syscall.Signal) {
	switch s {
	case syscall.SIGTSTP:
		f.asked = true
	case syscall.SIGCONT:
		f.resume()
		return
	}
	_ = kill(f.group, s)
}

// resume continues the group after this process was continued, in the
// foreground if this process is there.
func (f *front) resume() {
	if f.terminal.foreground() {
		f.hand()
		return
	}
	_ = kill(f.group, syscall.SIGCONT)
}

// hand makes the group the foreground of the terminal. A member that has used
// the terminal before is stopped, and continues.
func (f *front) hand() {
	f.terminal.give(f.group)
	_ = kill(f.group, syscall.SIGCONT)
}

// stopTime bounds the time that a stop of this process takes.
const stopTime = 100 * time.Millisecond

// suspend stops this process after the group was stopped. The lease is kept:
// the holder renews it (X3).
func (f *front) suspend(by syscall.Signal) {
	if f.terminal != nil && (by == syscall.SIGTTIN || by == syscall.SIGTTOU) {
		f.awaitTerminal()
		return
	}
	inFront := f.terminal.takeBack(f.group)
	if !inFront && !f.asked {
		return // somebody has stopped the command alone
	}
	f.asked = false
	if session, err := unix.Getsid(0); err != nil || session != os.Getpid() { // nothing continues a process without a shell
		if inFront { // with the script that this process belongs to, as the terminal would have
			signal.Ignore(syscall.SIGTSTP) // Go does not restore its default
			_ = kill(syscall.Getpgrp(), syscall.SIGTSTP)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		f.continued()
		signal.Notify(f.signals, syscall.SIGTSTP)
	}
	f.resume()
}

// awaitTerminal gives the terminal to the group, which was stopped because it needs it,
// or stops this process and the script that it belongs to, as the terminal would have:
// they are in the background. SIGCONT resumes the group.
func (f *front) awaitTerminal() {
	switch f.terminal.owner() {
	case f.terminal.own, f.group: // the group may have received it meanwhile
		f.hand()
	default: // SIGTTIN has its default, under which a process that no shell continues does not stop
		_ = kill(syscall.Getpgrp(), syscall.SIGTTIN)
	}
}

// continued waits until this process runs again.
func (f *front) continued() {
	bound := time.After(stopTime)
	for {
		select {
		case s := <-f.signals:
			if s == syscall.SIGCONT {
				return
			}
			_ = kill(f.group, s.(syscall.Signal))
		case <-bound:
			return
		}
	}
}

func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}
