//go:build linux || darwin

package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/private"
	"github.com/megaframework/mega/lock"
)

// exists reports whether a process runs that this user may signal.
func exists(pid int) bool { return pid > 1 && syscall.Kill(pid, 0) == nil }

// leasesFolder returns the folder with the files of the leases (X6).
func leasesFolder() string { return filepath.Join(filepath.Dir(cluster.AutoSocket()), "leases") }

// runAcquire starts the process that keeps the lease, and prints the handle. That
// process releases the lease if this one ends before it has printed the handle.
func runAcquire(p Process, o acquireOrder) error {
	if o.Label == "" {
		o.Label = acquireLabel
	}
	o.Owner = os.Getpid()
	if o.For != 0 {
		o.Owner = o.For
	}
	l := &launcher{p: p, order: o.Order, signals: make(chan os.Signal, 16)}
	if err := l.startHolder("lease", o); err != nil {
		return &Error{Code: "cli.failed", Exit: ExitUnavailable, Text: fmt.Sprintf("Cannot start the keeper of the lease: %v.", err)}
	}
	l.notifySignals()
	r, err := l.await(granted)
	if err == nil {
		err = p.print(*r.Lease)
	}
	if err != nil {
		l.close()
		return err
	}
	_ = l.messages.Encode(message{Start: true}) // if the keeper has ended, renew and release report it
	return nil
}

func keeperVerb() Verb {
	return Verb{Name: "lease", Short: "keep the lease of an acquire", Hidden: true, Run: func(p Process, _ []string, _ int) error { return runLease(p) }}
}

// runLease is the process that keeps a lease from acquire.
func runLease(p Process) error {
	closeInherited()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(append(passedOn(), syscall.SIGPIPE)...)
	d := json.NewDecoder(os.Stdin)
	h := &holder{messages: make(chan message), reports: json.NewEncoder(os.Stdout)}
	var o acquireOrder
	if err := d.Decode(&o); err != nil {
		return usage("cli.extra_argument", "lease is started by acquire.")
	}
	h.order = o.Order
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h.cancel = cancel
	go h.receive(d) // ends with the process
	if err := h.serveLease(waiting, p, o); err != nil {
		h.send(report{What: over, Err: Explain(&o.Backend, err)})
	}
	return nil
}

// serveLease acquires the lease, and keeps it until it ends for one of the reasons
// of X6.
func (h *holder) serveLease(ctx context.Context, p Process, o acquireOrder) error {
	gone := o.gone() // before the wait: another process may have the number of the process later
	c, err := o.Open(ctx, p, o.Owner)
	if err != nil {
		return err
	}
	defer c.Leave()
	decided := make(chan struct{})
	go func() {
		select {
		case <-gone:
			h.cancel(errForGone)
		case <-decided:
		}
	}()
	lease, err := c.Lease(ctx, &o.Order)
	close(decided)
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release() }() // a loss was reported, or nobody asks any more
	k, err := newKept(lease, o)
	if err != nil {
		return err
	}
	k.gone = gone
	defer k.remove()
	if !h.markGranted() {
		return errOwnerGone
	}
	h.send(report{What: granted, Lease: &k.handle})
	detach()
	return k.keep(ctx, h.messages)
}

// kept is a lease that this process keeps for a script.
type kept struct {
	lease    *lock.Lease
	order    acquireOrder
	handle   Handle
	path     string // of its file; the socket has a suffix
	listener *net.UnixListener
	gone     <-chan struct{} // closed when the process --for has ended; nil without one
	touch    time.Duration   // see touchInterval
}

const socketSuffix = ".sock"

// newKept makes the file and the socket of the lease.
func newKept(lease *lock.Lease, o acquireOrder) (*kept, error) {
	folder := leasesFolder()
	for _, f := range []string{filepath.Dir(folder), folder} {
		if err := private.MakeOwnFolder(f); err != nil {
			return nil, fmt.Errorf("make the folder of leases: %w", err)
		}
	}
	name := NewHandle()
	k := &kept{lease: lease, order: o, path: filepath.Join(folder, name), touch: touchInterval}
	k.handle = Handle{Handle: name, Key: lease.Key(), Fence: lease.Fence(), Slot: lease.Slot(), Token: lease.Token(), PID: os.Getpid()}
	text, err := json.Marshal(k.handle)
	if err != nil {
		return nil, err
	}
	if k.listener, err = private.Listen(k.path+socketSuffix+"~", k.path+socketSuffix); err != nil {
		return nil, fmt.Errorf("listen for release: %w", err)
	}
	if err := os.WriteFile(k.path, append(text, '\n'), 0o600); err != nil {
		k.remove()
		return nil, fmt.Errorf("write the file of the lease: %w", err)
	}
	return k, nil
}

