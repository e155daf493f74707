package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/megaframework/mega/drivers/cluster/wire"
)

// Peer is a process that is connected to a hub. Its methods may be called
// concurrently.
type Peer struct {
	hub    *Hub
	name   string
	number uint64
	line   *wire.Line
	calls  calls
	batch  batch // of the reader

	greeted bool   // the reader's
	speaks  uint64 // the version; the reader's
	member  string // at the socket; the reader's
	bye     bool   // the reader's

	last  atomic.Bool   // no event of the peer follows
	heard atomic.Uint64 // frames

	locks peerLocks
	bus   peerBus

	mu  sync.Mutex
	pid int   // as it says itself
	err error // why it is gone

	serving sync.WaitGroup
	done    chan struct{}
}

func newPeer(h *Hub, conn net.Conn, name string) *Peer {
	p := &Peer{hub: h, name: name, line: wire.NewLine(conn), done: make(chan struct{})}
	p.calls.open(p.line, h.config.Handle, p, h.config.Log)
	p.line.Limit(beforeHello)
	return p
}

// Name is what it was called when it joined.
func (p *Peer) Name() string { return p.name }

// PID is the peer's process id, as it says itself; 0 until it has.
func (p *Peer) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Done is closed when the peer is gone, and all that was its is free.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Err is why the peer is gone, or nil: io.EOF if it has ended.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Call asks the peer's Handler and returns its answer. It fails when ctx has
// ended or the peer is gone, which leaves open whether it was carried out, or
// with a *CallError if the Handler did.
func (p *Peer) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	return p.calls.call(ctx, name, body)
}

// String is for the log.
func (p *Peer) String() string { return fmt.Sprintf("%s (pid %d)", p.name, p.PID()) }

// serve reads until the peer is gone, and frees what it had.
func (p *Peer) serve() {
	defer close(p.done)
	defer p.hub.leave(p) // last, so that the hub's Close waits for all of this
	err := p.read()
	if why := p.line.Err(); why != nil {
		err = why // it was ended on this side, or could not be written to
	}
	p.line.Close()
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	p.hub.bus.leave(p)
	p.hub.locks.leave(p, hasEnded(err) && !p.bye)
	p.batch.flush()
	p.calls.fail(fmt.Errorf("%v is gone: %w", p, err))
	p.calls.wait()
	p.hub.config.Log.Debug("peer is gone", "peer", p.name, "pid", p.PID(), "reason", err)
}

// What a peer may send, before its hello and after. A process that is stopped
// within a frame loses its connection, and comes back when it continues.
var (
	beforeHello = wire.Limits{Frame: 1 << 10, First: 5 * time.Second, Within: 5 * time.Second}
	afterHello  = wire.Limits{Within: 15 * time.Second}
)

// read reads until the peer is gone. A panic over its frames ends the peer, and
// not the program.
func (p *Peer) read() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while it was served: %v", r)
			p.hub.config.Log.Error("cluster: peer dropped after a panic", "peer", p.name, "pid", p.PID(), "panic", r, "stack", string(debug.Stack()))
		}
	}()
	return p.line.Read(p.handle, p.batch.flush)
}

// hasEnded reports whether err says that the other side has closed the
// connection: its process has ended, or has closed it on purpose.
func hasEnded(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// handle acts on a frame. What it returns ends the peer.
func (p *Peer) handle(t wire.Type, body []byte) error {
	p.heard.Add(1)
	d := wire.NewDecoder(body)
	err := p.act(t, &d)
	if err == nil {
		err = d.Err()
	}
	if err != nil {
		return fmt.Errorf("frame 0x%02x of %v: %w", uint8(t), p, err)
	}
	return nil
}

func (p *Peer) act(t wire.Type, d *wire.Decoder) error {
	switch {
	case !p.greeted:
		return p.greet(t, d)
	case t == typeBye:
		p.bye = true
	case t == typeLast:
		p.last.Store(true)
	case t == typeCall:
		p.calls.serve(d)
	case t == typeResult:
		p.calls.result(d)
	case t >= typeLocks && t < typeBus:
		return p.hub.locks.handle(p, t, d)
	case t >= typeBus && t < typeNone:
		return p.hub.bus.handle(p, t, d)
	}
	return nil
}

// errStranger is a first frame that is not hello.
var errStranger = errors.New("it does not speak the language of a peer")

func (p *Peer) greet(t wire.Type, d *wire.Decoder) error {
	if t != typeHello || d.Fixed(len(magic)) != magic {
		return errStranger
	}
	h := readHello(d)
	if err := d.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	p.pid = int(h.pid)
	p.mu.Unlock()
	var err error
	if p.speaks, err = p.hub.speaks.common(h.speaks); err == nil && p.hub.confirm != nil {
		err = p.hub.confirm(h.member, h.nonce)
	}
	if err == nil {
		err = p.hub.admit()
	}
	if err != nil {
		p.send(wire.Begin(typeRefused).String(err.Error()))
		p.batch.flush()
		return err
	}
	p.member = h.member
	p.greeted = true
	p.line.Limit(afterHello)
	p.hub.welcome(p)
	return nil
}

// greeting is the first frame of a peer, after the magic word.
type greeting struct {
	speaks versions
	pid    uint64
	member string // its name at the socket
	nonce  uint64 // which the member's file repeats
}

func (h *greeting) frame() *wire.Frame {
	f := wire.Begin(typeHello).Rest([]byte(magic)).Uint(h.speaks.newest).Uint(h.pid)
	return f.String(h.member).Uint(h.nonce).Uint(h.speaks.oldest)
}

// readHello reads as much of a hello as its version has.
func readHello(d *wire.Decoder) (h greeting) {
	h.speaks.newest, h.pid = d.Uint(), d.Uint()
	h.speaks.oldest = h.speaks.newest
	if d.Left() > 0 {
		h.member = d.String()
	}
	if d.Left() > 0 {
		h.nonce, h.speaks.oldest = d.Uint(), d.Uint()
	}
	return h
}

// send queues a frame for the reader's own peer, to be written when the reader
// pauses.
func (p *Peer) send(f *wire.Frame) { p.batch.send(p, f) }

// stuck is from how many bytes of answers a peer that does not read them is
// disconnected.
const stuck = 64 << 20

var errStuck = errors.New("it does not read what it asked for")

// batch is what a reader has queued for peers, until it pauses. It belongs to
// one goroutine.
type batch struct {
	touched []*Peer
	parcels []addressed // scratch
}

// send queues f, which it frees, whatever waits for the peer already.
func (b *batch) send(to *Peer, f *wire.Frame) {
	err := b.queue(to, f, stuck)
	if errors.Is(err, wire.ErrFull) {
		to.line.End(errStuck)
	}
	f.Free()
}

// queue queues f unless limit bytes wait for the peer already. f is still the
// caller's.
func (b *batch) queue(to *Peer, f *wire.Frame, limit int) error {
	if err := to.line.Queue(f, limit); err != nil {
		return err
	}
	if !slices.Contains(b.touched, to) {
		b.touched = append(b.touched, to)
	}
	return nil
}

// flush has everything written that was queued.
func (b *batch) flush() {
	for i, p := range b.touched {
		p.line.Flush()
		b.touched[i] = nil
	}
	b.touched = b.touched[:0]
}
