//go:build linux || darwin

package hub

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	"github.com/megaframework/mega/internal/private"
)

const (
	// cleanupInterval is the time between two cleanups of the files of a hub,
	// checkInterval the time between two checks that the files still exist.
	cleanupInterval = time.Minute
	checkInterval   = time.Second
	// closeBound is how long a hub that ends waits for the ends of its connections
	// before it lets another process take over.
	closeBound = time.Second
)

// The log messages when this process becomes the hub, and when another process
// may become it.
const (
	becameHub = "cluster: this process is the hub of the socket"
	ceasedHub = "cluster: this process is no longer the hub of the socket"
)

// Host is the hub of a socket, while this process has the hub lock.
type Host struct {
	hub    *Successor
	lock   *rendezvous.HubLock
	log    *slog.Logger
	socket string

	listener    *rendezvous.Listener // belongs to keep once keep runs
	unreachable bool                 // belongs to keep: clients cannot find the hub, and this was logged
	refused     atomic.Int64         // when the last refusal was logged

	ctx     context.Context // ends with close, and when the hub lock is lost
	end     context.CancelCauseFunc
	drain   chan context.Context // set by close: bounds an orderly end
	running sync.WaitGroup       // the goroutines that accept and that keep the hub lock
	ended   chan struct{}        // closed when the hub lock is given up
	result  error                // the result of giving up the hub lock
}

// OpenHost opens the socket of a hub lock. If it succeeds, the host owns the
// hub lock. again reports whether this process was at a hub before.
func OpenHost(socket string, log *slog.Logger, lock *rendezvous.HubLock, again bool) (*Host, error) {
	hub, err := Follow(Config{Log: log}, lock, lock.Left(), again)
	if err != nil {
		return nil, err
	}
	log.Debug(becameHub, "socket", socket)
	if wait := time.Duration(lock.Left().Expiry - protocol.NodeNanos()); lock.Emptied() && wait > 0 {
		log.Warn("cluster: folder of the clients was removed: locks wait until the leases of the last hub have expired", "socket", socket, "wait", wait.Round(time.Millisecond))
	}
	l, err := lock.Listen()
	if err != nil {
		log.Debug(ceasedHub, "socket", socket)
		return nil, err
	}
	h := &Host{hub: hub, lock: lock, log: log, socket: socket, ended: make(chan struct{}), drain: make(chan context.Context, 1)}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	h.hub.locks.ahead = h.cover
	h.hub.confirm = h.confirm
	h.open(l)
	h.running.Go(h.maintain)
	return h, nil
}

// cover records a lease and a fence for the next hub. It reports whether the
// lease may be reported to the client: also while the hub leaves in order, which a
// stopped client delays.
func (h *Host) cover(expires time.Time, fence uint64) bool {
	err := h.lock.Cover(h.hub.locks.clock.Nanos(expires)+protocol.MaxSkew, fence)
	if err == nil && h.Failed() {
		err = h.lock.Check() // maintain checks it no more. L1
	}
	if err != nil {
		h.Fail(err)
	}
	return err == nil
}

// grant opens the table, because no lease of an earlier hub is left.
func (h *Host) grant(silent int) {
	if h.Failed() {
		return
	}
	if silent > 0 {
		h.log.Warn("cluster: clients did not report their leases in time and lost them (are they stopped?)", "clients", silent)
	}
	if err := h.lock.Settle(); err != nil {
		h.Fail(err)
		return
	}
	h.hub.Grant()
}

// open accepts clients at l.
func (h *Host) open(l *rendezvous.Listener) {
	l.Refused = func(p private.Peer) {
		h.log.Warn("cluster: connection of another user refused", "socket", h.socket, "user", p.User(), "pid", p.PID)
	}
	h.listener = l
	h.running.Go(func() { h.accept(l.Accept) })
}

// atSocket are the limits of a process before its hello, for which it has
// connected.
var atSocket = protocol.Limits{Frame: beforeHello.Frame, First: 5 * time.Second, Within: beforeHello.Within}

