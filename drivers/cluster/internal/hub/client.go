package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// Client is a client of a hub: a connected process, as the hub sees it. Its
// methods may be called concurrently.
type Client struct {
	hub    *Hub
	name   string
	number uint64
	line   *protocol.Line
	calls  protocol.Calls
	batch  batch // belongs to the reader

	admitted bool   // belongs to the reader
	speaks   uint64 // the protocol version; belongs to the reader
	file     string // the name at the socket; belongs to the reader
	bye      bool   // belongs to the reader
	greeted  bool   // the welcome was queued; guarded by Hub.mu

	// copies is the number of bytes of records that were queued for the client. It
	// did not ask for them, and they are as long as the tables: they do not count as
	// unread answers.
	copies   atomic.Int64
	lasts    atomic.Uint64 // the number of TypeLast from the client: no event follows
	reported atomic.Bool   // the client has reported its subscriptions and its leases
	handled  chan struct{} // closed when the connection has ended, and all its frames are handled
	// knowsRecords reports that the client has been welcomed, and receives the
	// records of runs and limits.
	knowsRecords atomic.Bool
	frames       atomic.Uint64 // the number of received frames

	locks  clientLocks
	bus    clientBus
	limits clientLimits

	mu  sync.Mutex
	pid int   // as reported by the process itself
	err error // why the connection has ended

	copying  sync.WaitGroup // sends what the client's copy of the limits lacks
	welcomed chan struct{}  // closed when the welcome was written
	done     chan struct{}
}

func newClient(h *Hub, conn net.Conn, name string) *Client {
	c := &Client{hub: h, name: name, line: protocol.NewLine(conn), handled: make(chan struct{}), welcomed: make(chan struct{}), done: make(chan struct{})}
	c.calls.Open(c.line, h.handler(c), h.config.Log)
	return c
}

// Name returns the name that was passed to Join.
func (c *Client) Name() string { return c.name }

// PID returns the process id that the client has reported, or 0 before its
// report.
func (c *Client) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// Done returns a channel that is closed when the connection has ended and all
// leases of the client are released.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, or nil before. It returns io.EOF if
// the client's process has ended.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Call calls the client's Handler and returns its answer. It fails with a
// *CallError if the Handler fails. It also fails if ctx ends or the connection
// ends; the Handler may then have executed the call or not. The call of a client
// that has not connected yet waits for it.
func (c *Client) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	select {
	case <-c.welcomed: // a client takes the first frame for the welcome
	case <-c.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("call %q: %w", name, ctx.Err())
	}
	return c.calls.Call(ctx, name, body)
}

// String returns the name and the process id for the log.
func (c *Client) String() string { return fmt.Sprintf("%s (pid %d)", c.name, c.PID()) }

// serve reads until the connection has ended, and releases the client's leases.
func (c *Client) serve() {
	defer close(c.done)
	defer c.hub.leave(c) // last, so that the hub's Close waits for all of this
	err := c.read()
	if why := c.line.Err(); why != nil {
		err = why // the line was ended on this side, or a write failed
	}
	c.line.Close()
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.hub.bus.leave(c)
	close(c.handled)
	c.hub.limits.leave(c)
	c.hub.locks.leave(c, protocol.HasEnded(err) && !c.bye)
	c.batch.flush()
	c.calls.Fail(fmt.Errorf("%v is gone: %w", c, err))
	c.calls.Wait()
	c.copying.Wait()
	c.hub.config.Log.Debug("cluster: client disconnected", "client", c.name, "pid", c.PID(), "err", err)
}

// The limits of a client, before its hello and after it. A process that is
// stopped within a frame loses its connection, and reconnects when it
// continues. A child that inherits its connection may start slowly, or wait for
// a debugger, before it sends its hello.
var (
	beforeHello = protocol.Limits{Frame: 1 << 10, Within: 5 * time.Second}
	afterHello  = protocol.Limits{Within: 15 * time.Second}
)

// read reads until the connection has ended. A panic while handling a frame
// ends the connection, and not the program.
func (c *Client) read() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while handling a frame: %v", r)
			c.hub.config.Log.Error("cluster: client disconnected after a panic", "client", c.name, "pid", c.PID(), "panic", r, "stack", string(debug.Stack()))
		}
	}()
	return c.line.Read(c.handle, c.batch.flush)
}

// handle handles a frame. An error ends the connection.
func (c *Client) handle(t protocol.Type, body []byte) error {
	c.frames.Add(1)
	d := protocol.NewDecoder(body)
	err := c.act(t, &d)
	if err == nil {
		err = d.Err()
	}
	if err != nil {
		return fmt.Errorf("frame 0x%02x of %v: %w", uint8(t), c, err)
	}
	return nil
}

