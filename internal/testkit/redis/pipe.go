package redistest

import (
	"net"
	"sync"
	"testing"
)

// Pipe is a network in front of an address. It moves bytes without a look at them,
// so that it carries TLS, and it can do what a [Proxy] cannot: lose connections in
// silence, stop reading, and cut data anywhere. Its methods are safe for concurrent use.
type Pipe struct {
	listener net.Listener
	running  sync.WaitGroup // the accept loop, and two goroutines for each connection

	mu      sync.Mutex // guards the fields below
	target  string
	conns   map[net.Conn]struct{}
	gates   *[2]gate // of connections since the last Freeze
	changed chan struct{}
	closed  bool
}

// gate is the state of one direction.
type gate struct {
	shut  bool
	piece int // maximum size of a write; 0: any
}

// StartPipe starts a pipe to addr that ends with the test.
func StartPipe(tb testing.TB, addr string) *Pipe {
	tb.Helper()
	l, err := listen("127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Pipe{listener: l, target: addr, conns: map[net.Conn]struct{}{}, gates: &[2]gate{}, changed: make(chan struct{})}
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr returns the host and port of the pipe.
func (p *Pipe) Addr() string { return p.listener.Addr().String() }

// Lead has new connections go to addr, as a name does that has moved.
func (p *Pipe) Lead(addr string) { p.change(func() { p.target = addr }) }

// Freeze loses all open connections in silence: they stay open, and nothing moves
// on them any more. New ones work.
func (p *Pipe) Freeze() {
	p.change(func() {
		p.gates[Requests].shut, p.gates[Replies].shut = true, true
		p.gates = &[2]gate{}
	})
}

// Stall stops reading in direction d until Heal, so that writes of the sender block
// when the buffers of the system are full.
func (p *Pipe) Stall(d Direction) { p.change(func() { p.gates[d].shut = true }) }

// Cut has data arrive in direction d in pieces of at most n bytes.
func (p *Pipe) Cut(d Direction, n int) { p.change(func() { p.gates[d].piece = n }) }

// Heal ends Stall and Cut.
func (p *Pipe) Heal() { p.change(func() { *p.gates = [2]gate{} }) }

func (p *Pipe) change(apply func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apply()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Pipe) close() {
	p.change(func() { p.closed = true })
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Pipe) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target, gates := p.target, p.gates
		p.mu.Unlock()
		server, err := net.Dial("tcp", target) //nolint:noctx // on loopback
		if err != nil {
			abort(client)
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		if p.closed {
			_ = client.Close()
			_ = server.Close()
		}
		p.mu.Unlock()
		p.running.Go(func() { p.move(&gates[Requests], client, server) })
		p.running.Go(func() { p.move(&gates[Replies], server, client) })
	}
}

// move moves bytes until one side closes its connection, and then closes both, as
// soon as the gate is open.
func (p *Pipe) move(g *gate, from, to net.Conn) {
	defer p.forget(from, to)
	buffer := make([]byte, 32<<10)
	for p.pass(g, 0) >= 0 {
		n, err := from.Read(buffer)
		for sent := 0; sent < n; {
			size := p.pass(g, n-sent)
			if size < 0 {
				return
			}
			if _, err := to.Write(buffer[sent : sent+size]); err != nil {
				return
			}
			sent += size
		}
		if err != nil {
			p.pass(g, 0)
			return
		}
	}
}

// pass waits for the gate, and returns how many of n bytes may pass, or -1 if the
// pipe is closed.
func (p *Pipe) pass(g *gate, n int) int {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return -1
		}
		if !g.shut {
			if g.piece > 0 {
				n = min(n, g.piece)
			}
			p.mu.Unlock()
			return n
		}
		changed := p.changed
		p.mu.Unlock()
		<-changed
	}
}

func (p *Pipe) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
