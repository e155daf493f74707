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

	greeted bool   // belongs to the reader
	speaks  uint64 // the protocol version; belongs to the reader
	member  string // the name at the socket; belongs to the reader
	bye     bool   // belongs to the reader

	last  atomic.Bool   // no event of the client follows
	heard atomic.Uint64 // the number of received frames

	locks clientLocks
	bus   clientBus

	mu  sync.Mutex
	pid int   // as reported by the process itself
	err error // why the connection has ended

	serving sync.WaitGroup
	done    chan struct{}
}

func newClient(h *Hub, conn net.Conn, name string) *Client {
	p := &Client{hub: h, name: name, line: protocol.NewLine(conn), done: make(chan struct{})}
	p.calls.Open(p.line, h.handler(p), h.config.Log)
	p.line.Limit(beforeHello)
	return p
}

// Name returns the name that was passed to Join.
func (p *Client) Name() string { return p.name }

// PID returns the process id that the client has reported, or 0 before its
// report.
func (p *Client) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Done returns a channel that is closed when the connection has ended and all
// leases of the client are released.
func (p *Client) Done() <-chan struct{} { return p.done }

// Err returns why the connection has ended, or nil before. It returns io.EOF if
// the client's process has ended.
func (p *Client) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Call calls the client's Handler and returns its answer. It fails with a
// *CallError if the Handler fails. It also fails if ctx ends or the connection
// ends; the Handler may then have executed the call or not.
func (p *Client) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	return p.calls.Call(ctx, name, body)
}

// String returns the name and the process id for the log.
func (p *Client) String() string { return fmt.Sprintf("%s (pid %d)", p.name, p.PID()) }

// serve reads until the connection has ended, and releases the client's leases.
func (p *Client) serve() {
	defer close(p.done)
	defer p.hub.leave(p) // last, so that the hub's Close waits for all of this
	err := p.read()
	if why := p.line.Err(); why != nil {
		err = why // the line was ended on this side, or a write failed
	}
	p.line.Close()
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	p.hub.bus.leave(p)
	p.hub.locks.leave(p, protocol.HasEnded(err) && !p.bye)
	p.batch.flush()
	p.calls.Fail(fmt.Errorf("%v is gone: %w", p, err))
	p.calls.Wait()
	p.hub.config.Log.Debug("peer is gone", "peer", p.name, "pid", p.PID(), "reason", err)
}

// The limits of a client, before its hello and after it. A process that is
// stopped within a frame loses its connection, and reconnects when it
// continues.
var (
	beforeHello = protocol.Limits{Frame: 1 << 10, First: 5 * time.Second, Within: 5 * time.Second}
	afterHello  = protocol.Limits{Within: 15 * time.Second}
)

// read reads until the connection has ended. A panic while handling a frame
// ends the connection, and not the program.
func (p *Client) read() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while it was served: %v", r)
			p.hub.config.Log.Error("cluster: peer dropped after a panic", "peer", p.name, "pid", p.PID(), "panic", r, "stack", string(debug.Stack()))
		}
	}()
	return p.line.Read(p.handle, p.batch.flush)
}

// handle handles a frame. An error ends the connection.
func (p *Client) handle(t protocol.Type, body []byte) error {
	p.heard.Add(1)
	d := protocol.NewDecoder(body)
	err := p.act(t, &d)
	if err == nil {
		err = d.Err()
	}
	if err != nil {
		return fmt.Errorf("frame 0x%02x of %v: %w", uint8(t), p, err)
	}
	return nil
}

func (p *Client) act(t protocol.Type, d *protocol.Decoder) error {
	switch {
	case !p.greeted:
		return p.greet(t, d)
	case t == protocol.TypeBye:
		p.bye = true
	case t == protocol.TypeLast:
		p.last.Store(true)
	case t == protocol.TypeCall:
		p.calls.Serve(d)
	case t == protocol.TypeResult:
		p.calls.Result(d)
	case t >= protocol.TypeLocks && t < protocol.TypeBus:
		return p.hub.locks.handle(p, t, d)
	case t >= protocol.TypeBus && t < protocol.TypeEnd:
		return p.hub.bus.handle(p, t, d)
	}
	return nil
}

// errStranger is the error for a first frame that is not hello.
var errStranger = errors.New("it does not speak the language of a peer")

func (p *Client) greet(t protocol.Type, d *protocol.Decoder) error {
	if t != protocol.TypeHello || d.Fixed(len(protocol.Magic)) != protocol.Magic {
		return errStranger
	}
	h := protocol.ReadHello(d)
	if err := d.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	p.pid = int(h.PID)
	p.mu.Unlock()
	var err error
	if p.speaks, err = p.hub.speaks.Common(h.Speaks); err == nil && p.hub.confirm != nil {
		err = p.hub.confirm(h.Member, h.Nonce)
	}
	if err == nil {
		err = p.hub.admit()
	}
	if err != nil {
		p.send(protocol.Begin(protocol.TypeRefused).String(err.Error()))
		p.batch.flush()
		return err
	}
	p.member = h.Member
	p.greeted = true
	p.line.Limit(afterHello)
	p.hub.welcome(p)
	return nil
}

// send queues a frame for the reader's own client. The frame is written when
// the reader pauses.
func (p *Client) send(f *protocol.Frame) { p.batch.send(p, f) }

// stuck is the number of unread bytes of answers at which the hub disconnects a
// client.
const stuck = 64 << 20

var errStuck = errors.New("it does not read what it asked for")

// batch collects the frames that a reader has queued for clients, until the
// reader pauses. It belongs to one goroutine.
type batch struct {
	touched []*Client
	parcels []addressed // scratch
}

// send queues f and frees it, regardless of the bytes that wait for the client
// already.
func (b *batch) send(to *Client, f *protocol.Frame) {
	err := b.queue(to, f, stuck)
	if errors.Is(err, protocol.ErrFull) {
		to.line.End(errStuck)
	}
	f.Free()
}

// queue queues f unless limit bytes wait for the client already. f still
// belongs to the caller.
func (b *batch) queue(to *Client, f *protocol.Frame, limit int) error {
	if err := to.line.Queue(f, limit); err != nil {
		return err
	}
	if !slices.Contains(b.touched, to) {
		b.touched = append(b.touched, to)
	}
	return nil
}

// flush starts the writing of all frames that were queued.
func (b *batch) flush() {
	for i, p := range b.touched {
		p.line.Flush()
		b.touched[i] = nil
	}
	b.touched = b.touched[:0]
}
