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

// The use of a connection.
type use int

const (
	waiting  use = iota // no byte of the next request has arrived
	reading             // a request has begun to arrive
	serving             // its handler was called; the response may be incomplete
	hijacked            // by its handler
)

// conn is a connection of a server. It reads until a deadline that a drain can
// bring forward, and fails writes to a client that reads nothing.
type conn struct {
	net.Conn
	of     *connections
	cancel context.CancelCauseFunc // cancels the contexts of its requests
	room   atomic.Pointer[room]    // released when the connection closes; nil for none
	spares *spares                 // gets back the descriptor when the connection closes; nil for none

	mu        sync.Mutex // guards the fields below
	use       use
	since     time.Time // when use began
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

func (k *conn) enter(u use) {
	k.mu.Lock()
	k.use, k.since = u, time.Now()
	k.mu.Unlock()
}

// expire limits the time of a waiting connection to patience, and the time of a
// head to headPatience.
func (k *conn) expire(patience time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch k.use {
	case waiting:
		k.due = k.since.Add(patience)
	case reading:
		k.due = k.since.Add(headPatience)
	default:
		return
	}
	_ = k.limitReadLocked() // fails on a closed connection
}

// startRequest records that a request has begun to arrive.
func (k *conn) startRequest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.use == waiting {
		k.readLocked()
	}
}

func (k *conn) readLocked() {
	k.use, k.since = reading, time.Now()
	if !k.due.IsZero() {
		k.due = k.since.Add(headPatience)
		_ = k.limitReadLocked() // fails on a closed connection
	}
}

func (k *conn) serve() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.use, k.since, k.inHandler = serving, time.Now(), true
	if !k.due.IsZero() {
		k.due = time.Time{}
		_ = k.limitReadLocked() // fails on a closed connection
	}
}

// served records that a handler has returned. If the handler has hijacked the
// connection, served ends the connection's context.
func (k *conn) served() {
	k.mu.Lock()
	k.inHandler = false
	taken := k.use == hijacked
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
		} else if errors.Is(err, os.ErrDeadlineExceeded) && k.inTime() {
			continue
		}
		return n, err
	}
}

// inTime reports whether a request has begun to arrive on a connection that is
// due. The kernel's buffer decides.
func (k *conn) inTime() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.use != waiting || k.due.IsZero() || now.Before(k.due) || past(k.readBy, now) || !pending(k.Conn) {
		return false
	}
	k.readLocked()
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

func (k *conn) limitReadLocked() error { return k.Conn.SetReadDeadline(earlier(k.readBy, k.due)) }

// SetReadDeadline sets the deadline of net/http or of a handler.
func (k *conn) SetReadDeadline(t time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readBy = t
	if k.handshake && t.IsZero() {
		k.handshakeDoneLocked()
	}
	return k.limitReadLocked()
}

// handshakeDoneLocked records that a handshake is complete: net/http removes the
// deadline of the handshake then. The bytes of a handshake are not the head of a
// request, so the connection waits for its first request.
func (k *conn) handshakeDoneLocked() {
	k.handshake, k.use, k.since = false, waiting, time.Now()
	if !k.due.IsZero() {
		k.due = k.since.Add(k.of.patience)
	}
}

// Write fails when the client has read nothing for stallTime. A whole response
// may take longer, and a handler may pause between its writes.
func (k *conn) Write(b []byte) (written int, err error) {
	for {
		if err := k.limitWrite(); err != nil {
			return written, err
		}
		n, err := k.Conn.Write(b[written:])
		written += n
		if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || k.overdue() {
			return written, err
		}
	}
}

func (k *conn) limitWrite() error {
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

// NetConn returns the underlying connection, for a handler that has hijacked
// this one and sets options that only TCP has.
func (k *conn) NetConn() net.Conn { return k.Conn }

// Close closes the connection, and removes a hijacked one, since net/http does
// not report that a hijacked connection is closed.
func (k *conn) Close() error {
	k.mu.Lock()
	taken := k.use == hijacked
	k.mu.Unlock()
	err := k.Conn.Close()
	if b := k.room.Swap(nil); b != nil {
		b.leave() // after the descriptor is free
	}
	k.spares.refill() // likewise
	if taken {
		k.of.remove(k)
	}
	return err
}
