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

// Direction is a way through a [Proxy].
type Direction int

// The two ways.
const (
	ToServer Direction = iota
	ToClient
)

// Proxy is a network in front of a server, to be broken at will. Its methods
// may be called concurrently.
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

// Hold keeps back all that goes that way, the news of a closed connection
// included, until Heal. Connections stay open and new ones are taken.
func (p *Proxy) Hold(ways ...Direction) {
	p.change(func() {
		for _, d := range ways {
			p.held[d] = true
		}
	})
}

// Heal ends Hold. What was kept back arrives late, as on TCP.
func (p *Proxy) Heal() { p.change(func() { p.held = [2]bool{} }) }

// Slow bounds each direction of each connection to so many bytes per second,
// with little room beyond, as on a link: 0 ends it. It concerns what is read
// from then on.
func (p *Proxy) Slow(rate int) { p.change(func() { p.rate = rate }) }

// Refuse reports whether new connections are closed at once.
func (p *Proxy) Refuse(on bool) { p.change(func() { p.refuses = on }) }

// Attempts are the times of all attempts to connect.
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
		_ = c.Close() // both ends of it are told
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

// link joins a client and the server until either is gone.
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

// enter notes an attempt, and reports whether it is taken.
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

// shrink keeps the system from storing much of what is on its way.
func shrink(c net.Conn) {
	const room = 32 << 10
	if tcp, ok := c.(*net.TCPConn); ok {
		_, _ = tcp.SetReadBuffer(room), tcp.SetWriteBuffer(room) // fails with the connection
	}
}

// carry copies one way, until either end is gone.
func (p *Proxy) carry(d Direction, from, to net.Conn) {
	part := make([]byte, 32<<10)
	for {
		n, err := from.Read(part[:p.size(len(part))])
		p.pass(d)
		p.delay(n)
		if _, failed := to.Write(part[:n]); err != nil || failed != nil {
			_, _ = to.Close(), from.Close() // so that the other way ends
			return
		}
	}
}

// pass waits while the way is held.
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

// size returns how much is read at a time: on a slow link a hundredth of a
// second.
func (p *Proxy) size(most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		return most
	}
	return max(1, min(most, p.rate/100))
}

// delay waits for as long as n bytes take.
func (p *Proxy) delay(n int) {
	p.mu.Lock()
	rate := p.rate
	p.mu.Unlock()
	if rate > 0 {
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	}
}
