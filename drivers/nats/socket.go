package nats

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/drivers/internal/nonblock"
	"github.com/megaframework/mega/internal/refusal"
)

// socket is the network connection beneath the client. It counts the bytes that
// move in both directions. Its Close needs no lock of the client, which holds
// its own lock during a write.
//
// A slow write has no timeout: the watchdog closes the socket when no byte
// moves at all (S29). The client's write deadlines are ignored, because they
// would cut a slow link in the middle of a message.
type socket struct {
	net.Conn
	moved    *atomic.Int64 // bytes read and written
	accepted atomic.Bool   // the server has accepted this process
	closed   atomic.Bool
	failed   atomic.Pointer[error] // of the write that has closed the socket, if any
}

// progress is the interval in which a blocked write reports the bytes that it
// has written so far.
const progress = 500 * time.Millisecond

// Read implements [net.Conn].
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.moved.Add(int64(n))
	return n, err
}

// Write implements [net.Conn]. It closes the socket if it fails, because the
// client then discards the bytes in its buffer and would continue without them
// (S28).
//
// Until the server has accepted this process, Write succeeds on a connection that
// the server has ended: the client then reads the server's reason, such as the TLS
// alert that refuses a certificate, or the end of the connection.
func (s *socket) Write(b []byte) (written int, err error) {
	for {
		_ = s.Conn.SetWriteDeadline(time.Now().Add(progress)) // a closed socket fails the write
		n, err := s.Conn.Write(b[written:])
		written += n
		s.moved.Add(int64(n))
		if err == nil {
			return written, nil
		}
		if !s.accepted.Load() && refusal.EndedByServer(err) {
			return len(b), nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || s.closed.Load() {
			s.failed.CompareAndSwap(nil, &err)
			_ = s.Close()
			return written, err
		}
	}
}

// SetWriteDeadline does nothing: see [socket].
func (s *socket) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline bounds reads only. The client calls it for the handshake, whose
// few bytes do not block a write.
func (s *socket) SetDeadline(t time.Time) error { return s.Conn.SetReadDeadline(t) }

// Close implements [net.Conn].
func (s *socket) Close() error {
	s.closed.Store(true)
	return s.Conn.Close()
}

// dialer wraps the connections that the client opens for a link.
type dialer struct {
	link    *link
	next    nats.CustomDialer // of the user; nil for the network
	network *net.Dialer       // of the user, or a new one
	wait    time.Duration
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.open(network, address)
	if err != nil {
		d.link.unreached.Store(&err)
		return nil, err
	}
	return d.link.wrap(conn)
}

func (d *dialer) open(network, address string) (net.Conn, error) {
	if d.next != nil {
		return d.next.Dial(network, address)
	}
	ctx, cancel := context.WithTimeout(d.link.ctx, d.wait)
	defer cancel()
	conn, err := d.network.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return nonblock.Conn(conn), nil
}

// SkipTLSHandshake reports whether the user's dialer does the TLS handshake
// itself.
func (d *dialer) SkipTLSHandshake() bool {
	skips, ok := d.next.(interface{ SkipTLSHandshake() bool })
	return ok && skips.SkipTLSHandshake()
}

// inProcess wraps the connections of a server inside this process.
type inProcess struct {
	link *link
	next nats.InProcessConnProvider
}

// InProcessConn implements [nats.InProcessConnProvider].
func (p inProcess) InProcessConn() (net.Conn, error) {
	conn, err := p.next.InProcessConn()
	if err != nil {
		return nil, err
	}
	return p.link.wrap(conn)
}
