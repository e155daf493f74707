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

	"github.com/megaframework/mega/drivers/cluster/wire"
)

// HubConfig is how a hub works. The zero value works.
type HubConfig struct {
	Log *slog.Logger // nil is silent
	// Backlog is how many bytes may wait for a peer before messages for it are
	// dropped, and counted; 64 MiB by default.
	Backlog int
	// Peers is how many processes may be connected; 1024 by default. Further ones
	// are refused.
	Peers int
	// Handle answers the calls of peers. It may be nil.
	Handle Handler
}

// Hub has the table of locks and the routes of messages of a node. It never
// waits for a peer.
type Hub struct {
	config HubConfig
	locks  *hubLocks
	bus    *hubBus
	speaks versions
	// confirm, if set, reports whether the member of that name has this nonce.
	confirm func(name string, nonce uint64) error
	backlog atomic.Int64 // Backlog, or a peer's share of allBacklogs

	mu      sync.Mutex
	peers   map[*Peer]struct{}
	greeted int    // of peers
	last    uint64 // number of a peer
	closed  bool
	shut    bool    // it does not know yet who there is: see open
	behind  []*Peer // who wait for it to be open
}

// errHubClosed is why a peer is gone whose hub was closed.
var errHubClosed = errors.New("the hub was closed")

// NewHub returns a hub without peers.
func NewHub(c HubConfig) *Hub {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Backlog = cmp.Or(c.Backlog, 64<<20)
	c.Peers = cmp.Or(c.Peers, 1024)
	h := &Hub{config: c, speaks: known, peers: make(map[*Peer]struct{})}
	h.backlog.Store(int64(c.Backlog))
	h.locks, h.bus = newHubLocks(h), newHubBus(h)
	return h
}

// Join makes the process at the other end of conn a peer, called name in the
// log and in errors. The hub owns conn from then on.
func (h *Hub) Join(conn net.Conn, name string) *Peer {
	p := newPeer(h, conn, name)
	if err := h.enter(p); err != nil {
		p.line.End(err)
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

// strangers is how many connections beyond HubConfig.Peers may be on their way to a
// hello, which is answered with the reason of a refusal.
const strangers = 64

// errTooMany is why a peer is refused beyond HubConfig.Peers.
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

// admit counts a peer that has said hello.
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
	// allBacklogs bounds what may wait for all peers together, in shares of
	// leastBacklog at least.
	allBacklogs  = 512 << 20
	leastBacklog = 1 << 20
)

// share bounds what may wait for each peer. It expects h locked.
func (h *Hub) share() {
	one := max(allBacklogs/max(len(h.peers), 1), leastBacklog)
	h.backlog.Store(int64(min(h.config.Backlog, one)))
}

// welcome greets p, and has it wait for open if it has to.
func (h *Hub) welcome(p *Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.send(wire.Begin(typeWelcome).Uint(p.speaks).Uint(p.number).Bool(h.shut))
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
	if p.greeted {
		h.greeted--
	}
	h.share()
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
