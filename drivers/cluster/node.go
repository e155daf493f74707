package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/megaframework/mega/drivers/cluster/wire"
)

// Config is how a process takes part in a node.
type Config struct {
	// Conn is the connection to the hub, as it was inherited. The node owns it.
	// When it ends, the hub has, and the node with it: see [Node.Done].
	Conn net.Conn
	// Socket is the path where unrelated processes meet, in place of Conn.
	Socket string

	Log *slog.Logger // nil is silent
	// Handle answers the calls of the hub. It may be nil.
	Handle Handler
}

// Node is this process as a part of its node: a lock driver and a bus driver on
// one connection. Its methods may be called concurrently.
type Node struct {
	config Config
	lock   *Lock
	bus    *Bus

	mu     sync.Mutex
	hub    *session // nil while there is none
	why    error    // why there is none
	closed bool

	gone    chan struct{}
	running sync.WaitGroup
}

// session is one connection to a hub, from welcome to its end.
type session struct {
	line  *wire.Line
	calls calls
}

var (
	errNodeClosed  = errors.New("the node was closed")
	errNoHub       = errors.New("whoever is at the other end is no hub")
	errNoTransport = errors.New("a node needs either Conn or Socket")
)

// Dial joins the hub and returns when it has answered, or ctx's error.
func Dial(ctx context.Context, c Config) (*Node, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	n := &Node{config: c, gone: make(chan struct{}), why: errNoTransport}
	n.lock, n.bus = newLock(n), newBus(n)
	if (c.Conn == nil) == (c.Socket == "") {
		return nil, fmt.Errorf("join the node: %w", errNoTransport)
	}
	if c.Socket != "" {
		return nil, fmt.Errorf("join the node at %s: %w", c.Socket, errors.ErrUnsupported)
	}
	if err := n.greet(ctx, c.Conn); err != nil {
		return nil, fmt.Errorf("join the node: %w", err)
	}
	n.lock.connected()
	n.bus.connected()
	return n, nil
}

// Lock is the lock driver of the node.
func (n *Node) Lock() *Lock { return n.lock }

// Bus is the bus driver of the node.
func (n *Node) Bus() *Bus { return n.bus }

// Done is closed when the hub is gone and does not come back: the process that
// has started this one has ended, or Close was called.
func (n *Node) Done() <-chan struct{} { return n.gone }

// Call asks the hub's Handler and returns its answer, or fails as [Peer.Call].
func (n *Node) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	s, err := n.session()
	if err != nil {
		return nil, fmt.Errorf("call %q: %w", name, err)
	}
	return s.calls.call(ctx, name, body)
}

// session returns the connection to the hub, or why there is none.
func (n *Node) session() (*session, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hub == nil {
		return nil, n.why
	}
	return n.hub, nil
}

// Close leaves the node: what is held is left to its TTL. It is idempotent.
func (n *Node) Close(ctx context.Context) error {
	s := n.leave()
	if s != nil {
		_ = s.line.Send(wire.Begin(typeBye)) // an end that nobody hears of is one, too
		s.linger(ctx)
		s.line.Close()
	}
	n.running.Wait()
	return nil
}

// linger waits until all that is queued is written, or ctx has ended.
func (s *session) linger(ctx context.Context) { _ = s.line.Room(ctx, 1) }

func (n *Node) leave() *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.hub
	n.closed, n.hub, n.why = true, nil, errNodeClosed
	return s
}

// greet says hello and waits for the answer. The reader it starts makes the
// session the node's.
func (n *Node) greet(ctx context.Context, conn net.Conn) error {
	s := &session{line: wire.NewLine(conn)}
	s.calls.open(s.line, n.config.Handle, nil)
	if err := s.line.Send(wire.Begin(typeHello).Rest([]byte(magic)).Uint(version).Uint(uint64(os.Getpid()))); err != nil {
		s.line.Close()
		return err
	}
	welcome := make(chan error, 1)
	n.running.Go(func() { n.read(s, welcome) })
	select {
	case err := <-welcome:
		return err
	case <-ctx.Done():
		s.line.Close()
		return ctx.Err()
	}
}

// read reads what the hub sends until the line ends.
func (n *Node) read(s *session, welcome chan<- error) {
	greeted := false
	err := s.line.Read(func(t wire.Type, body []byte) error {
		d := wire.NewDecoder(body)
		if !greeted {
			if err := s.welcomed(t, &d); err != nil {
				return err
			}
			greeted = true
			err := n.enter(s)
			welcome <- err
			return err
		}
		if err := n.act(s, t, &d); err != nil {
			return err
		}
		return d.Err()
	}, func() {})
	s.line.Close()
	if !greeted {
		welcome <- err
		return
	}
	n.lost(s, fmt.Errorf("the hub is gone: %w", err))
}

// welcomed looks at the first frame of a hub.
func (s *session) welcomed(t wire.Type, d *wire.Decoder) error {
	switch t {
	case typeWelcome:
		_, _ = d.Uint(), d.Uint() // its version and our number
		return d.Err()
	case typeRefused:
		return fmt.Errorf("the hub refuses this process: %s", d.String())
	}
	return errNoHub
}

// enter makes s the connection of the node.
func (n *Node) enter(s *session) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errNodeClosed
	}
	n.hub = s
	return nil
}

// lost ends what depends on s.
func (n *Node) lost(s *session, why error) {
	n.mu.Lock()
	if n.hub == s {
		n.hub, n.why = nil, why
	}
	n.mu.Unlock()
	s.calls.end(why)
	n.lock.disconnected(why)
	n.bus.disconnected(why)
	close(n.gone)
}

// act acts on a frame of the hub.
func (n *Node) act(s *session, t wire.Type, d *wire.Decoder) error {
	switch {
	case t == typeCall:
		s.calls.serve(d)
	case t == typeResult:
		s.calls.result(d)
	case t >= typeLocks && t < typeBus:
		return n.lock.handle(t, d)
	case t >= typeBus && t < typeNone:
		return n.bus.handle(t, d)
	}
	return nil
}