func (c *Client) act(t protocol.Type, d *protocol.Decoder) error {
	switch {
	case !c.admitted:
		return c.hello(t, d)
	case t == protocol.TypeBye:
		c.bye = true
	case t == protocol.TypeLast:
		c.lasts.Add(1)
	case t == protocol.TypeCall:
		c.calls.Serve(d)
	case t == protocol.TypeResult:
		c.calls.Result(d)
	case t == protocol.TypePart:
		return c.calls.Part(d)
	case t >= protocol.TypeLocks && t < protocol.TypeBus:
		return c.hub.locks.handle(c, t, d)
	case t >= protocol.TypeBus && t < protocol.TypeLimits:
		return c.hub.bus.handle(c, t, d)
	case t == protocol.LimitRecord:
		return c.hub.limits.restore(c, d)
	case t == protocol.LimitReporting:
		c.hub.limits.begin(c)
	case t == protocol.LimitReported:
		c.hub.limits.reported(c)
	case t == protocol.LimitGiven:
		c.hub.limits.given(c, d.String())
	}
	return nil
}

// errNoHello is the error for a first frame that is not hello.
var errNoHello = errors.New("the first frame is not a hello of this protocol")

func (c *Client) hello(t protocol.Type, d *protocol.Decoder) error {
	if t != protocol.TypeHello || d.Fixed(len(protocol.Magic)) != protocol.Magic {
		return errNoHello
	}
	h := protocol.ReadHello(d)
	if err := d.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	c.pid = int(h.PID)
	c.mu.Unlock()
	var err error
	if c.speaks, err = c.hub.speaks.Common(h.Speaks); err == nil && c.hub.confirm != nil {
		err = c.hub.confirm(h.File, h.Nonce)
	}
	if err == nil {
		err = c.hub.admit()
	}
	if err != nil {
		c.send(protocol.Begin(protocol.TypeRefused).String(err.Error()).Bool(passes(err)))
		c.batch.flush()
		return err
	}
	c.file = h.File
	c.admitted = true
	c.follow(c.hub.succeed(c))
	c.line.Limit(afterHello)
	if err := c.hub.welcome(c); err != nil {
		return err
	}
	c.hub.locks.introduce(c)
	c.hub.limits.introduce(c)
	c.batch.flush()
	close(c.welcomed)
	return nil
}

// followBound is how long a client waits for the end of its earlier connection.
const followBound = time.Second

// follow waits until the frames of an earlier connection of the process are handled,
// so that no event overtakes an earlier one (S5).
func (c *Client) follow(earlier *Client) {
	if earlier == nil {
		return
	}
	timer := time.NewTimer(followBound)
	defer timer.Stop()
	select {
	case <-earlier.handled:
	case <-timer.C:
		earlier.line.End(errReplaced)
	}
}

var errReplaced = errors.New("the process has connected again")

// passes reports whether a client that is refused for this reason may be admitted
// later, because this process or the system has no free descriptor.
func passes(err error) bool { return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) }

// send queues a frame for the reader's own client. The frame is written when
// the reader pauses.
func (c *Client) send(f *protocol.Frame) { c.batch.send(c, f) }

// maxAnswers is the number of unread bytes of answers at which the hub
// disconnects a client. Messages and copies that wait for it do not count.
const maxAnswers = 64 << 20

var errUnread = errors.New("the client does not read its answers")

// sendCopy is send for a record that the client keeps for the next hub.
func (b *batch) sendCopy(to *Client, f *protocol.Frame) {
	to.copies.Add(int64(f.Len()))
	_ = b.queue(to, f, 0) // the reader of a client handles the end of its line
	f.Free()
}

// batch collects the frames that a reader has queued for clients, until the
// reader pauses. It belongs to one goroutine.
type batch struct {
	touched    []*Client
	deliveries []addressed // scratch
}

// send queues f and frees it, regardless of the bytes that wait for the client
// already.
func (b *batch) send(to *Client, f *protocol.Frame) {
	err := b.queue(to, f, maxAnswers+to.hub.config.Backlog+int(to.copies.Load()))
	if errors.Is(err, protocol.ErrFull) {
		to.line.End(errUnread)
	}
	f.Free()
}

// queue queues f unless limit bytes wait for the client already. f still
// belongs to the caller.
func (b *batch) queue(to *Client, f *protocol.Frame, limit int) error {
	if err := to.line.Queue(f, limit); err != nil {
		return err
	}
	b.touch(to)
	return nil
}

// touch makes flush write what was queued for a client.
func (b *batch) touch(c *Client) {
	if !slices.Contains(b.touched, c) {
		b.touched = append(b.touched, c)
	}
}

// flush starts the writing of all frames that were queued.
func (b *batch) flush() {
	for i, c := range b.touched {
		c.line.Flush()
		b.touched[i] = nil
	}
	b.touched = b.touched[:0]
}
