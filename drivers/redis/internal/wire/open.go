package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/internal/nonblock"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/refusal"
	"github.com/megaframework/mega/lock/driver"
)

// NewStream returns a stream to a server, which is not connected yet. o has a Dialer,
// such as the function Dialer returns.
func NewStream(o goredis.Options) *Stream {
	s := newStream(o.Addr, o.ReadTimeout)
	o.Dialer = s.dialer(o.Dialer)
	o.ContextTimeoutEnabled, o.Protocol = true, noPushes
	s.Client = goredis.NewClient(&o)
	return s
}

// NewFailoverStream is NewStream for the master of a Sentinel set.
func NewFailoverStream(o goredis.FailoverOptions) *Stream {
	s := newStream("the master "+o.MasterName, o.ReadTimeout)
	o.Dialer = s.dialer(o.Dialer)
	o.ContextTimeoutEnabled, o.Protocol = true, noPushes
	s.Client = goredis.NewFailoverClient(&o)
	return s
}

// noPushes is the version of the protocol in which a server sends nothing but
// answers.
const noPushes = 2

func newStream(where string, attempt time.Duration) *Stream {
	s := &Stream{where: where, attempt: attempt, reconnected: func() {}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// link is a connection that notes whether the stream has greeted on it. The same
// client may write to others meanwhile: it has subscriptions to Sentinels.
type link struct {
	net.Conn
	stream *Stream
}

func (l *link) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(greeting)) {
		l.stream.active.Store(l)
	}
	return l.Conn.Write(b)
}

// dialer wraps the dialer of the client's options: each connection is a link.
func (s *Stream) dialer(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &link{Conn: conn, stream: s}, nil
	}
}

// Dialer returns go-redis's dialer, with connections of package nonblock, or under TLS
// of this package.
func Dialer(timeout time.Duration, config *tls.Config) DialFunc {
	dial := goredis.NewDialer(&goredis.Options{DialTimeout: timeout, TLSConfig: config})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if t, ok := conn.(*tls.Conn); ok {
			return encrypted{t}, nil
		}
		return nonblock.Conn(conn), nil
	}
}

// encrypted is a connection under TLS. Its Write succeeds after the server has ended the
// connection: the reader then finds the end and the reason for it, such as the alert that
// refuses a certificate. TLS 1.3 checks the client's after the client's handshake.
type encrypted struct{ *tls.Conn }

func (e encrypted) Write(b []byte) (int, error) {
	n, err := e.Conn.Write(b)
	if refusal.EndedByServer(err) {
		return len(b), nil
	}
	return n, err
}

// DialFunc connects to addr.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// greeting is the argument of the stream's PING. Nothing else contains it.
const greeting = "mega: a stream begins"

// reopenEvery is the shortest time between two attempts to connect.
const reopenEvery = 20 * time.Millisecond

// opening is an attempt to connect.
type opening struct {
	done chan struct{} // closed at its end
	err  error         // set before
}

// OpenError is the failure of an attempt to connect: the call was not sent.
type OpenError struct {
	Where string // the server
	Err   error
}

func (e *OpenError) Error() string { return "connect to " + e.Where + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// connectedLocked returns the session. While there is none, it waits for one, or
// returns the error of an attempt. The caller holds mu.
func (s *Stream) connectedLocked(ctx context.Context, c *call, until time.Time) (*session, error) {
	for s.session == nil {
		if s.closed {
			return nil, driver.ErrClosed
		}
		if s.opening == nil {
			s.opening = &opening{done: make(chan struct{})}
			s.jobs.Go(s.open)
		}
		o := s.opening
		s.mu.Unlock()
		err := c.follow(ctx, o.done, until)
		s.mu.Lock()
		switch {
		case errors.Is(err, ErrSlow):
			return nil, &OpenError{s.where, err}
		case err != nil:
			return nil, err
		case o.err != nil:
			return nil, o.err
		}
	}
	return s.session, nil
}

// open connects. The client's time limits bound each step of it, however many
// steps there are.
func (s *Stream) open() {
	s.mu.Lock()
	o, next := s.opening, s.opened.Add(reopenEvery)
	s.mu.Unlock()
	group.Sleep(s.ctx, time.Until(next))
	s.active.Store(nil)
	held := s.Client.Conn()
	err := held.Do(s.ctx, "ping", greeting).Err()
	if goredis.IsPermissionError(err) && s.active.Load() != nil {
		err = nil // the server has answered the greeting, and so serves others
	}
	if err == nil && s.connected {
		s.reconnected()
	}
	s.mu.Lock()
	if err == nil && s.closed {
		err = net.ErrClosed
	}
	if err != nil {
		o.err = &OpenError{s.where, err}
	} else {
		s.session = &session{conn: s.active.Load().Conn, held: held}
		s.connected = true
	}
	failed := s.active.Load()
	s.opening, s.opened = nil, time.Now()
	close(o.done)
	s.mu.Unlock()
	switch {
	case err == nil:
	case isReplica(err) && failed != nil: // the client would use the connection again
		s.drop(failed.Conn, held)
	default:
		_ = held.Close()
	}
}

// endLocked ends a session. Its calls fail with err: whether the server has
// executed them is not known. The caller holds mu.
func (s *Stream) endLocked(se *session, err error) {
	if se.err != nil {
		return
	}
	se.err, s.session = err, nil
	for _, c := range se.calls {
		se.answerLocked(c, reply{err: err})
	}
	se.calls = nil
	s.jobs.Go(func() { s.drop(se.conn, se.held) })
}

// drop closes the connection of held.
func (s *Stream) drop(conn net.Conn, held *goredis.Conn) {
	cut(conn)
	_ = held.Ping(s.ctx) // it fails, and so the client drops the connection
	_ = held.Close()
}

// cut closes a connection without the leave-taking of TLS, which may block.
func cut(conn net.Conn) {
	if e, ok := conn.(encrypted); ok {
		conn = e.NetConn()
	}
	_ = conn.Close()
}
