// Package hub is the hub of a node: the process that keeps the tables of locks and
// limits, and routes the messages of all processes that are connected to it.
//
//	hub.go            Hub: its clients, and its end; client.go Client
//	locks.go          frames about locks, with slots.go and runs.go
//	bus.go            messages: route.go, delivery.go (backlogs), request.go
//	limits.go         calls about limits; copies.go the copies that clients have
//	host_unix.go      Host: the hub at a socket
//	recovery_unix.go  Successor: the wait of a new hub for the reports of its clients
//	inspect.go        for tests of package cluster
package hub

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

// Handler answers a call: a request by name, for communication between the
// hub's process and its clients apart from locks and messages. Each call has a
// goroutine; ctx ends when the caller's connection ends. From is nil at a
// client, which the hub calls. The Handler may keep the body.
type Handler func(ctx context.Context, from *Client, name string, body []byte) ([]byte, error)

// Config configures a Hub. The zero value is valid.
type Config struct {
	Log *slog.Logger // nil disables logging
	// Backlog is how many bytes may wait for a client before the hub drops and
	// counts further messages for it; 64 MiB by default. All clients together have
	// 512 MiB: with more than 8, each has an equal part if that is less, at least 1 MiB.
	Backlog int
	// Clients is how many clients may be connected; 1024 by default. The hub
	// refuses further ones.
	Clients int
	// Handle answers calls from clients. It may be nil.
	Handle Handler
}

// Hub keeps the table of locks and the routes of messages of a node. It never
// waits for a client.
type Hub struct {
	config Config
	locks  *hubLocks
	bus    *hubBus
	limits *hubLimits
	speaks protocol.Versions
	// confirm, if not nil, returns an error unless the client file of that
	// name has this nonce.
	confirm func(name string, nonce uint64) error
	backlog atomic.Int64 // Backlog, or a client's share of allBacklogs
	number  uint64       // of this hub; 0 without a socket
	follows uint64       // the number of the hub before it; 0 if there was none

	mu       sync.Mutex
	clients  map[*Client]struct{}
	files    map[string]*Client // the latest admitted client of each process at the socket
	admitted int                // the number of admitted clients
	last     uint64             // the last number that was given to a client
	closed   bool
	leaving  bool      // drain was called: no client is welcomed any more
	shut     bool      // the hub does not know all clients yet: see open
	waiting  []*Client // the clients that wait for open
}

// errHubClosed is the reason of connections that end because the hub was
// closed.
var errHubClosed = errors.New("the hub is closed")

// New returns a hub without clients.
func New(c Config) *Hub {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Backlog = cmp.Or(c.Backlog, 64<<20)
	c.Clients = cmp.Or(c.Clients, 1024)
	h := &Hub{config: c, speaks: protocol.Known, clients: make(map[*Client]struct{}), files: make(map[string]*Client)}
	h.backlog.Store(int64(c.Backlog))
	h.locks, h.bus, h.limits = newHubLocks(h), newHubBus(), newHubLimits(h)
	return h
}

// handler returns the function that answers the calls of c.
func (h *Hub) handler(c *Client) func(context.Context, string, []byte) ([]byte, error) {
	return func(ctx context.Context, name string, body []byte) ([]byte, error) {
		if answer, err, ours := h.limits.serve(ctx, c, name, body); ours {
			return answer, err
		}
		if h.config.Handle == nil {
			return nil, protocol.ErrNoHandler
		}
		return h.config.Handle(ctx, c, name, body)
	}
}

// Join makes the process at the other end of conn a client, called name in the
// log and in errors. The hub owns conn from then on. The process may take any
// time before it connects with Dial.
func (h *Hub) Join(conn net.Conn, name string) *Client {
	return h.join(conn, name, beforeHello)
}

func (h *Hub) join(conn net.Conn, name string, limits protocol.Limits) *Client {
	c := newClient(h, conn, name)
	c.line.Limit(limits)
	h.start(c)
	return c
}

// start counts c and reads its frames. Close waits for the end of that.
func (h *Hub) start(c *Client) {
	if err := h.enter(c); err != nil {
		c.line.End(err)
	}
	go c.serve()
}

// maxUnadmitted is how many connections beyond Config.Clients may be waiting for
// their hello, so that the hub can answer it with the reason of the refusal.
const maxUnadmitted = 64

// errTooMany is the error for a client beyond Config.Clients.
var errTooMany = errors.New("too many clients are connected to the hub")

func (h *Hub) enter(c *Client) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	c.number = h.last
	if h.closed {
		return errHubClosed
	}
	if len(h.clients) >= h.config.Clients+maxUnadmitted {
		return errTooMany
	}
	h.clients[c] = struct{}{}
	h.divideBacklogs()
	return nil
}

// admit counts a client that has sent hello.
func (h *Hub) admit() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.admitted >= h.config.Clients {
		return errTooMany
	}
	h.admitted++
	return nil
}

