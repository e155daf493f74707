package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/private"
	"github.com/megaframework/mega/lock/driver"
)

// session is one connection to a hub, from the welcome to the end of the
// connection.
type session struct {
	hub     string      // the name of the hub in errors
	decided atomic.Bool // the node has taken the session, or has given it up
	line    *protocol.Line
	calls   protocol.Calls
	number  uint64 // the hub's number of this process

	epoch   int64         // of the hub's limits; 0 from a hub of an earlier build
	self    uint64        // the number of the hub; 0 from a hub of an earlier build
	follows uint64        // the number of the hub before it; 0 if there is none
	shut    bool          // the hub does not know all clients yet
	opened  chan struct{} // closed when the hub knows all clients
	// reported is closed when the hub was sent all limits that this process knows.
	reported chan struct{}
	// ahead are the keys of limits that the hub was sent before that.
	ahead struct {
		sync.Mutex
		keys map[string]struct{}
	}
}

// bye announces that this process closes its line but lives on. The
// announcement follows all earlier frames. It is lost if the hub has ended, or
// does not read for a second.
func (s *session) bye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if s.line.Send(protocol.Begin(protocol.TypeBye)) == nil {
		_ = s.line.Room(ctx, 1)
	}
}

// identity is the data by which a process introduces itself at a socket.
type identity struct {
	name  string
	nonce uint64
}

func (n *Node) hello(as identity) *protocol.Hello {
	return &protocol.Hello{Speaks: n.speaks, PID: uint64(os.Getpid()), File: as.name, Nonce: as.nonce}
}

// handshake sends hello and waits for the answer. The reader that it starts makes
// the session the node's session.
func (n *Node) handshake(ctx context.Context, conn net.Conn, as identity) error {
	s := &session{hub: hubOf(conn), line: protocol.NewLine(conn), opened: make(chan struct{}), reported: make(chan struct{})}
	s.calls.Open(s.line, n.handler(), n.config.Log)
	if err := s.line.Send(n.hello(as).Frame()); err != nil {
		s.line.Close()
		return err
	}
	welcome := make(chan error, 1)
	n.running.Go(func() { n.read(s, welcome) })
	select {
	case err := <-welcome:
		return err
	case <-ctx.Done():
	}
	if s.decided.Swap(true) {
		return <-welcome // the welcome has just arrived
	}
	s.line.Close()
	return fmt.Errorf("%s does not answer (is it stopped?): %w", s.hub, ctx.Err())
}

// handler returns the function that answers the hub's calls, or nil.
func (n *Node) handler() func(context.Context, string, []byte) ([]byte, error) {
	handle := n.config.Handle
	if handle == nil {
		return nil
	}
	return func(ctx context.Context, name string, body []byte) ([]byte, error) {
		return handle(ctx, nil, name, body)
	}
}

// hubOf returns a description of the hub's process, if the system reports it.
func hubOf(conn net.Conn) string {
	peer, err := private.PeerOf(conn)
	if err != nil {
		return "the hub"
	}
	return fmt.Sprintf("the hub (process %d)", peer.PID)
}

// errGivenUp is the error of a session whose waiter has given up.
var errGivenUp = errors.New("its welcome came too late")

// read reads the hub's frames until the line ends.
func (n *Node) read(s *session, welcome chan<- error) {
	greeted := false
	err := s.line.Read(func(t protocol.Type, body []byte) error {
		d := protocol.NewDecoder(body)
		if !greeted {
			if err := s.welcomed(t, &d, n.speaks); err != nil {
				return err
			}
			if s.decided.Swap(true) {
				return errGivenUp
			}
			greeted = true
			err := n.begin(s)
			welcome <- err
			return err
		}
		if err := n.act(s, t, &d); err != nil {
			return err
		}
		return d.Err()
	}, func() {
		if n.lock.callsOneByOne() {
			s.line.Yield()
		}
	})
	if why := s.line.Err(); why != nil {
		err = why // the write error is more specific than the end of the connection
	}
	if !protocol.HasEnded(err) {
		// This process and its leases go on: only the line ends.
		s.bye(n.ctx)
	}
	s.line.Close()
	if !greeted {
		welcome <- err
		return
	}
	n.lost(s, fmt.Errorf("%s is gone: %w", s.hub, err))
}

