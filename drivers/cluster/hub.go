package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// HubConfig configures a Hub. The zero value is valid.
type HubConfig struct {
	Log *slog.Logger // nil disables logging
	// Backlog is how many bytes may wait for a client before the hub drops and
	// counts further messages for it; 64 MiB by default.
	Backlog int
	// Peers is how many clients may be connected; 1024 by default. The hub
	// refuses further ones.
	Peers int
	// Handle answers calls from clients. It may be nil.
	Handle Handler
}

// Hub keeps the table of locks and the routes of messages of a node. It never
// waits for a client.
type Hub struct {
	config HubConfig
	locks  *hubLocks
	bus    *hubBus
	speaks versions
	// confirm, if not nil, returns an error unless the member of that name has
	// this nonce.
	confirm func(name string, nonce uint64) error
	backlog atomic.Int64 // Backlog, or a client's share of allBacklogs

	mu      sync.Mutex
	peers   map[*Peer]struct{}
	greeted int    // the number of admitted clients
	last    uint64 // the last number that was given to a client
	closed  bool
	shut    bool    // the hub does not know all clients yet: see open
	behind  []*Peer // the clients that wait for open
}

// errHubClosed is the reason of connections that end because the hub was
// closed.
var errHubClosed = errors.New("the hub was closed")

// NewHub returns a hub without clients.
func NewHub(c HubConfig) *Hub {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Backlog = cmp.Or(c.Backlog, 64<<20)
	c.Peers = cmp.Or(c.Peers, 1024)
	h := &Hub{config: c, speaks: known, peers: make(map[*Peer]struct{})}
	h.backlog.Store(int64(c.Backlog))
	h.locks, h.bus = newHubLocks(h), newHubBus(h)
	return h
}

// Join makes the process at the other end of conn a client, called name in the
// log and in errors. The hub owns conn from then on.
func (h *Hub) Join(conn net.Conn, name string) *Peer {
	p := newPeer(h, conn, name)
	if err := h.enter(p); err != nil {
		p.line.End(err)
	}
	p.serving.Go(p.serve)
	return p
}

// Serve does the same as Join, waits until the connection has ended, and
// returns the reason.
func (h *Hub) Serve(conn net.Conn, name string) error {
	p := h.Join(conn, name)
	<-p.Done()
	return p.Err()
}

// strangers is how many connections beyond HubConfig.Peers may be waiting for
// their hello, so that the hub can answer it with the reason of the refusal.
const strangers = 64

// errTooMany is the error for a client beyond HubConfig.Peers.
var errTooMany = errors.New("too many processes are connected to the hub")

func (h *Hub) enter(p *Peer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	p.number = h.last
	if h.closed {
		return errHubClosed
	}
	if len(h.peers) >= h.config.Peers+strangers {
		return errTooMany
	}
	h.peers[p] = struct{}{}
	h.share()
	return nil
}

// admit counts a client that has sent hello.
func (h *Hub) admit() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.greeted >= h.config.Peers {
		return errTooMany
	}
	h.greeted++
	return nil
}

const (
	// allBacklogs bounds the bytes that wait for all clients together. It is
	// divided into shares of at least leastBacklog.
	allBacklogs  = 512 << 20
	leastBacklog = 1 << 20
)

// share sets the bound on the bytes that wait for each client. The caller holds
// h's lock.
func (h *Hub) share() {
	one := max(allBacklogs/max(len(h.peers), 1), leastBacklog)
	h.backlog.Store(int64(min(h.config.Backlog, one)))
}

// welcome sends the welcome to p, and makes p wait for open if the hub is shut.
func (h *Hub) welcome(p *Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.send(protocol.Begin(typeWelcome).Uint(p.speaks).Uint(p.number).Bool(h.shut))
	if h.shut {
		h.behind = append(h.behind, p)
	}
}

// open reports to the waiting clients that all clients of an earlier hub have
// connected to this one: messages find their subscribers.
func (h *Hub) open() {
	h.mu.Lock()
	behind := h.behind
	h.shut, h.behind = false, nil
	h.mu.Unlock()
	for _, p := range behind {
		_ = p.line.Send(protocol.Begin(typeOpen)) // a client that has ended needs no frame
	}
}

func (h *Hub) leave(p *Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.peers, p)
	if p.greeted {
		h.greeted--
	}
	h.share()
}

// Peers returns the connected processes in the order in which they connected.
func (h *Hub) Peers() []*Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Peer, 0, len(h.peers))
	for p := range h.peers {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Peer) int { return cmp.Compare(a.number, b.number) })
	return all
}

const (
	// stalled is how long a hub that shuts down waits for a client that neither
	// reads nor answers.
	stalled = 2 * time.Second
	// farewells bounds the whole shutdown under a context without a deadline.
	farewells = 10 * time.Second
)

// depart makes the clients keep their events for the next hub, and delivers the
// queued events of this one (S21). It returns when all events are delivered,
// when no client reads any more, or when ctx ends. No client may join
// meanwhile.
func (h *Hub) depart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewells)
	defer cancel()
	peers := h.Peers()
	for _, p := range peers {
		_ = p.line.Send(protocol.Begin(typeLeaving)) // a client that has ended needs no frame
	}
	before, moved := -1, time.Now()
	for {
		left := 0
		for _, p := range peers {
			left += p.owed()
		}
		if left != before {
			before, moved = left, time.Now()
		}
		if left == 0 || time.Since(moved) > stalled || sleep(ctx, time.Millisecond) != nil {
			return
		}
	}
}

// owed returns the work that is left for p before the hub may end, or 0: the
// bytes to deliver, plus one for each other reason.
func (p *Peer) owed() (n int) {
	select {
	case <-p.line.Ended():
		return 0
	default:
	}
	n = p.line.Backlog()
	if !p.last.Load() {
		n++
	}
	if p.bus.full.Load() {
		n++ // the client's gaps are not reported yet
	}
	return n
}

// Close ends every connection. It returns nil when all of them have ended, or
// the error of ctx if ctx ends first. It is idempotent.
func (h *Hub) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	defer h.locks.close()
	for _, p := range h.Peers() {
		p.line.End(errHubClosed) // all of them first: a slow one must not delay the others
	}
	for _, p := range h.Peers() {
		select {
		case <-p.Done():
		case <-ctx.Done():
			return fmt.Errorf("close the hub: %w", ctx.Err())
		}
	}
	return nil
}
