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
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/private"
	"github.com/megaframework/mega/lock/driver"
)

// Config configures a Node.
type Config struct {
	// Conn is the inherited connection to the hub. The node owns it. The end of
	// the connection is the end of the hub, and the node ends with it: see
	// [Node.Done].
	Conn net.Conn
	// Socket is the path at which unrelated processes connect, used instead of
	// Conn.
	Socket string
	// Recruit, if not nil, keeps this process from becoming the hub of Socket:
	// Dial, and a node that has lost its hub, call it while there is no hub. It
	// returns when another process has become the hub, or an error that ends
	// Dial. It may be called although there is a hub by now.
	Recruit func(ctx context.Context) error

	// Buffer is the maximum number of bytes of messages that wait for the hub;
	// 8 MiB by default.
	Buffer int

	Log *slog.Logger // nil disables logging
	// Handle answers calls from the hub. It may be nil.
	Handle Handler
}

// Node is the connection of this process to the hub of its node. It provides
// drivers of locks, messages and limits. Its methods may be called concurrently.
type Node struct {
	config Config
	speaks protocol.Versions
	lock   *Lock
	bus    *Bus
	limits *limits

	presence *presence // the connection at Config.Socket; nil with Config.Conn
	warnings []string  // the warnings of Lock.Info

	mu     sync.Mutex
	hub    *session      // nil without a connection
	why    error         // the reason why hub is nil
	came   chan struct{} // closed when hub is set, or when no hub will come; nil after that
	closed bool

	ctx     context.Context // ends with Close
	end     context.CancelFunc
	gone    chan struct{}
	over    sync.Once // closes gone
	running sync.WaitGroup
}

// session is one connection to a hub, from the welcome to the end of the
// connection.
type session struct {
	hub     string      // the name of the hub in errors
	decided atomic.Bool // the node has taken the session, or has given it up
	line    *protocol.Line
	calls   protocol.Calls
	number  uint64 // the hub's number of this process

	epoch  int64         // of the hub's limits; 0 from a hub of an earlier build
	shut   bool          // the hub does not know all clients yet
	opened chan struct{} // closed when the hub knows all clients
}

var (
	errNodeClosed  = errors.New("the node is closed")
	errNoHub       = errors.New("peer is not a hub")
	errNoTransport = errors.New("a node needs either Conn or Socket")
)

// dialBound is how long Dial waits under a context without a deadline.
const dialBound = 10 * time.Second

// Dial connects to the hub and returns when the hub has answered. It waits
// until ctx ends, or at most 10 s if ctx has no deadline; the error then names
// the process that does not answer. If the hub refuses the process, for example
// because of its version, the error wraps [driver.ErrUnavailable].
func Dial(ctx context.Context, c Config) (*Node, error) {
	return dial(ctx, c, protocol.Known)
}

func dial(ctx context.Context, c Config, speaks protocol.Versions) (*Node, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialBound)
		defer cancel()
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Buffer = cmp.Or(c.Buffer, 8<<20)
	if (c.Conn == nil) == (c.Socket == "") {
		return nil, fmt.Errorf("connect to the hub: %w", errNoTransport)
	}
	n := &Node{config: c, speaks: speaks, came: make(chan struct{}), gone: make(chan struct{}), why: errNoTransport}
	n.ctx, n.end = context.WithCancel(context.Background())
	n.lock, n.bus, n.limits = newLock(n), newBus(n), newLimits(n)
	if err := n.join(ctx); err != nil {
		return nil, fmt.Errorf("connect to the hub: %w", errors.Join(err, n.Close(ctx)))
	}
	return n, nil
}

func (n *Node) join(ctx context.Context) (err error) {
	if n.config.Conn != nil {
		return n.handshake(ctx, n.config.Conn, identity{})
	}
	if n.presence, err = openPresence(n.config); err != nil {
		return err
	}
	n.warnings = warnings(n.config.Socket)
	if err = n.connect(ctx); err != nil {
		return err
	}
	return n.awaitOpen(ctx)
}

// awaitOpen waits until the hub knows all clients: earlier messages and requests
// would find no receiver.
func (n *Node) awaitOpen(ctx context.Context) error {
	for {
		s, err := n.ready(ctx)
		if err != nil {
			return err
		}
		select {
		case <-s.opened:
			return nil
		case <-s.line.Ended():
			group.Sleep(ctx, time.Millisecond) // until the node has noticed; ctx is checked above
		case <-ctx.Done():
			return fmt.Errorf("%s waits for the other processes: %w", s.hub, ctx.Err())
		}
	}
}

