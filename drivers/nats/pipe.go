package nats

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// stall is how long a server may take none of what is sent to it before the
// connection is given up.
const stall = 10 * time.Second

// keep is how much memory for sending outlives a burst.
const keep = 1 << 20

// pipe is a connection whose Write does not block: what is written waits in
// memory for a goroutine that sends it. The client writes while it holds its
// lock, so that a server that stops reading would stop everyone who publishes;
// here they see how much is waiting, and give up when they like.
type pipe struct {
	net.Conn

	size atomic.Int64 // bytes that wait to be sent

	mu      sync.Mutex // guards the fields below
	waiting []byte
	err     error
	room    chan struct{} // closed and replaced whenever something was sent

	wake chan struct{} // has one place
}

func newPipe(conn net.Conn) *pipe {
	return &pipe{Conn: conn, room: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Write takes all of b, whatever waits already; those who care look at
// size before.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	p.waiting = append(p.waiting, b...)
	p.size.Add(int64(len(b)))
	p.nudge()
	return len(b), nil
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
	return p.room
}

// run sends until the connection is closed or broken.
func (p *pipe) run() {
	var spare []byte
	for {
		batch, err := p.take(spare)
		if err != nil {
			return
		}
		if spare = batch[:0]; len(batch) == 0 {
			spare = p.rest(spare)
			<-p.wake
			continue
		}
		_ = p.Conn.SetWriteDeadline(time.Now().Add(stall)) // a closed connection says so when it is written to
		_, err = p.Conn.Write(batch)
		if p.sent(len(batch), err); err != nil {
			_ = p.Conn.Close() // the reader hears of it, and connects again
			return
		}
	}
}

// take returns what waits, and has spare filled from now on.
func (p *pipe) take(spare []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	batch := p.waiting
	p.waiting = spare
	return batch, nil
}

// rest gives back what a burst has left, now that nothing waits.
func (p *pipe) rest(spare []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 && cap(p.waiting) > keep {
		p.waiting = nil
	}
	if cap(spare) > keep {
		return nil
	}
	return spare
}

// sent makes room for n bytes, which were sent or are lost.
func (p *pipe) sent(n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size.Add(-int64(n))
	if p.err == nil {
		p.err = err
	}
	p.tell()
}

func (p *pipe) tell() {
	close(p.room)
	p.room = make(chan struct{})
}

// Close ends the connection. What still waits is lost.
func (p *pipe) Close() error {
	p.mu.Lock()
	if p.err == nil {
		p.err = net.ErrClosed
	}
	p.size.Add(-int64(len(p.waiting)))
	p.waiting = nil
	p.tell()
	p.nudge()
	p.mu.Unlock()
	return p.Conn.Close()
}
