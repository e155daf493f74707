package wire

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/megaframework/mega/drivers/internal/nonblock"
)

// Feed lets the goroutines that wait for messages on a channel read them.
//
// A client of go-redis subscribes, pings, and connects again; a goroutine of the
// caller's reads the client. A message that this goroutine passed on would wake one
// goroutine after the other, and another thread of Go's runtime. So a goroutine that
// waits for a message reads the connection meanwhile (Lead). The client waits, and
// reads what Lead does not handle, and what arrives while no goroutine leads.
type Feed struct {
	dial    DialFunc
	channel atomic.Pointer[channel]
	current atomic.Pointer[tap] // the connection that has subscribed last
}

// channel is a channel whose messages callers of Lead may read.
type channel struct {
	subscribe []byte // the command
	head      []byte // the start of each message, up to its length
	handle    func(payload string)
}

// NewFeed returns a feed whose Dialer connects by dial.
func NewFeed(dial DialFunc) *Feed { return &Feed{dial: dial} }

// Dialer connects for the client's options.
func (f *Feed) Dialer(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := f.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if system, ok := conn.(syscall.Conn); ok { // not TLS, of which a descriptor shows nothing
		return &tap{Conn: conn, system: system, feed: f}, nil
	}
	return conn, nil
}

// Follow makes Lead pass the messages on name to handle, from the next subscription
// on. handle must not block.
func (f *Feed) Follow(name string, handle func(payload string)) {
	f.channel.Store(&channel{
		subscribe: appendCommand(nil, []string{"subscribe", name}),
		head:      append(appendText(appendText(appendHeader(nil, '*', 3), "message"), name), '$'),
		handle:    handle,
	})
}

// Lead reads messages until ready returns true, ctx ends, or until has passed, which
// is unlimited if zero. It may return earlier. It returns false, at once, if this
// goroutine cannot read: it then has to wait in another way. ready is called by this
// goroutine, before each read; a change of its result needs an Interrupt.
func (f *Feed) Lead(ctx context.Context, until time.Time, ready func() bool) bool {
	t := f.current.Load()
	if t == nil || !t.turn.TryLock() {
		return false
	}
	defer t.turn.Unlock()
	if !t.standsBy {
		return false
	}
	t.led = true
	t.watch.Disarm()
	defer t.endLead() // also when ctx panics
	defer context.AfterFunc(ctx, t.interrupt)()
	_ = t.Conn.SetReadDeadline(until) // the read returns any error
	for t.leadOnce(ctx, until, ready) {
	}
	return true
}

// Interrupt makes the goroutine that leads, if any, call its ready again.
func (f *Feed) Interrupt() {
	if t := f.current.Load(); t != nil {
		t.interrupt()
	}
}

// tap is a connection of a client. From its subscription on, the bytes that the client
// reads end with a whole item of RESP, so that a caller of Lead can read the next one.
type tap struct {
	net.Conn
	system syscall.Conn // the same
	feed   *Feed

	subscribed atomic.Bool
	reading    atomic.Bool // a caller of Lead reads, or is about to
	wanted     atomic.Bool // the client waits for the turn
	closed     atomic.Bool
	deadline   time.Time      // of the client's reads; belongs to its goroutine
	watch      nonblock.Watch // the wait of a client that stands by

	turn     sync.Mutex // held by the goroutine that reads; guards the fields below
	standsBy bool       // the client waits, and nothing is left for it
	led      bool       // somebody has led since the client stands by
	in       []byte     // received, and not taken
	due      int        // the length of whole items at the start of in, for the client
	err      error      // of a read of a caller of Lead, for the client
}

// Write implements [net.Conn].
func (t *tap) Write(b []byte) (int, error) {
	if c := t.feed.channel.Load(); c != nil && bytes.Contains(b, c.subscribe) {
		t.subscribed.Store(true)
		t.feed.current.Store(t)
	}
	return t.Conn.Write(b)
}

// SetReadDeadline implements [net.Conn], for the reads of the client.
func (t *tap) SetReadDeadline(d time.Time) error {
	t.deadline = d
	if !d.IsZero() {
		t.deadline = time.Now().Add(time.Until(d)) // the client's has no monotonic reading: a clock that is set back would put it off
	}
	if t.subscribed.Load() {
		return nil
	}
	return t.Conn.SetReadDeadline(d)
}

// SetDeadline implements [net.Conn], for the reads and writes of the client.
func (t *tap) SetDeadline(d time.Time) error {
	return errors.Join(t.SetReadDeadline(d), t.SetWriteDeadline(d))
}

// Close implements [net.Conn].
func (t *tap) Close() error {
	t.closed.Store(true)
	err := t.Conn.Close()
	t.watch.Close()
	return err
}

// SyscallConn implements [syscall.Conn], by which the client checks an idle
// connection.
func (t *tap) SyscallConn() (syscall.RawConn, error) { return t.system.SyscallConn() }

