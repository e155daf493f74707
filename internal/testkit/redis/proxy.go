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

// Direction is a way through a [Proxy].
type Direction int

// The two ways.
const (
	Requests Direction = iota // from clients to the server
	Replies                   // from the server to clients
)

// Proxy is a network in front of a server, to be broken at will. It knows
// where commands and replies begin and end, so that a [Fault] strikes exactly
// the one that is meant. Its methods may be called concurrently.
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

// Addr is the proxy's host and port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL is the server's URL through the proxy.
func (p *Proxy) URL() string { return strings.Replace(p.server.URL(), p.server.Addr(), p.Addr(), 1) }

// Count is how many commands of that name have come through, since the start
// or since ResetCounts.
func (p *Proxy) Count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[name]
}

// Counts is Count for every name.
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

// Links is how many connections are open.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Hold keeps back all that goes in direction d, the news of a closed
// connection included, until Heal. Connections stay open.
func (p *Proxy) Hold(d Direction) { p.change(func(w *[2]way) { w[d].held = true }) }

// Delay brings all that goes in direction d later by delay.
func (p *Proxy) Delay(d Direction, delay time.Duration) {
	p.change(func(w *[2]way) { w[d].delay = delay })
}

// Partition keeps back everything in both directions until Heal, without a
// reset: connections stay open and new ones are taken, but nobody answers.
func (p *Proxy) Partition() {
	p.change(func(w *[2]way) { w[Requests].held, w[Replies].held = true, true })
}

// Heal ends Hold, Delay and Partition. What was kept back arrives, late and in
// order, as it does after a partition of TCP connections.
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

// Close closes every connection and waits until the proxy's goroutines are
// gone. It is idempotent.
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

// open connects a client with the server. A server that refuses is passed on
// as a reset.
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