// succeed makes c the connection of its process, and returns the earlier one, or nil.
func (h *Hub) succeed(c *Client) (earlier *Client) {
	if c.file == "" {
		return nil // an inherited connection is the only one
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	earlier, h.files[c.file] = h.files[c.file], c
	return earlier
}

const (
	// allBacklogs bounds the bytes that wait for all clients together. It is
	// divided into shares of at least leastBacklog.
	allBacklogs  = 512 << 20
	leastBacklog = 1 << 20
)

// divideBacklogs sets the bound on the bytes that wait for each client. The
// caller holds h's lock.
func (h *Hub) divideBacklogs() {
	one := max(allBacklogs/max(len(h.clients), 1), leastBacklog)
	h.backlog.Store(int64(min(h.config.Backlog, one)))
}

// welcome sends the welcome to c, and makes c wait for open if the hub is shut. A
// hub that leaves ends the connection instead: the process connects to the next one.
func (h *Hub) welcome(c *Client) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaving {
		return errHubClosed
	}
	c.greeted = true
	f := protocol.Begin(protocol.TypeWelcome).Uint(c.speaks).Uint(c.number).Bool(h.shut).Uint(uint64(h.limits.epoch))
	c.send(f.Uint(h.number).Uint(h.follows))
	if h.shut {
		h.waiting = append(h.waiting, c)
	}
	return nil
}

// farewell returns the clients that this hub serves until its end. It welcomes no other
// client from now on: these take the first frame for a welcome.
func (h *Hub) farewell() []*Client {
	h.mu.Lock()
	h.leaving = true
	h.mu.Unlock()
	return slices.DeleteFunc(h.list(), func(c *Client) bool { return !c.greeted }) // it does not change any more
}

// open reports to the waiting clients that all clients of an earlier hub have
// connected to this one: messages find their subscribers. A client that has not
// reported its subscriptions learns that first: no message is published before.
func (h *Hub) open() {
	h.mu.Lock()
	behind := h.waiting
	h.shut, h.waiting = false, nil
	for _, c := range behind {
		if !c.reported.Load() {
			c.queue(protocol.Begin(protocol.TypeAbsent))
		}
	}
	h.mu.Unlock()
	for _, c := range behind {
		_ = c.line.Send(protocol.Begin(protocol.TypeOpen)) // a client that has ended needs no frame
	}
}

// isShut reports whether open was not called yet.
func (h *Hub) isShut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shut
}

func (h *Hub) leave(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, c)
	if c.admitted {
		h.admitted--
	}
	if h.files[c.file] == c {
		delete(h.files, c.file)
	}
	h.divideBacklogs()
}

// list returns the clients in the order in which they connected.
func (h *Hub) list() []*Client {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Client, 0, len(h.clients))
	for c := range h.clients {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Client) int { return cmp.Compare(a.number, b.number) })
	return all
}

const (
	// stallBound is how long a hub that shuts down waits for a client that neither
	// reads nor answers.
	stallBound = 2 * time.Second
	// drainBound bounds the whole shutdown under a context without a deadline.
	drainBound = 10 * time.Second
)

// drain makes the clients keep their events for the next hub, and delivers the
// queued events of this one (S21). It returns when all events are delivered,
// when no client reads any more, or when ctx ends. No client may join
// meanwhile.
//
// The first round ends when no client sends an event any more. A client may still
// give an event for a group back, so that this hub sends it to another client: there
// are more rounds until none was given back. Then nothing is left to send, and each
// client learns that it has everything.
func (h *Hub) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	clients := h.farewell()
	sendAll := func(t protocol.Type) {
		for _, c := range clients {
			_ = c.line.Send(protocol.Begin(t)) // a client that has ended needs no frame
		}
	}
	for round := uint64(1); ; round++ {
		before := h.bus.returns.Load()
		sendAll(protocol.TypeLeaving)
		if !settled(ctx, clients, round) {
			return
		}
		if round > 1 && h.bus.returns.Load() == before {
			sendAll(protocol.TypeWhole)
			settled(ctx, clients, round)
			return
		}
	}
}

// settled waits until no client has work left of a round of drain, and reports
// whether that happened.
func settled(ctx context.Context, clients []*Client, round uint64) bool {
	before, moved := -1, time.Now()
	for {
		left := 0
		for _, c := range clients {
			left += c.pendingWork(round)
		}
		if left != before {
			before, moved = left, time.Now()
		}
		if left == 0 || time.Since(moved) > stallBound {
			return left == 0
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
}

// pendingWork returns the work that is left for c before the hub may end, or 0:
// the bytes to deliver, plus one for each other reason.
func (c *Client) pendingWork(round uint64) (n int) {
	select {
	case <-c.handled:
		return 0
	default:
	}
	select {
	case <-c.line.Ended():
		return 1 // its last frames are not handled yet
	default:
	}
	if c.lasts.Load() < round {
		n++
	}
	if c.bus.full.Load() {
		n++ // the client's gaps are not reported yet
	}
	return n + c.line.Backlog()
}

// Close ends every connection. It returns nil when all of them have ended, or
// the error of ctx if ctx ends first. It is idempotent.
func (h *Hub) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	defer h.limits.table.Close()
	defer h.locks.close()
	for _, c := range h.list() {
		c.line.End(errHubClosed) // all of them first: a slow one must not delay the others
	}
	for _, c := range h.list() {
		select {
		case <-c.Done():
		case <-ctx.Done():
			return fmt.Errorf("close the hub: %w", ctx.Err())
		}
	}
	return nil
}
