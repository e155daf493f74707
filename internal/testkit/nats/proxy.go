package natstest

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Direction is a direction of traffic through a [Proxy].
type Direction int

// The two directions.
const (
	ToServer Direction = iota
	ToClient
)

// Proxy is a faulty network in front of a server. Its methods are safe for
// concurrent use.
type Proxy struct {
	server   string
	listener net.Listener
	running  sync.WaitGroup // the accept loop and the goroutines of the connections

	mu      sync.Mutex // guards the fields below
	conns   map[net.Conn]struct{}
	times   []time.Time // of attempts to connect
	refuses bool
	held    [2]bool
	rate    int           // bytes per second and direction; 0 for no bound
	changed chan struct{} // closed and replaced when held changes
	closed  bool
}

// StartProxy starts a proxy in front of the server at url that ends with the
// test.
func StartProxy(tb testing.TB, url string) *Proxy {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		server: strings.TrimPrefix(url, "nats://"), listener: l,
		conns: map[net.Conn]struct{}{}, changed: make(chan struct{}),
	}
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// URL is the server's URL through the proxy.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Hold delays all data in a direction until Heal, also the end of a connection.
// Connections stay open, and new ones are accepted.
func (p *Proxy) Hold(ways ...Direction) {
	p.change(func() {
		for _, d := range ways {
			p.held[d] = true
		}
	})
}

// Heal ends Hold. The delayed data arrives, as on TCP.
func (p *Proxy) Heal() { p.change(func() { p.held = [2]bool{} }) }

// Slow limits each direction of each connection to a number of bytes per second,
// with small buffers; 0 removes the limit. It applies to later reads.
func (p *Proxy) Slow(rate int) { p.change(func() { p.rate = rate }) }

// Refuse reports whether new connections are closed at once.
func (p *Proxy) Refuse(on bool) { p.change(func() { p.refuses = on }) }

// Attempts returns the times of all attempts to connect.
func (p *Proxy) Attempts() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.times)
}

func (p *Proxy) change(apply func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apply()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // ends both directions
	}
}

func (p *Proxy) close() {
	p.change(func() { p.closed = true })
	_ = p.listener.Close() // it cannot fail in a way that matters
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.link(client) })
	}
}

// link connects a client with the server until either of them disconnects.
func (p *Proxy) link(client net.Conn) {
	defer client.Close()
	if !p.enter(client) {
		return
	}
	defer p.leave(client)
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(server) {
		return
	}
	defer p.leave(server)
	var ways sync.WaitGroup
	for _, c := range []net.Conn{client, server} {
		shrink(c)
	}
	ways.Go(func() { p.carry(ToServer, client, server) })
	ways.Go(func() { p.carry(ToClient, server, client) })
	ways.Wait()
}

// enter records an attempt, and reports whether it is accepted.
func (p *Proxy) enter(c net.Conn) bool {
	p.mu.Lock()
	p.times = append(p.times, time.Now())
	refuses := p.refuses
	p.mu.Unlock()
	return !refuses && p.keep(c)
}

func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// shrink makes the buffers of the system small, so that little data is on its way.
func shrink(c net.Conn) {
	const room = 32 << 10
	if tcp, ok := c.(*net.TCPConn); ok {
		_, _ = tcp.SetReadBuffer(room), tcp.SetWriteBuffer(room) // fails with the connection
	}
}

// carry copies one direction until either side disconnects.
func (p *Proxy) carry(d Direction, from, to net.Conn) {
	part := make([]byte, 32<<10)
	for {
		n, err := from.Read(part[:p.size(len(part))])
		p.pass(d)
		p.delay(n)
		if _, failed := to.Write(part[:n]); err != nil || failed != nil {
			_, _ = to.Close(), from.Close() // ends the other direction
			return
		}
	}
}

// pass waits while the direction is held.
func (p *Proxy) pass(d Direction) {
	for {
		p.mu.Lock()
		free, changed := !p.held[d] || p.closed, p.changed
		p.mu.Unlock()
		if free {
			return
		}
		<-changed
	}
}

// size returns the number of bytes per read: a hundredth of a second's worth on a
// slow link.
func (p *Proxy) size(most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		return most
	}
	return max(1, min(most, p.rate/100))
}

// delay waits for the time that n bytes take.
func (p *Proxy) delay(n int) {
	p.mu.Lock()
	rate := p.rate
	p.mu.Unlock()
	if rate > 0 {
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	}
}
