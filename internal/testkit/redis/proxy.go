package redistest

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Direction is a direction of traffic through a [Proxy].
type Direction int

// The two directions.
const (
	Requests Direction = iota // from clients to the server
	Replies                   // from the server to clients
)

// Proxy is a faulty network in front of a server. It parses commands and replies,
// so that a [Fault] affects exactly one of them. Its methods are safe for
// concurrent use.
type Proxy struct {
	server   *Server
	name     func(args []string) string
	listener net.Listener
	running  sync.WaitGroup // the accept loop and the goroutines of the links

	mu     sync.Mutex // guards the fields below
	links  map[*link]struct{}
	faults []*Fault // replaced, not changed in place
	counts map[string]int
	ways   [2]way
	opened chan struct{} // closed and replaced when a way changes
	closed bool
}

// way is the state of one direction.
type way struct {
	held  bool
	delay time.Duration
}

// NewProxy starts a proxy in front of s. It names each command with name;
// FirstWord if that is nil. The caller closes it.
func NewProxy(s *Server, name func(args []string) string) (*Proxy, error) {
	l, err := listen("127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	if name == nil {
		name = FirstWord
	}
	p := &Proxy{
		server: s, name: name, listener: l,
		links: map[*link]struct{}{}, counts: map[string]int{}, opened: make(chan struct{}),
	}
	p.running.Go(p.accept)
	return p, nil
}

// StartProxy starts a proxy that ends with the test.
func StartProxy(tb testing.TB, s *Server, name func(args []string) string) *Proxy {
	tb.Helper()
	p, err := NewProxy(s, name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	return p
}

// Addr returns the host and port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL returns the URL of the server through the proxy.
func (p *Proxy) URL() string { return strings.Replace(p.server.URL(), p.server.Addr(), p.Addr(), 1) }

// Count returns the number of commands with a name that have passed since the start
// or since ResetCounts.
func (p *Proxy) Count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[name]
}

// Counts returns Count for every name.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// ResetCounts sets every counter to zero.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
}

// Links returns the number of open connections.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Hold delays all data in direction d until Heal, also the end of a connection.
// Connections stay open.
func (p *Proxy) Hold(d Direction) { p.change(func(w *[2]way) { w[d].held = true }) }

// Delay delays all data in direction d by delay.
func (p *Proxy) Delay(d Direction, delay time.Duration) {
	p.change(func(w *[2]way) { w[d].delay = delay })
}

// Partition delays all data in both directions until Heal, without a reset:
// connections stay open and new ones are accepted, but nothing answers.
func (p *Proxy) Partition() {
	p.change(func(w *[2]way) { w[Requests].held, w[Replies].held = true, true })
}

// Heal ends Hold, Delay and Partition. The delayed data arrives in order, as after
// a partition of TCP connections.
func (p *Proxy) Heal() { p.change(func(w *[2]way) { *w = [2]way{} }) }

// Reset resets every connection (RST).
func (p *Proxy) Reset() {
	p.mu.Lock()
	links := maps.Clone(p.links)
	p.mu.Unlock()
	for l := range links {
		l.reset()
	}
}

// Close closes every connection and waits for the goroutines of the proxy. It is
// idempotent.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	p.Reset()
	p.running.Wait()
	return err
}

func (p *Proxy) change(apply func(*[2]way)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apply(&p.ways)
	close(p.opened)
	p.opened = make(chan struct{})
}

// way returns the state of direction d, and a channel that is closed when it
// changes.
func (p *Proxy) way(d Direction) (way, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ways[d], p.opened
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.open(client)
	}
}

// open connects a client with the server. If the server refuses the connection, the
// client sees a reset.
func (p *Proxy) open(client net.Conn) {
	server, err := p.server.dial()
	if err != nil {
		abort(client)
		return
	}
	l := newLink(p, client, server)
	if !p.enter(l) {
		l.reset()
		return
	}
	p.running.Go(l.run)
}

func (p *Proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.links[l] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
