//go:build linux || darwin

package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/megaframework/mega/lock"
)

func holderVerb() Verb {
	return Verb{Name: "holder", Short: "hold the lease of an exec", Hidden: true, Run: func(p Process, _ []string, _ int) error { return runHolder(p) }}
}

// holder is the process that has the lease (X4).
type holder struct {
	order    Order
	messages chan message // closed when the launcher has ended
	reports  *json.Encoder
	session  int         // of the launcher
	note     string      // about the slot, for the caller
	backend  *Connection // nil until it is open

	mu            sync.Mutex // guards the fields below
	launcherEnded bool       // the launcher has ended
	granted       bool       // the lease is granted: the end of the launcher no longer cancels the wait
	cancel        context.CancelCauseFunc
}

var (
	errOwnerGone = errors.New("the process that waits for the lock has ended")
	errLate      = fmt.Errorf("%w: the command was not started within the TTL, because its process was stopped", lock.ErrLost)
	errEnded     = fmt.Errorf("%w: it could not be renewed in time", lock.ErrLost)
)

// runHolder is the holder process. Its standard input has the order and the
// messages of the launcher, its standard output the reports.
func runHolder(p Process) error {
	closeInherited()
	outlive()
	d := json.NewDecoder(os.Stdin)
	h := &holder{messages: make(chan message), reports: json.NewEncoder(os.Stdout)}
	if err := d.Decode(&h.order); err != nil {
		return usage("cli.extra_argument", "holder is started by exec.")
	}
	h.session, _ = unix.Getsid(h.order.Owner) // 0 if the launcher has ended
	ctx, cancel := context.WithCancelCause(context.Background())
	h.cancel = cancel
	go h.receive(d) // ends with the process
	err := h.hold(ctx, p)
	last := report{What: over, Text: h.note}
	if err != nil {
		last.Err = Explain(&h.order.Backend, err)
	}
	h.send(last) // first: the launcher does not wait for the end of the connection
	if h.backend != nil {
		h.backend.Leave()
	}
	return nil
}