func (k *kept) remove() {
	_ = os.Remove(k.path)
	_ = os.Remove(k.path + socketSuffix)
	_ = k.listener.Close()
}

// touchInterval is the interval between two updates of the files' times. It keeps
// the files so young that a cleaner of temporary folders does not remove them.
const touchInterval = time.Hour

// keep serves release and renew until the lease is released or lost, the process
// --for has ended, --max has passed, or ctx has ended. It also returns if messages
// is closed without a message: then the handle was not printed.
func (k *kept) keep(ctx context.Context, messages <-chan message) error {
	calls := make(chan net.Conn)
	go k.accept(calls) // ends with the listener, or with the process
	var limit <-chan time.Time
	touch := time.NewTicker(k.touch)
	defer touch.Stop()
	for again := true; ; {
		if again && k.order.Max > 0 {
			limit = time.After(k.order.Max)
		}
		select {
		case conn := <-calls:
			var r request
			if r = k.serve(conn); r.Release {
				return nil
			}
			again = r.Renew
		case _, ok := <-messages:
			if !ok {
				return errOwnerGone
			}
			again, messages = false, nil
		case now := <-touch.C:
			again = false
			_ = os.Chtimes(k.path, now, now) // fails if the file was removed, which cannot be undone
			_ = os.Chtimes(k.path+socketSuffix, now, now)
		case <-k.gone:
			return nil
		case <-limit:
			return nil
		case <-ctx.Done():
			return nil
		case <-k.lease.Context().Done():
			return k.lease.Err()
		}
	}
}

func (k *kept) accept(calls chan<- net.Conn) {
	for {
		conn, err := k.listener.Accept()
		if err != nil {
			return
		}
		calls <- conn
	}
}

// gone returns a channel that is closed when the process --for has ended, or nil
// without one.
func (o *acquireOrder) gone() <-chan struct{} {
	if o.For == 0 {
		return nil
	}
	if c := exited(o.For); c != nil {
		return c
	}
	c := make(chan struct{})
	go func() { // ends with the process
		defer close(c)
		for exists(o.For) {
			time.Sleep(100 * time.Millisecond) // this system does not report the end of a process
		}
	}()
	return c
}

// askTime bounds one request of release or renew.
const askTime = 5 * time.Second

// serve answers the request on conn and closes conn. It returns the request, or an
// empty one if it could not be read or the renewal has failed.
func (k *kept) serve(conn net.Conn) (r request) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(askTime))
	peer, err := private.PeerOf(conn)
	if err != nil || peer.UID != os.Geteuid() || json.NewDecoder(conn).Decode(&r) != nil {
		return request{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	if r.Release {
		err = k.lease.Release()
		if err == nil || !errors.Is(err, lock.ErrLost) {
			err = nil // the release is retried, or the TTL ends it
			k.remove()
		}
	} else {
		err = k.lease.Extend(ctx, k.order.TTL)
	}
	answer := report{What: over}
	if err != nil {
		answer.Err = Explain(&k.order.Backend, err)
	}
	_ = json.NewEncoder(conn).Encode(answer) // the other side has ended
	if err != nil && r.Renew {
		return request{}
	}
	return r
}

// ask sends a request to the process that keeps a lease.
func ask(handle string, r request) error {
	err := askOnce(handle, r)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) {
		err = askOnce(handle, r) // the keeper has ended with the connection in its queue
	}
	if _, known := errors.AsType[*Error](err); err != nil && !known {
		return &Error{Code: "cli.unanswered", Exit: ExitUnavailable, Text: fmt.Sprintf("The keeper of the lease %s does not answer: %v.", handle, err)}
	}
	return err
}

func askOnce(handle string, r request) error {
	path := filepath.Join(leasesFolder(), handle)
	conn, err := net.DialTimeout("unix", path+socketSuffix, askTime) //nolint:noctx // askTime bounds it
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		_ = os.Remove(path) // of a keeper that was killed
		_ = os.Remove(path + socketSuffix)
		return &Error{Code: "lock.lost", Exit: ExitLost, Text: fmt.Sprintf("The lease %s is over: it was given back or lost.", handle)}
	case err != nil: // the keeper may live
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * askTime))
	var answer report
	err = json.NewEncoder(conn).Encode(r)
	if err == nil {
		err = json.NewDecoder(conn).Decode(&answer)
	}
	switch {
	case err != nil:
		return err
	case answer.Err != nil:
		return answer.Err
	}
	return nil
}
