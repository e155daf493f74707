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
	"time"

	"github.com/megaframework/mega/drivers/cluster/wire"
)

// HubConfig is how a hub works. The zero value works.
type HubConfig struct {
	Log *slog.Logger // nil is silent
	// Backlog is how many bytes may wait for a peer before messages for it are
	// dropped, and counted; 64 MiB by default.
	Backlog int
	// Handle answers the calls of peers. It may be nil.
	Handle Handler
}

// Hub has the table of locks and the routes of messages of a node. It never
// waits for a peer.
type Hub struct {
	config HubConfig
	locks  *hubLocks
	bus    *hubBus

	mu     sync.Mutex
	peers  map[*Peer]struct{}
	last   uint64 // number of a peer
	closed bool
	shut   bool    // it does not know yet who there is: see open
	behind []*Peer // who wait for it to be open
}

// errHubClosed is why a peer is gone whose hub was closed.
var errHubClosed = errors.New("the hub was closed")

// NewHub returns a hub without peers.
func NewHub(c HubConfig) *Hub {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Backlog = cmp.Or(c.Backlog, 64<<20)
	h := &Hub{config: c, peers: make(map[*Peer]struct{})}
	h.locks, h.bus = newHubLocks(h), newHubBus(h)
	return h
}

// Join makes the process at the other end of conn a peer, called name in the
// log and in errors. The hub owns conn from then on.
func (h *Hub) Join(conn net.Conn, name string) *Peer {
	p := newPeer(h, conn, name)
	if !h.enter(p) {
		p.line.End(errHubClosed)
	}
	p.serving.Go(p.serve)
	return p
}

// Serve is Join, and returns when the peer is gone, with the reason.
func (h *Hub) Serve(conn net.Conn, name string) error {
	p := h.Join(conn, name)
	<-p.Done()
	return p.Err()
}

func (h *Hub) enter(p *Peer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	p.number = h.last
	if h.closed {
		return false
	}
	h.peers[p] = struct{}{}
	return true
}

// welcome greets p, and has it wait for open if it has to.
func (h *Hub) welcome(p *Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.send(wire.Begin(typeWelcome).Uint(version).Uint(p.number).Bool(h.shut))
	if h.shut {
		h.behind = append(h.behind, p)
	}
}

// open tells peers that those who were at an earlier hub are at this one, too:
// messages find who waits for them.
func (h *Hub) open() {
	h.mu.Lock()
	behind := h.behind
	h.shut, h.behind = false, nil
	h.mu.Unlock()
	for _, p := range behind {
		_ = p.line.Send(wire.Begin(typeOpen)) // who is gone needs no news
	}
}

func (h *Hub) leave(p *Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.peers, p)
}

// Peers returns the processes that are connected, in the order in which they
// came.
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
	// stalled is how long a hub that leaves waits for a peer that neither reads
	// nor answers.
	stalled = 2 * time.Second
	// farewells bounds the whole of it under a context without a deadline.
	farewells = 10 * time.Second
)

// depart has the peers keep their events for the next hub, and delivers those that
// are here (S21). It returns when nothing is left to deliver, when no peer takes
// any more, or when ctx ends. Nobody may join meanwhile.
func (h *Hub) depart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewells)
	defer cancel()
	peers := h.Peers()
	for _, p := range peers {
		_ = p.line.Send(wire.Begin(typeLeaving)) // a peer that is gone needs no news
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

// owed is what is left to do for p before the hub may leave, 0 for nothing: bytes
// to deliver, and one more for each other reason.
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
		n++ // the report of its gaps is due
	}
	return n
}

// Close ends every connection. It is idempotent, and returns when all is over
// or ctx has ended, with its error.
func (h *Hub) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	defer h.locks.close()
	for _, p := range h.Peers() {
		p.line.End(errHubClosed) // all of them first: one that is slow to go keeps no other
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
