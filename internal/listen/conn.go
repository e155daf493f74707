package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// connState is the state of a connection, finer than http.ConnState.
type connState int

const (
	waiting  connState = iota // no byte of the next request has arrived
	reading                   // a request has begun to arrive
	serving                   // its handler was called; the response may be incomplete
	hijacked                  // by its handler
)

// conn is a connection of a server. It reads until a deadline that a drain can
// bring forward, and fails writes to a client that reads nothing.
type conn struct {
	net.Conn
	conns   *connections
	cancel  context.CancelCauseFunc // cancels the contexts of its requests
	limiter atomic.Pointer[limiter] // released when the connection closes; nil for none
	spares  *spares                 // gets back the descriptor when the connection closes; nil for none
	writing atomic.Bool             // a write is in progress

	mu        sync.Mutex // guards the fields below
	state     connState
	since     time.Time // when state began
	handshake bool      // of TLS, is not complete
	inHandler bool
	readBy    time.Time // read deadline of net/http or of a handler
	due       time.Time // additional read deadline until a handler is called; zero for none
	writeBy   time.Time // write deadline of a handler
}

// String describes the connection in the error for requests that were cut off.
func (k *conn) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fmt.Sprintf("connection from %v (%v)", k.RemoteAddr(), time.Since(k.since).Round(time.Millisecond))
}

func (k *conn) setState(s connState) {
	k.mu.Lock()
	k.state, k.since = s, time.Now()
	k.mu.Unlock()
}

func (k *conn) isHijacked() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state == hijacked
}

// expire sets due: a waiting connection ends after patience, and one that reads a
// head after headPatience. A connection in any other state stays as it is.
func (k *conn) expire(patience time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch k.state {
	case waiting:
		k.due = k.since.Add(patience)
	case reading:
		k.due = k.since.Add(headPatience)
	default:
		return
	}
	_ = k.setReadDeadlineLocked() // fails on a closed connection
}

// startRequest records that a request has begun to arrive.
func (k *conn) startRequest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == waiting {
		k.startReadingLocked()
	}
}

// startReadingLocked changes the state to reading, and limits the time of the
// head if the server drains.
func (k *conn) startReadingLocked() {
	k.state, k.since = reading, time.Now()
	if !k.due.IsZero() {
		k.due = k.since.Add(headPatience)
		_ = k.setReadDeadlineLocked() // fails on a closed connection
	}
}

// startHandler records that a handler was called. The time to read is then the
// handler's own.
func (k *conn) startHandler() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state, k.since, k.inHandler = serving, time.Now(), true
	if !k.due.IsZero() {
		k.due = time.Time{}
		_ = k.setReadDeadlineLocked() // fails on a closed connection
	}
}

// endHandler records that a handler has returned. If the handler has hijacked the
// connection, endHandler ends the connection's context.
func (k *conn) endHandler() {
	k.mu.Lock()
	k.inHandler = false
	taken := k.state == hijacked
	k.mu.Unlock()
	if taken {
		k.cancel(nil)
	}
}

// Read records that a request has begun to arrive. A request whose first bytes
// arrive when the connection is due is served: on a busy machine, this
// goroutine may not have run since they arrived.
func (k *conn) Read(b []byte) (int, error) {
	for {
		n, err := k.Conn.Read(b)
		if n > 0 {
			k.startRequest()
		} else if errors.Is(err, os.ErrDeadlineExceeded) && k.arrivedInTime() {
			continue
		}
		return n, err
	}
}

// arrivedInTime reports whether a request has begun to arrive on a waiting
// connection that is due: whether the kernel has unread bytes of it. It then
// changes the state to reading.
func (k *conn) arrivedInTime() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.state != waiting || k.due.IsZero() || now.Before(k.due) || past(k.readBy, now) || !pending(k.Conn) {
		return false
	}
	k.startReadingLocked()
	return true
}

// past reports whether a deadline has passed. The zero deadline does not pass.
func past(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

// earlier returns the earlier of two deadlines. The zero deadline means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (k *conn) setReadDeadlineLocked() error { return k.Conn.SetReadDeadline(earlier(k.readBy, k.due)) }

// SetReadDeadline sets the deadline of net/http or of a handler.
func (k *conn) SetReadDeadline(t time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readBy = t
	if k.handshake && t.IsZero() {
		k.handshakeDoneLocked()
	}
	return k.setReadDeadlineLocked()
}

// handshakeDoneLocked records that a handshake is complete: net/http removes the
// deadline of the handshake then. The bytes of a handshake are not the head of a
// request, so the connection waits for its first request.
func (k *conn) handshakeDoneLocked() {
	k.handshake, k.state, k.since = false, waiting, time.Now()
	if !k.due.IsZero() {
		k.due = k.since.Add(k.conns.patience)
	}
}

// Write fails when the client has read nothing for stallTime. A whole response
// may take longer, and a handler may pause between its writes.
func (k *conn) Write(b []byte) (written int, err error) {
	k.writing.Store(true)
	defer k.writing.Store(false)
	for {
		if err := k.setWriteDeadline(); err != nil {
			return written, err
		}
		n, err := k.Conn.Write(b[written:])
		written += n
		if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || k.overdue() {
			if err != nil && !k.isHijacked() {
				k.resetOnClose(true) // net/http writes the last bytes after the handler
			}
			return written, err
		}
	}
}

func (k *conn) setWriteDeadline() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Conn.SetWriteDeadline(earlier(k.writeBy, time.Now().Add(stallTime)))
}

func (k *conn) overdue() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return past(k.writeBy, time.Now())
}

// SetWriteDeadline sets the handler's own deadline. stallTime still applies.
func (k *conn) SetWriteDeadline(t time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writeBy = t
	return k.Conn.SetWriteDeadline(t)
}

// SetDeadline sets both deadlines.
func (k *conn) SetDeadline(t time.Time) error {
	return errors.Join(k.SetReadDeadline(t), k.SetWriteDeadline(t))
}

// CloseWrite closes the sending side, so that a client can still read the last
// response.
func (k *conn) CloseWrite() error {
	if tcp, ok := k.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// resetOnClose makes the close of the connection a reset, or an orderly end. The end
// of the connection is the end of an HTTP/1.0 answer without a length: only a reset
// shows a client such as nginx that a part is missing.
func (k *conn) resetOnClose(reset bool) {
	linger := -1
	if reset {
		linger = 0
	}
	if tcp, ok := k.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(linger) // fails on a closed connection
	}
}

// NetConn returns the underlying connection, for a handler that has hijacked
// this one and sets options that only TCP has.
func (k *conn) NetConn() net.Conn { return k.Conn }

// Close closes the connection, and returns its slot and its spare descriptor. It
// removes a hijacked connection from the list: net/http does not report the close
// of one.
func (k *conn) Close() error {
	taken := k.isHijacked()
	err := k.Conn.Close()
	if b := k.limiter.Swap(nil); b != nil {
		b.release() // after the descriptor is free
	}
	k.spares.refill() // likewise
	if taken {
		k.conns.remove(k)
	}
	return err
}