// connect connects to the hub at the socket, or becomes the hub, and waits for
// the hub's welcome. A hub that ends before its welcome does not count.
func (n *Node) connect(ctx context.Context) error {
	for {
		conn, as, err := n.presence.enter(ctx)
		if err != nil {
			return err
		}
		if err = n.handshake(ctx, conn, as); err == nil || !protocol.HasEnded(err) {
			return err
		}
		if !group.Sleep(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
}

// patience is how long a node waits for the answer of one hub before it reports
// the silence and looks for another hub.
const patience = 5 * time.Second

// reconnect looks for a hub after the one at the socket has ended, until it finds
// one or the node is closed.
func (n *Node) reconnect() {
	lost, reported := time.Now(), false
	for wait := time.Millisecond; n.ctx.Err() == nil; wait = min(2*wait, time.Second) {
		ctx, cancel := context.WithTimeout(n.ctx, patience)
		err := n.connect(ctx)
		cancel()
		if err == nil && reported {
			n.config.Log.Info("cluster: hub found", "socket", n.config.Socket, "after", time.Since(lost).Round(time.Millisecond))
		}
		if err == nil || n.ctx.Err() != nil {
			return
		}
		n.explain(err)
		if !reported { // L21: log once
			n.config.Log.Warn("cluster: hub lost, looking for another", "socket", n.config.Socket, "err", err)
			reported = true
		}
		group.Sleep(n.ctx, wait) // the end of the context is checked above
	}
}

// explain records the reason why there is no hub.
func (n *Node) explain(why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hub == nil && !n.closed {
		n.why = why
	}
}

// Lock returns the lock driver of the node.
func (n *Node) Lock() *Lock { return n.lock }

// Bus returns the bus driver of the node.
func (n *Node) Bus() *Bus { return n.bus }

// Done returns a channel that is closed when the hub has ended and does not
// come back: the process that started this one has ended, or Close was called.
func (n *Node) Done() <-chan struct{} { return n.gone }

// mayReturn reports whether there is a hub, or another hub may come.
func (n *Node) mayReturn() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hub != nil || n.came != nil
}

// Clients returns the number of clients of the hub at the socket, this node
// included, and whether the hub is in this process. It returns 0 otherwise.
func (n *Node) Clients() (count int, here bool) {
	if n.presence == nil {
		return 0, false
	}
	return n.presence.clients()
}

// Call calls the hub's Handler and returns its answer. It returns the same
// errors as [Client.Call].
func (n *Node) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	s, err := n.session()
	if err != nil {
		return nil, fmt.Errorf("call %q: %w", name, err)
	}
	return s.calls.Call(ctx, name, body)
}

// Ping waits for an answer from the hub. While another process takes over, Ping
// waits for the new hub.
func (n *Node) Ping(ctx context.Context) error {
	s, err := n.ready(ctx)
	if err != nil {
		return err
	}
	_, err = s.calls.Call(ctx, "ping", nil)
	if _, answered := errors.AsType[*CallError](err); answered {
		return nil // a hub without this call has answered, too
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s does not answer (is it stopped?): %w", s.hub, ctx.Err())
	}
	return err
}

// session returns the connection to the hub, or the reason why there is none.
func (n *Node) session() (*session, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hub == nil {
		return nil, n.why
	}
	return n.hub, nil
}

// ready waits for a connection to the hub and returns it. It returns ctx's
// error if ctx ends first, or the reason if no hub will come.
func (n *Node) ready(ctx context.Context) (*session, error) {
	for {
		n.mu.Lock()
		s, why, came := n.hub, n.why, n.came
		n.mu.Unlock()
		if s != nil {
			return s, nil
		}
		if came == nil {
			return nil, why
		}
		select {
		case <-came:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", why, ctx.Err())
		}
	}
}

// Close leaves the node: leases that are still held remain until their TTL. If
// this process is the hub, the hub ends and another process takes over. Close
// is idempotent.
func (n *Node) Close(ctx context.Context) error {
	_ = n.lock.Close(ctx) // it returns no error
	s, first := n.leave()
	if s != nil {
		s.bye(ctx)
		s.line.Close()
	}
	n.running.Wait()
	n.ended(driver.ErrClosed)
	if first && n.presence != nil {
		return n.presence.leave(ctx, n.lock.latestExpiry())
	}
	return nil
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

func (n *Node) leave() (s *session, first bool) {
	n.end()
	n.mu.Lock()
	defer n.mu.Unlock()
	s, first = n.hub, !n.closed
	n.closed, n.hub, n.why = true, nil, errNodeClosed
	if n.came != nil {
		close(n.came)
		n.came = nil
	}
	return s, first
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
	s := &session{hub: hubOf(conn), line: protocol.NewLine(conn), opened: make(chan struct{})}
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
			// No other goroutine has the session yet: the state of the earlier
			// hub is reported before any request is sent to this one. Locks
			// come last: their last frame marks the end of the report.
			n.bus.connected(s)
			n.limits.date(s.epoch)
			n.limits.connected(s)
			n.lock.connected(s)
			if !s.shut {
				n.open(s)
			}
			s.line.Flush()
			err := n.enter(s)
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
		if v < speaks.Oldest || v > speaks.Newest {
			return fmt.Errorf("%w: %s speaks version %d of the protocol, this process version %d", driver.ErrUnavailable, s.hub, v, speaks.Newest) // L24
		}
		return d.Err()
	case protocol.TypeRefused:
		return fmt.Errorf("%w: %s refuses this process: %s", driver.ErrUnavailable, s.hub, d.String())
	}
	return errNoHub
}

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
	n.mu.Unlock()
	s.calls.Fail(why)
	defer s.calls.Wait()
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
		n.bus.leaving(s)
		return s.line.Send(protocol.Begin(protocol.TypeLast))
	case t == protocol.TypeCall:
		s.calls.Serve(d)
	case t == protocol.TypeResult:
		s.calls.Result(d)
	case t >= protocol.TypeLocks && t < protocol.TypeBus:
		return n.lock.handle(t, d)
	case t >= protocol.TypeBus && t < protocol.TypeLimits:
		return n.bus.handle(s, t, d)
	case t >= protocol.TypeLimits && t < protocol.TypeEnd:
		return n.limits.handle(t, d)
	}
	return nil
}
