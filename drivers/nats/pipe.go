package nats

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

const (
	// full is how much is sent by whoever adds to it, instead of waking the
	// goroutine: as many system calls as the client makes.
	full = 32 << 10
	// many is what a batch has if events come so fast that it pays to wait a
	// moment for the next.
	many   = 4 << 10
	moment = 50 * time.Microsecond
	// linger is how long the memory of a burst is kept.
	linger = time.Second
)

// pipe is a connection whose Write does not block: what is written is sent as
// far as the system takes it at once, and the rest waits in memory for a
// goroutine that sends it. The client writes while it holds its lock, so that a
// server that stops reading would stop everyone who publishes; here they see
// how much is waiting, and give up when they like.
type pipe struct {
	net.Conn
	now   *nonBlocking  // nil where the system has no such thing
	stall time.Duration // how long a server may take none of what is sent

	size atomic.Int64 // bytes that wait to be sent

	mu      sync.Mutex // guards the fields below
	waiting backlog
	lines   []byte // where a header is put together
	sending bool   // somebody is at it, and looks again when it is done
	clogged bool   // the system took less than was there: the goroutine waits for room
	hurry   bool   // what was added since somebody began to send is to go at once
	err     error
	room    chan struct{} // closed when something was sent; nil if nobody asked

	wake  chan struct{} // has one place
	ample time.Time     // since when there is more free memory than need be; the goroutine's
}

func newPipe(conn net.Conn, stall time.Duration) *pipe {
	return &pipe{Conn: conn, now: newNonBlocking(conn), stall: stall, wake: make(chan struct{}, 1)}
}

// Write takes all of b, whatever waits already; those who care look at
// size before.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	p.waiting.put(b)
	p.size.Add(int64(len(b)))
	p.push()
	return len(b), nil
}

// send takes a message as [pipe.Write] does. Events may wait a moment for
// others; what somebody waits for is sent at once.
func (p *pipe) send(f *frame, m *driver.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	n := f.put(p, m)
	if p.size.Add(int64(n)) >= full || m.Kind != driver.Event {
		p.push()
	} else {
		p.nudge()
	}
	return nil
}

// push sends what the system takes at once, up to a chunk. The caller holds
// p.mu, which is free meanwhile.
func (p *pipe) push() {
	if p.sending || p.clogged {
		p.hurry = true
		return
	}
	if p.now != nil {
		p.clogged = p.transfer(p.now.write)
	}
	if p.err == nil && !p.waiting.empty() {
		p.nudge() // the goroutine can wait until there is room
	}
}

// transfer sends the first chunk by write, and says whether that took less. The
// caller holds p.mu, which is free meanwhile: others add to the end of the
// queue.
func (p *pipe) transfer(write func([]byte) (int, error)) (short bool) {
	p.sending = true
	batch := p.waiting.peek()
	p.mu.Unlock()
	n, err := write(batch)
	p.mu.Lock()
	p.sending = false
	switch {
	case p.err != nil: // it was closed
	case err != nil:
		p.fail(err)
		_ = p.Conn.Close() // the reader hears of it, and connects again
	default:
		p.waiting.drop(n)
		p.size.Add(-int64(n))
		p.tell()
	}
	return n < len(batch)
}

func (p *pipe) nudge() {
	select {
	case p.wake <- struct{}{}:
	default: // it is awake
	}
}

// SetWriteDeadline does nothing: Write does not block.
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline bounds reading alone.
func (p *pipe) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// change returns a channel that is closed when less waits than now.
func (p *pipe) change() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.room == nil {
		p.room = make(chan struct{})
	}
	return p.room
}

// run sends until the connection is closed or broken.
func (p *pipe) run() {
	for {
		sent, steady, err := p.next()
		switch {
		case err != nil:
			return
		case !sent:
			p.rest()
		case steady:
			time.Sleep(moment)
		}
	}
}

// rest waits until there is something to do. The memory of a burst is kept for
// a while, since the next one may be near.
func (p *pipe) rest() {
	if !p.isAmple() {
		<-p.wake
		return
	}
	select {
	case <-p.wake:
	case <-time.After(linger):
	}
}

// isAmple says whether there is more free memory than need be, and gives it
// back if that has been so for long.
func (p *pipe) isAmple() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.waiting.frees <= spare:
		p.ample = time.Time{}
	case p.ample.IsZero():
		p.ample = time.Now()
	case time.Since(p.ample) >= linger:
		p.waiting.trim()
		p.ample = time.Time{}
	}
	return !p.ample.IsZero()
}

// next sends a chunk, if there is one and nobody else is at it, who wakes the
// goroutine for the rest. It says whether events come so fast that it pays to
// wait for more.
func (p *pipe) next() (sent, steady bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.sending || p.waiting.empty() {
		return false, false, p.err
	}
	n := len(p.waiting.peek())
	p.hurry = false
	p.transfer(p.patiently)
	p.clogged = false
	return true, n > many && p.size.Load() < full && !p.hurry, p.err
}

// patiently sends all of b, unless the server takes nothing for too long.
func (p *pipe) patiently(b []byte) (n int, err error) {
	if p.now != nil {
		if n, err = p.now.write(b); n == len(b) || err != nil {
			return n, err
		}
	}
	_ = p.Conn.SetWriteDeadline(time.Now().Add(p.stall)) // a closed connection says so when it is written to
	m, err := p.Conn.Write(b[n:])
	_ = p.Conn.SetWriteDeadline(time.Time{})
	return n + m, err
}

// fail ends the pipe. What still waits is lost. The caller holds p.mu.
func (p *pipe) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.waiting = backlog{}
	p.size.Store(0)
	p.tell()
	p.nudge()
}

func (p *pipe) tell() {
	if p.room != nil {
		close(p.room)
		p.room = nil
	}
}

// Close ends the connection. What still waits is lost.
func (p *pipe) Close() error {
	p.mu.Lock()
	p.fail(net.ErrClosed)
	p.mu.Unlock()
	return p.Conn.Close()
}
