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
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/lock/driver"
)

// Config configures a Node.
type Config struct {
	// Conn is the inherited connection to the hub. The node owns it. The end of
	// the connection is the end of the hub, and the node ends with it: see
	// [Node.Done].
	Conn net.Conn
	// Socket is the path at which unrelated processes of a user connect, used
	// instead of Conn. No other user may be able to enter its folder. Dial creates
	// a missing folder in a parent that exists.
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
	// handlers has a channel for each connection that has ended; it is closed when
	// no Handler of the connection runs.
	handlers []<-chan struct{}

	ctx     context.Context // ends with Close
	end     context.CancelFunc
	gone    chan struct{}
	over    sync.Once // closes gone
	running sync.WaitGroup
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
// because of its version, the error wraps [driver.ErrUnavailable]. Dial also waits
// for a hub that has no free file descriptor.
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
		if c.Conn != nil {
			_ = c.Conn.Close()
		}
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
	if err = n.connectPatiently(ctx); err != nil {
		return err
	}
	return n.awaitOpen(ctx)
}

// busyPause is the pause of a process whose hub may admit it later.
const busyPause = 100 * time.Millisecond

// connectPatiently is connect for the first hub. It waits until ctx ends while the
// hub has no descriptor for this process.
func (n *Node) connectPatiently(ctx context.Context) error {
	var refused error
	for {
		err := n.connect(ctx)
		if _, busy := errors.AsType[busyHubError](err); busy {
			refused = err
		} else if err == nil || ctx.Err() == nil || refused == nil {
			return err
		}
		if !group.Sleep(ctx, busyPause) {
			return fmt.Errorf("%w: %w", refused, ctx.Err()) // the refusal is more specific than the end of ctx
		}
	}
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

// hubTimeout is how long a node waits for the answer of one hub before it reports
// the silence and looks for another hub.
const hubTimeout = 5 * time.Second

// reconnect looks for a hub after the one at the socket has ended, until it finds
// one or the node is closed.
func (n *Node) reconnect() {
	lost, reported := time.Now(), false
	for wait := time.Millisecond; n.ctx.Err() == nil; wait = min(2*wait, time.Second) {
		ctx, cancel := context.WithTimeout(n.ctx, hubTimeout)
		err := n.connect(ctx)
		cancel()
		if err == nil && reported {
			n.config.Log.Info("cluster: hub found", "socket", n.config.Socket, "after", time.Since(lost).Round(time.Millisecond))
		}
		if err == nil || n.ctx.Err() != nil {
			return
		}
		n.explain(err)
		n.bus.withoutHub(err)
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
// ends the context of the Handlers and waits for them until ctx ends. Close is
// idempotent.
func (n *Node) Close(ctx context.Context) error {
	_ = n.lock.Close(ctx) // it returns no error
	s, first := n.leave()
	if s != nil {
		s.bye(ctx)
		s.line.Close()
	}
	n.running.Wait()
	n.ended(driver.ErrClosed)
	var err error
	if first && n.presence != nil {
		err = n.presence.leave(ctx, n.lock.latestExpiry())
	}
	return errors.Join(err, n.awaitHandlers(ctx))
}

// awaitHandlers waits for the Handlers that still run.
func (n *Node) awaitHandlers(ctx context.Context) error {
	n.mu.Lock()
	running := slices.Clone(n.handlers)
	n.mu.Unlock()
	for _, ended := range running {
		select {
		case <-ended:
			continue
		default:
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return fmt.Errorf("a handler still runs: %w", ctx.Err())
		}
	}
	return nil
}

// remember makes Close wait for the Handlers of s, which has ended. The caller
// holds n.mu.
func (n *Node) remember(s *session) {
	n.handlers = slices.DeleteFunc(n.handlers, func(ended <-chan struct{}) bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	n.handlers = append(n.handlers, s.calls.Ended())
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