// confirm is the confirm of the hub. It logs a client that is refused for the lack of
// a descriptor at most once a minute: it asks again.
func (h *Host) confirm(name string, nonce uint64) error {
	err := h.lock.Confirm(name, nonce)
	if err == nil || !passes(err) {
		return err
	}
	last, now := h.refused.Load(), time.Now().UnixNano()
	if now-last >= int64(time.Minute) && h.refused.CompareAndSwap(last, now) {
		h.log.Warn("cluster: process refused", "socket", h.socket, "err", err)
	}
	return err
}

// accept makes a client of each process that next returns. It logs a failure at
// most once a minute: at the limit of descriptors, an accept fails after each
// success.
func (h *Host) accept(next func() (net.Conn, error)) {
	var logged time.Time
	for {
		conn, err := next()
		switch {
		case err == nil:
			h.hub.join(conn, "process", atSocket)
		case errors.Is(err, net.ErrClosed) || h.ctx.Err() != nil:
			return
		default: // most likely no descriptor is free
			if time.Since(logged) >= time.Minute {
				logged = time.Now()
				h.log.Warn("cluster: accept failed", "socket", h.socket, "err", err)
			}
			h.pause(10 * time.Millisecond)
		}
	}
}

func (h *Host) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
	}
}

// maintain maintains the hub lock until the end, and then gives it up. The order
// matters: first no client can connect any more, then the connections end, and
// only then can another process take the hub lock.
func (h *Host) maintain() {
	defer close(h.ended)
	var recovery sync.WaitGroup
	recovery.Go(func() { h.hub.Recover(h.ctx.Done(), h.grant) }) // for as long as leases of an earlier hub last
	var cleared time.Time
	for h.ctx.Err() == nil {
		if err := h.lock.Check(); err != nil {
			h.Fail(err)
			break
		}
		h.restoreSocket()
		if time.Since(cleared) >= cleanupInterval {
			h.cleanUp()
			cleared = time.Now()
		}
		h.pause(checkInterval)
	}
	recovery.Wait()
	_ = h.listener.Close() // the hub lock removes its file
	select {
	case ctx := <-h.drain:
		h.hub.drain(ctx)
	default: // the hub lock is lost: another process may already be the hub
	}
	if h.lock.Check() != nil { // also if the files were removed during drain
		h.lock.RecordLoss()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	err := h.hub.Close(ctx)
	h.log.Debug(ceasedHub, "socket", h.socket)
	h.result = errors.Join(err, h.lock.Close())
}

// cleanUp removes the files of clients that have ended, and keeps the others.
func (h *Host) cleanUp() {
	h.lock.Touch()
	if _, _, err := h.lock.Clients(protocol.NodeNanos()); err != nil { // Clients removes stale files
		h.log.Warn("cluster: socket maintenance failed", "socket", h.socket, "err", err)
	}
}

// restoreSocket restores the socket if it was removed. Neither the removal nor
// the restoration affects connected clients.
func (h *Host) restoreSocket() {
	l, err := h.lock.Renew()
	switch {
	case err == nil && l == h.listener:
	case err == nil:
		h.unreachable = false
		h.log.Warn("cluster: removed socket restored", "socket", h.socket)
		h.open(l)
	case !h.unreachable && h.ctx.Err() == nil:
		h.unreachable = true
		h.log.Error("cluster: removed socket cannot be restored; new processes cannot connect", "socket", h.socket, "err", err)
	}
}

// Fail ends a hub whose hub lock is lost. It does not wait.
func (h *Host) Fail(why error) {
	if h.ctx.Err() == nil {
		h.log.Error("cluster: hub lost its lock file", "socket", h.socket, "err", why)
	}
	h.end(why)
}

// Failed reports whether the hub has ended, by an error or by Close.
func (h *Host) Failed() bool { return h.ctx.Err() != nil }

// Clients returns the number of connected clients.
func (h *Host) Clients() int { return len(h.hub.list()) }

// Close ends the hub and gives up the hub lock. It is idempotent.
func (h *Host) Close(ctx context.Context) error {
	if !h.Failed() {
		select {
		case h.drain <- ctx:
		default: // close was called before
		}
	}
	h.end(context.Canceled)
	select {
	case <-h.ended:
		h.running.Wait()
		return h.result
	case <-ctx.Done():
		return ctx.Err()
	}
}