// outlive catches and drops the signals that concern the launcher, because a script
// may send them to all processes of a name. It does not ignore them: Init and
// Cleanup would then ignore them, too, whereas a caught signal has its default
// action in a new process.
func outlive() {
	signal.Notify(make(chan os.Signal, 1), append(passedOn(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)...)
}

// passedOn returns those signals that a launcher forwards to its command (X3) and
// whose default action ends a process. The processes that serve scripts ignore
// them, because a script may send them to all processes of a name.
func passedOn() []os.Signal {
	return []os.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
}

// receive passes on the messages of the launcher until it ends, and then closes
// messages. The end of the launcher before the grant cancels the wait for the lease.
func (h *holder) receive(d *json.Decoder) {
	defer close(h.messages)
	for {
		var w message
		if d.Decode(&w) != nil {
			break
		}
		h.messages <- w
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.launcherEnded = true
	if !h.granted {
		h.cancel(errOwnerGone)
	}
}

// markGranted records that the lease is granted, and reports whether the launcher is
// still alive.
func (h *holder) markGranted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.granted = true
	return !h.launcherEnded
}

// send sends a report to the launcher.
func (h *holder) send(r report) {
	_ = h.reports.Encode(r) // the launcher may have ended
}

// hold acquires the lease, lets the launcher run the command, and releases the lease.
func (h *holder) hold(ctx context.Context, p Process) error {
	c, err := h.order.Open(ctx, p, h.order.Owner)
	if err != nil {
		return err
	}
	h.backend = c
	if h.order.Init+h.order.Cleanup != "" {
		return h.holdSlot(ctx, c)
	}
	lease, err := c.Lease(ctx, &h.order)
	if err != nil {
		return err
	}
	err = h.runCommand(lease)
	if released := lease.Release(); err == nil && errors.Is(released, lock.ErrLost) {
		err = released
	}
	return err
}

// runCommand permits the launcher to start the command, and returns when the command
// has ended. An error means that the lease was lost or that the launcher has ended.
func (h *holder) runCommand(lease *lock.Lease) error {
	if !h.markGranted() {
		return errOwnerGone
	}
	// The grant of a waiter may begin with less than the TTL, and then with less
	// than the grace.
	if time.Until(lease.Deadline()) < 2*h.order.Grace {
		if err := lease.Extend(lease.Context(), h.order.TTL); err != nil {
			return err
		}
	}
	h.send(report{What: granted, Fence: lease.Fence(), Slot: lease.Slot(), Token: lease.Token()})
	late := time.NewTimer(h.order.TTL)
	defer late.Stop()
	select {
	case _, ok := <-h.messages: // start
		if !ok {
			return errOwnerGone
		}
	case <-late.C: // X7: a stopped script delays nobody for longer
		return errLate
	case <-lease.Context().Done():
		return lease.Err()
	}
	h.send(report{What: going})
	group, err := h.awaitStart(lease)
	if err != nil || group == 0 {
		return err
	}
	return h.watch(lease, group)
}

// startTime is the time in which a running launcher has started its command, and in
// which the kernel has ended the command of a launcher that was killed meanwhile.
const startTime = time.Second

// awaitStart returns the process group of the command, or 0 if the command could
// not be started. It kills a launcher that is stopped between the permission and the
// start: the launcher would start the command after the end of the lease.
func (h *holder) awaitStart(lease *lock.Lease) (group int, err error) {
	late := time.NewTimer(h.order.TTL)
	defer late.Stop()
	lost := lease.Context().Done()
	for {
		select {
		case w, ok := <-h.messages:
			switch {
			case !ok: // X5: the launcher may have started the command without reporting it
				time.Sleep(startTime)
				killUnreported(h.session, tokenVariable+lease.Token())
				return 0, errOwnerGone
			case w.Group != 0, w.Done:
				return w.Group, nil
			}
		case <-lost:
			lost = nil
			late.Reset(startTime)
		case <-late.C:
			if os.Getppid() == h.order.Owner {
				_ = syscall.Kill(h.order.Owner, syscall.SIGKILL)
			}
		}
	}
}

// watch waits for the end of the command, and ends its group if the lease or the
// launcher ends first.
func (h *holder) watch(lease *lock.Lease, group int) error {
	gone := exited(group)
	var silent <-chan time.Time
	warned := lease.Warn(h.order.Grace)
	for {
		select {
		case w, ok := <-h.messages:
			if !ok { // X5
				killGroup(group)
				return errOwnerGone
			}
			if w.Done {
				return nil
			}
		case <-gone:
			// If the launcher was killed, and the first process of the group with
			// it, messages is closed soon. A launcher that is stopped sends nothing.
			gone, silent = nil, time.After(startTime)
		case <-silent:
			return nil
		case <-lease.Context().Done(): // by force: the lease has no time left
			h.send(report{What: stopping, Text: fmt.Sprint(lease.Err())})
			killGroup(group)
			return lease.Err()
		case <-warned:
			if lease.Err() == nil {
				return h.stop(lease, group)
			}
			warned = nil
		}
	}
}

// stop ends a command whose lease is about to end: SIGTERM now, SIGKILL at the
// deadline. That is final, also if the lease is renewed meanwhile (X4).
func (h *holder) stop(lease *lock.Lease, group int) error {
	h.send(report{What: stopping, Text: "it could not be renewed in time"})
	_ = signalGroup(group, syscall.SIGTERM)
	_ = signalGroup(group, syscall.SIGCONT) // a stopped process gets the signal when it continues
	deadline := time.NewTimer(h.order.Grace)
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond) // this process cannot wait for members of the group: they are not its children
	defer look.Stop()
	for {
		select {
		case _, ok := <-h.messages:
			if !ok {
				killGroup(group)
				return errEnded
			}
		case <-look.C:
			if !alive(group) {
				return errEnded
			}
		case <-lease.Context().Done():
			killGroup(group)
			return errEnded
		case <-deadline.C:
			killGroup(group)
			return errEnded
		}
	}
}
