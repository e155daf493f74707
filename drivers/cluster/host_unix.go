//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/megaframework/mega/drivers/cluster/rendezvous"
	"github.com/megaframework/mega/internal/private"
)

const (
	// upkeep is how often a hub looks after its files.
	upkeep = time.Minute
	// goodbye is how long a hub that ends waits for answers that are on their way
	// before it lets another process take over.
	goodbye = time.Second
)

// What the log says when this process becomes the hub, and when it is about to
// let another one.
const (
	crowned   = "cluster: this process is the hub of the socket"
	abdicated = "cluster: this process is the hub of the socket no more"
)

// host is the hub of a socket, while this process has its seat.
type host struct {
	hub      *Hub
	seat     *rendezvous.Seat
	recovery *recovery
	listener *rendezvous.Listener
	log      *slog.Logger

	ctx     context.Context // ends with close, and when the seat is lost
	end     context.CancelCauseFunc
	running sync.WaitGroup // the goroutines that accept and that keep the seat
	kept    chan struct{}  // closed when the seat is given up
	result  error          // of giving it up
}

// openHost opens the socket of a seat. Unless it fails, the seat is the host's.
func openHost(c Config, seat *rendezvous.Seat) (*host, error) {
	c.Log.Debug(crowned, "socket", c.Socket)
	r, err := newRecovery(seat, seat.Left())
	if err != nil {
		return nil, err
	}
	l, err := seat.Listen()
	if err != nil {
		return nil, err
	}
	h := &host{seat: seat, recovery: r, listener: l, log: c.Log, kept: make(chan struct{})}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	h.hub = NewHub(HubConfig{Log: c.Log})
	h.hub.shut = true // until open
	h.hub.locks.succeed(r.bounds.Fence, r.bounds.Ticket)
	h.hub.locks.told = func(p *Peer) { r.told(p.member) }
	h.hub.locks.ahead = h.cover
	l.Refused = func(p private.Peer) {
		h.log.Warn("cluster: another user was refused at the socket", "socket", l.Addr().String(), "user", p.User(), "pid", p.PID)
	}
	h.running.Go(h.accept)
	h.running.Go(h.keep)
	return h, nil
}

// cover has the next hub know of a lease and a fence before anybody is told.
func (h *host) cover(expires time.Time, fence, ticket uint64) bool {
	if h.failed() {
		return false
	}
	expiry := int64(0)
	if !expires.IsZero() {
		expiry = h.hub.locks.clock.told(expires) + apart
	}
	err := h.seat.Cover(expiry, fence, ticket)
	if err != nil {
		h.fail(err)
	}
	return err == nil
}

// grant opens the table, against which nothing stands any more.
func (h *host) grant(silent int) {
	if h.failed() {
		return
	}
	if silent > 0 {
		h.log.Warn("cluster: a process did not say what it holds, and holds nothing any more: it may be stopped", "processes", silent)
	}
	if err := h.seat.Settle(); err != nil {
		h.fail(err)
		return
	}
	h.hub.locks.table.Open()
}

// accept makes whoever comes a peer.
func (h *host) accept() {
	for {
		conn, err := h.listener.Accept()
		switch {
		case err == nil:
			h.hub.Join(conn, "process")
		case errors.Is(err, net.ErrClosed) || h.ctx.Err() != nil:
			return
		default: // out of descriptors, most likely
			h.log.Warn("cluster: accept at the socket", "error", err)
			h.pause(10 * time.Millisecond)
		}
	}
}

func (h *host) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
	}
}

// keep looks after the seat until the end, and then gives it up: first nobody
// comes any more, then nobody is served, and only then may another process sit.
func (h *host) keep() {
	defer close(h.kept)
	h.recovery.run(h.ctx.Done(), h.hub.open, h.grant)
	for h.ctx.Err() == nil {
		if err := h.seat.Check(); err != nil {
			h.fail(err)
		}
		if _, _, err := h.seat.Members(nodeNanos()); err != nil { // clears up
			h.log.Warn("cluster: look after the socket", "error", err)
		}
		h.pause(upkeep)
	}
	_ = h.listener.Close() // the seat removes its file
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	err := h.hub.Close(ctx)
	h.log.Debug(abdicated, "socket", h.listener.Addr().String())
	h.result = errors.Join(err, h.seat.Close())
}

// fail ends a hub whose seat is lost. It does not wait.
func (h *host) fail(why error) {
	if h.ctx.Err() == nil {
		h.log.Error("cluster: this process can be the hub of the socket no more", "error", why)
	}
	h.end(why)
}

// failed reports that the hub has ended by itself.
func (h *host) failed() bool { return h.ctx.Err() != nil }

// close ends the hub and gives up the seat. It is idempotent.
func (h *host) close(ctx context.Context) error {
	h.end(context.Canceled)
	select {
	case <-h.kept:
		h.running.Wait()
		return h.result
	case <-ctx.Done():
		return ctx.Err()
	}
}