// Read implements [net.Conn], for the client.
func (t *tap) Read(p []byte) (int, error) {
	if !t.subscribed.Load() {
		n, err := t.Conn.Read(p)
		if n == 0 || !t.subscribed.Load() {
			return n, err
		}
		t.turn.Lock() // the subscription was written meanwhile
		t.in, t.err = append(t.in, p[:n]...), err
		t.turn.Unlock()
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	for {
		if t.due == 0 {
			t.due = whole(t.in)
		}
		if t.due > 0 {
			n := copy(p, t.in[:t.due])
			t.due -= n
			t.drop(n)
			return n, nil
		}
		if err := t.err; err != nil {
			t.err = nil
			return 0, err
		}
		if len(t.in) > 0 || !t.arm() {
			_ = t.Conn.SetReadDeadline(t.deadline) // the read returns any error
			t.err = t.receive(t.deadline)
		} else {
			t.standBy()
		}
	}
}

// arm reports whether the client can stand by.
func (t *tap) arm() bool {
	opened := t.watch.Open(t.Conn)
	if t.closed.Load() { // before it was opened
		t.watch.Close()
	}
	return opened && t.watch.Arm()
}

// standBy lets others lead until the connection has something, or they have left
// something for the client. It reads if nobody has led.
func (t *tap) standBy() {
	t.watch.Until(t.deadline)
	t.standsBy, t.led = true, false
	t.turn.Unlock()
	t.untilWanted()
	t.standsBy = false
	t.watch.Disarm()
	switch {
	case len(t.in) > 0 || t.err != nil:
	case passed(t.deadline):
		t.err = os.ErrDeadlineExceeded
	case !t.led:
		t.err = t.receive(t.deadline)
	}
}

// untilWanted waits until the client has to read or its deadline has passed. It
// returns with turn.
func (t *tap) untilWanted() {
	if t.watch.Wait() && t.turn.TryLock() {
		return
	}
	// A caller of Lead has the turn. It reads what the watch reported, or it armed the
	// watch at its end: then nothing reports that again.
	t.wanted.Store(true)
	defer t.wanted.Store(false)
	t.interrupt()
	t.turn.Lock()
}

func passed(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// receive reads once. An interrupt may have changed the deadline of the connection:
// then receive sets the given one, and reads nothing.
func (t *tap) receive(deadline time.Time) error {
	if len(t.in) == cap(t.in) {
		t.in = append(t.in, make([]byte, max(len(t.in), 4<<10))...)[:len(t.in)]
	}
	n, err := t.Conn.Read(t.in[len(t.in):cap(t.in)])
	t.in = t.in[:len(t.in)+n]
	if errors.Is(err, os.ErrDeadlineExceeded) && !passed(deadline) {
		return t.Conn.SetReadDeadline(deadline)
	}
	return err
}

// drop removes the first n bytes of in.
func (t *tap) drop(n int) {
	if t.in = t.in[:copy(t.in, t.in[n:])]; len(t.in) == 0 && cap(t.in) > keeps {
		t.in = nil
	}
}

// interrupt makes a caller of Lead return from its read.
func (t *tap) interrupt() {
	if t.reading.Load() {
		_ = t.Conn.SetReadDeadline(time.Unix(1, 0)) // a closed connection has no reader
	}
}

// leadOnce reads once, and reports whether the caller may read again.
func (t *tap) leadOnce(ctx context.Context, until time.Time, ready func() bool) bool {
	t.reading.Store(true) // before the calls that an interrupt is for
	if ready() || ctx.Err() != nil || t.wanted.Load() {
		return false
	}
	err := t.receive(until)
	t.reading.Store(false)
	if !t.pass() {
		return false
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	t.err = err
	return err == nil
}

// pass passes the messages on, and returns false if something else follows, which is
// for the client.
func (t *tap) pass() bool {
	c, at := t.feed.channel.Load(), 0
	for {
		rest := t.in[at:]
		start := min(len(rest), len(c.head))
		if !bytes.Equal(rest[:start], c.head[:start]) {
			t.drop(at)
			return false
		}
		payload, size := text(rest[start:])
		if size <= 0 {
			t.drop(at)
			return size == 0
		}
		c.handle(string(payload))
		at += start + size
	}
}

// text returns the text at the start of b, behind its "$", and its length with the
// end of the line: 0 if it is not complete, and negative if it is no text.
func text(b []byte) (payload []byte, size int) {
	line, rest, found := bytes.Cut(b, []byte("\r\n"))
	if !found {
		return nil, 0
	}
	n, err := strconv.Atoi(string(line))
	switch {
	case err != nil || n < 0 || strconv.Itoa(n) != string(line):
		return nil, -1
	case n > len(rest)-2:
		return nil, 0
	case rest[n] != '\r' || rest[n+1] != '\n':
		return nil, -1
	}
	return rest[:n], len(line) + 2 + n + 2
}

// endLead gives the connection back to the client.
func (t *tap) endLead() {
	t.reading.Store(false)
	_ = t.Conn.SetReadDeadline(time.Time{}) // the next read returns any error
	if len(t.in) > 0 || t.err != nil || !t.watch.Arm() {
		t.standsBy = false
		t.watch.Wake()
	}
}

// whole returns the length of the complete items at the start of b. Bytes that are
// not RESP count as complete.
func whole(b []byte) (n int) {
	for n < len(b) {
		var e extent
		if !e.complete(b[n:]) {
			return n
		}
		if e.at == 0 {
			return len(b)
		}
		n += e.at
	}
	return n
}