// begin reports the state of the earlier hub to the hub of s, and makes s the session
// of the node. No other goroutine has s yet, so the report comes before any request.
// The last frame of the locks marks its end. The limits may be many: they follow, and
// only their own calls wait for them.
func (n *Node) begin(s *session) error {
	n.bus.connected(s)
	n.limits.date(s.epoch)
	report := n.limits.connected(s)
	n.lock.connected(s)
	if report != nil {
		n.running.Go(report)
	}
	if !s.shut {
		n.open(s)
	}
	s.line.Flush()
	return n.enter(s)
}

// welcomed handles the first frame of a hub.
func (s *session) welcomed(t protocol.Type, d *protocol.Decoder, speaks protocol.Versions) error {
	switch t {
	case protocol.TypeWelcome:
		v := d.Uint()
		s.number = d.Uint()
		s.shut = d.Bool()
		if d.Left() > 0 {
			s.epoch = int64(d.Uint())
		}
		if d.Left() > 0 {
			s.self, s.follows = d.Uint(), d.Uint()
		}
		if v < speaks.Oldest || v > speaks.Newest {
			return fmt.Errorf("%w: %s speaks version %d of the protocol, this process version %d", driver.ErrUnavailable, s.hub, v, speaks.Newest) // L24
		}
		return d.Err()
	case protocol.TypeRefused:
		err := fmt.Errorf("%w: %s refuses this process: %s", driver.ErrUnavailable, s.hub, d.String())
		if d.Left() > 0 && d.Bool() { // a hub of an earlier build does not send it
			return busyHubError{err}
		}
		return err
	}
	return errNoHub
}

// busyHubError is the refusal of a hub that may admit this process later.
type busyHubError struct{ error }

// Unwrap returns the error without that.
func (e busyHubError) Unwrap() error { return e.error }

// open lets messages leave by s.
func (n *Node) open(s *session) {
	s.shut = false
	n.bus.opened(s)
	close(s.opened)
}

// enter makes s the connection of the node.
func (n *Node) enter(s *session) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errNodeClosed
	}
	n.hub = s
	if n.presence != nil {
		n.presence.connected.Store(true)
	}
	close(n.came)
	n.came = nil
	return nil
}

// lost ends everything that depends on s, and looks for another hub if one may
// come.
func (n *Node) lost(s *session, why error) {
	n.mu.Lock()
	final := n.closed || n.presence == nil
	if n.hub == s {
		n.hub, n.why, n.came = nil, why, nil
		if !final {
			n.came = make(chan struct{})
		}
	}
	n.remember(s)
	n.mu.Unlock()
	s.calls.Fail(why)
	n.lock.disconnected(why)
	n.bus.disconnected(why)
	if final {
		n.ended(why)
		return
	}
	n.reconnect()
}

// ended ends the node: there is no hub and none will come. If the node is
// closed first, that is the reason.
func (n *Node) ended(why error) {
	n.mu.Lock()
	if n.closed {
		why = driver.ErrClosed
	}
	n.mu.Unlock()
	n.over.Do(func() {
		n.lock.ended(why)
		n.limits.copied.Close()
		close(n.gone)
	})
}

// act handles a frame of the hub.
func (n *Node) act(s *session, t protocol.Type, d *protocol.Decoder) error {
	if t != protocol.LockAnswer {
		n.lock.single = 0
	}
	switch {
	case t == protocol.TypeOpen && s.shut:
		n.open(s)
	case t == protocol.TypeLeaving:
		n.bus.leaving()
		return s.line.Send(protocol.Begin(protocol.TypeLast))
	case t == protocol.TypeWhole:
		n.bus.whole(s)
	case t == protocol.TypeAbsent:
		n.bus.absent()
	case t == protocol.TypeCall:
		s.calls.Serve(d)
	case t == protocol.TypeResult:
		s.calls.Result(d)
	case t == protocol.TypePart:
		return s.calls.Part(d)
	case t >= protocol.TypeLocks && t < protocol.TypeBus:
		return n.lock.handle(t, d)
	case t >= protocol.TypeBus && t < protocol.TypeLimits:
		return n.bus.handle(s, t, d)
	case t >= protocol.TypeLimits && t < protocol.TypeEnd:
		return n.limits.handle(s, t, d)
	}
	return nil
}
