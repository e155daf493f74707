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

	"github.com/megaframework/mega/lock"
)

func holderVerb() Verb {
	return Verb{Name: "holder", Short: "hold the lease of an exec", Hidden: true, Run: func(p Process, _ []string, _ int) error { return runHolder(p) }}
}

// holder is the process that has the lease (X4).
type holder struct {
	order   Order
	words   chan word // closed when the front has ended
	reports *json.Encoder
	note    string      // about the slot, for the caller
	backend *Connection // nil until it is open

	mu     sync.Mutex // guards the fields below
	gone   bool       // the front has ended
	given  bool       // the lease is granted: the end of the front ends the command, not the wait
	cancel context.CancelCauseFunc
}

var (
	errFrontGone = errors.New("the process that waits for the lock has ended")
	errForGone   = errors.New("the process --for has ended")
	errLate      = fmt.Errorf("%w: the command was not started within the TTL, because its process was stopped", lock.ErrLost)
	errEnded     = fmt.Errorf("%w: it could not be renewed in time", lock.ErrLost)
)

func runHolder(p Process) error {
	closeInherited()
	outlive()
	d := json.NewDecoder(os.Stdin)
	h := &holder{words: make(chan word), reports: json.NewEncoder(os.Stdout)}
	if err := d.Decode(&h.order); err != nil {
		return usage("cli.extra_argument", "holder is started by exec.")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	h.cancel = cancel
	go h.hear(d) // ends with the process
	err := h.hold(ctx, p)
	last := report{What: over, Text: h.note}
	if err != nil {
		last.Err = Explain(&h.order.Backend, err)
	}
	h.say(last) // first: the front does not wait for the end of the connection
	if h.backend != nil {
		h.backend.Leave()
	}
	return nil
}

// outlive makes this process ignore the signals that concern the front, which
// may be sent to all processes of a name. Init and Cleanup get them: a signal
// that is caught has its default in a new process.
func outlive() {
	signal.Notify(make(chan os.Signal, 1), append(passedOn(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)...)
}

// passedOn returns the signals that a front passes on to its command and that end
// another process (X3). The processes that serve scripts ignore them, because a
// script may send them to all processes of a name.
func passedOn() []os.Signal {
	return []os.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
}

// hear passes on the words of the front until it ends. Before the grant its end
// ends the wait.
func (h *holder) hear(d *json.Decoder) {
	defer close(h.words)
	for {
		var w word
		if d.Decode(&w) != nil {
			break
		}
		h.words <- w
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
	if !h.given {
		h.cancel(errFrontGone)
	}
}

// give reports whether the front still lives when the lease has arrived.
func (h *holder) give() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given = true
	return !h.gone
}

func (h *holder) say(r report) {
	_ = h.reports.Encode(r) // the front may have ended
}

// hold acquires the lease, sees the command through, and releases the lease.
func (h *holder) hold(ctx context.Context, p Process) error {
	c, err := h.order.Open(ctx, p, h.order.Front)
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
	err = h.command(lease)
	if released := lease.Release(); err == nil && errors.Is(released, lock.ErrLost) {
		err = released
	}
	return err
}

// command lets the front start the command, and returns when it has ended.
func (h *holder) command(lease *lock.Lease) error {
	if !h.give() {
		return errFrontGone
	}
	// The grant of a waiter may begin with less than the TTL, and then with less
	// than the grace.
	if time.Until(lease.Deadline()) < 2*h.order.Grace {
		if err := lease.Extend(lease.Context(), h.order.TTL); err != nil {
			return err
		}
	}
	h.say(report{What: granted, Fence: lease.Fence(), Slot: lease.Slot(), Token: lease.Token()})
	late := time.NewTimer(h.order.TTL)
	defer late.Stop()
	select {
	case _, ok := <-h.words: // start
		if !ok {
			return errFrontGone
		}
	case <-late.C: // X7: a stopped script delays nobody for longer
		return errLate
	case <-lease.Context().Done():
		return lease.Err()
	}
	h.say(report{What: going})
	group, err := h.started(lease)
	if err != nil || group == 0 {
		return err
	}
	return h.watch(lease, group)
}

// startTime is the time in which a running front has started its command, and in
// which the kernel has ended the command of a front that was killed meanwhile.
const startTime = time.Second

// started waits for the group of the command, 0 if it cannot be started. A front that is stopped between
// the permission and the start is killed: it would start the command after the
// end of the lease.
func (h *holder) started(lease *lock.Lease) (group int, err error) {
	late := time.NewTimer(h.order.TTL)
	defer late.Stop()
	lost := lease.Context().Done()
	for {
		select {
		case w, ok := <-h.words:
			switch {
			case !ok:
				time.Sleep(startTime)
				return 0, errFrontGone
			case w.Group != 0, w.Done:
				return w.Group, nil
			}
		case <-lost:
			lost = nil
			late.Reset(startTime)
		case <-late.C:
			if os.Getppid() == h.order.Front {
				_ = syscall.Kill(h.order.Front, syscall.SIGKILL)
			}
		}
	}
}

// watch waits for the end of the command, and ends its group if the lease or the
// front ends first.
func (h *holder) watch(lease *lock.Lease, group int) error {
	gone := exited(group)
	var silent <-chan time.Time
	warned := lease.Warn(h.order.Grace)
	for {
		select {
		case w, ok := <-h.words:
			if !ok { // X5
				end(group)
				return errFrontGone
			}
			if w.Done {
				return nil
			}
		case <-gone:
			// The front may have been killed, and the first process of the group
			// with it. Then the words end. If the front is stopped, it is silent.
			gone, silent = nil, time.After(startTime)
		case <-silent:
			return nil
		case <-lease.Context().Done(): // by force: nothing is left of the lease
			h.say(report{What: stopping, Text: fmt.Sprint(lease.Err())})
			end(group)
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
	h.say(report{What: stopping, Text: "it could not be renewed in time"})
	_ = kill(group, syscall.SIGTERM)
	_ = kill(group, syscall.SIGCONT) // a stopped process gets the signal when it continues
	deadline := time.NewTimer(h.order.Grace)
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond) // members of the group besides the first are nobody's children here
	defer look.Stop()
	for {
		select {
		case _, ok := <-h.words:
			if !ok {
				end(group)
				return errEnded
			}
		case <-look.C:
			if !alive(group) {
				return errEnded
			}
		case <-lease.Context().Done():
			end(group)
			return errEnded
		case <-deadline.C:
			end(group)
			return errEnded
		}
	}
}
