package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// link is one connection, with its own client. The client never reconnects: its
// own reconnect would let new messages overtake the report of the disconnect,
// and forgets the messages in its buffer.
//
// Only goroutines of the driver call the client: a call may block for as long
// as a write does.
type link struct {
	bus     *Bus
	number  uint64
	conn    *nats.Conn
	server  *url.URL // with the credentials in its URL; nil if the connection ended at once
	tlsName string   // that TLS has verified in place of an IP address; "" for the address itself

	namesQueues bool // the server does, in its reports of revoked permissions

	ctx       context.Context // ends with the link
	cancel    context.CancelFunc
	socket    atomic.Pointer[socket]
	moved     atomic.Int64 // bytes read and written
	unreached atomic.Pointer[error]
	refused   atomic.Pointer[error] // by the first server that refuses this process

	over   chan struct{} // closed when the client has made its last callback
	lame   chan struct{} // receives when the server has announced its end
	left   bool          // because of that; the keeper's
	silent atomic.Bool   // the watchdog has closed the socket
	kick   chan struct{} // wakes the flusher
	space  chan struct{} // wakes the writer, after a PONG
	wanted chan struct{} // wakes the goroutine that subscribes

	gate   sync.RWMutex // held for reading while a message is delivered
	closed bool         // under gate: no message is delivered any more

	ended bool // under the mutex of the Bus: no subscription is active on it any more

	refusals refusals
}

func (b *Bus) newLink() *link {
	b.links++
	l := &link{
		bus: b, number: b.links,
		over: make(chan struct{}), lame: make(chan struct{}, 1), kick: make(chan struct{}, 1), space: make(chan struct{}, 1), wanted: make(chan struct{}, 1),
	}
	l.ctx, l.cancel = context.WithCancel(b.life)
	l.refusals.init()
	return l
}

// connect opens a link, or returns the reason why no server accepts it. It
// returns when ctx ends; an attempt in progress then ends in the background.
func (b *Bus) connect(ctx context.Context) (*link, error) {
	l := b.newLink()
	done := make(chan error, 1)
	b.running.Go(func() { done <- l.dial(ctx) })
	select {
	case err := <-done:
		if err == nil {
			return l, nil
		}
		l.close()
		return nil, err
	case <-ctx.Done():
		refused := l.refused.Load() // before the end of the link fails its attempt
		l.cancel()
		b.running.Go(func() {
			if <-done == nil {
				l.close()
			}
		})
		if refused != nil {
			return nil, *refused // L21
		}
		if why := l.unreached.Load(); why != nil {
			return nil, fmt.Errorf("%w: %w", ctx.Err(), *why)
		}
		return nil, fmt.Errorf("no answer in time: %w", ctx.Err())
	}
}

// dial connects and exchanges a PING with the server, so that the server's
// latest limits have arrived. The deadline of ctx bounds the attempts at single servers.
func (l *link) dial(ctx context.Context) error {
	options, err := l.bus.config.options()
	if err != nil {
		return err
	}
	conn, err := l.reach(ctx, options)
	if err != nil {
		return err
	}
	socket := l.socket.Load()
	if socket == nil {
		conn.Close()
		return fmt.Errorf("Config.Connect ignores the options that it is given: %w", driver.ErrInvalid)
	}
	socket.accepted.Store(true)
	l.conn = conn
	version := conn.ConnectedServerVersion()
	l.namesQueues = namesQueues(version)
	if !conn.HeadersSupported() {
		conn.Close()
		return fmt.Errorf("server %s does not support headers: they need version 2.2, and no_header_support unset: %w", version, driver.ErrUnsupported)
	}
	if err := conn.FlushTimeout(l.bus.config.dial); err != nil {
		l.closeSocket()
		conn.Close()
		return err
	}
	l.refusals.begin(conn.LastError()) // of a previous server
	if server, err := url.Parse(conn.ConnectedUrl()); err == nil && server.Host != "" {
		l.server = server
	}
	l.bus.learnServers(l)
	return nil
}

// reach connects to a configured server, or to one that a server has named. It prefers
// the error of a server that refuses this process: the others may only be out of service.
func (l *link) reach(ctx context.Context, options []nats.Option) (*nats.Conn, error) {
	var err error
	servers := l.bus.candidates(ctx, l.number, options)
	for i, s := range servers {
		before := l.unreached.Load()
		conn, failed := l.bus.config.connect(slices.Concat(options, []nats.Option{s.only, leaveTime(ctx, len(servers)-i-1), l.adopt}))
		refuses := l.unreached.Load() == before && !isSilence(failed)
		switch {
		case failed == nil:
			l.tlsName = s.tlsName
			return conn, nil
		case refuses && l.refused.CompareAndSwap(nil, &failed):
			err = failed
		case err == nil || errors.Is(err, nats.ErrNoServers):
			err = l.because(failed)
		}
		if l.ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// leaveTime returns an option of the client: an attempt leaves a fair part of the time
// until the deadline of ctx to the n servers after it, because this one may be silent.
func leaveTime(ctx context.Context, n int) nats.Option {
	return func(o *nats.Options) error {
		if end, ok := ctx.Deadline(); ok && n > 0 {
			o.Timeout = min(o.Timeout, max(time.Until(end), 0)/time.Duration(n+1))
		}
		return nil
	}
}

// isSilence reports whether an attempt has failed because the server did not answer, or
// ended the connection without a reason.
func isSilence(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF)
}

// because adds the reason why no server could be reached, which the client's
// error lacks.
func (l *link) because(err error) error {
	if why := l.unreached.Load(); why != nil && errors.Is(err, nats.ErrNoServers) {
		return fmt.Errorf("%w: %w", err, *why)
	}
	return err
}

// adopt is the last option of the client: it sets the options that the driver
// depends on, and overrides earlier ones.
func (l *link) adopt(o *nats.Options) error {
	o.AllowReconnect, o.RetryOnFailedConnect = false, false
	o.PingInterval = 0 // the flusher sends PINGs, and the watchdog decides
	o.FlusherTimeout = 0
	o.NoEcho = false               // S19
	o.SkipSubjectValidation = true // the front has validated them
	o.NoCallbacksAfterClientClose = false
	o.SkipHostLookup = o.SkipHostLookup || o.CustomDialer == nil // the dialer of the driver looks up names, until the link ends
	o.CustomDialer = &dialer{link: l, next: o.CustomDialer, network: networkDialer(o), wait: o.Timeout}
	if o.InProcessServer != nil {
		o.InProcessServer = inProcess{l, o.InProcessServer}
	}
	failed := o.AsyncErrorCB
	o.AsyncErrorCB = func(c *nats.Conn, s *nats.Subscription, err error) {
		l.failed(err)
		if failed != nil {
			failed(c, s, err)
		}
	}
	lame := o.LameDuckModeHandler
	o.LameDuckModeHandler = func(c *nats.Conn) {
		wake(l.lame)
		if lame != nil {
			go lame(c) // it may block: it may drain the bus. Later callbacks would wait for it
		}
	}
	closed := o.ClosedCB
	o.ClosedCB = func(c *nats.Conn) {
		close(l.over)
		if closed != nil {
			closed(c)
		}
	}
	return nil
}

// networkDialer returns the client's dialer for the network.
func networkDialer(o *nats.Options) *net.Dialer {
	var d net.Dialer
	if o.Dialer != nil {
		d = *o.Dialer
	}
	if o.AllowMultipathTCP != nil {
		d.SetMultipathTCP(*o.AllowMultipathTCP)
	}
	return &d
}

// wrap makes conn the socket of the link.
func (l *link) wrap(conn net.Conn) (net.Conn, error) {
	s := &socket{Conn: conn, moved: &l.moved}
	if before := l.socket.Swap(s); before != nil {
		_ = before.Close() // a server that did not accept this process
	}
	if l.ctx.Err() != nil {
		_ = s.Close()
		return nil, l.ctx.Err()
	}
	context.AfterFunc(l.ctx, func() { _ = s.Close() })
	return s, nil
}

func (l *link) closeSocket() {
	if s := l.socket.Load(); s != nil {
		_ = s.Close() // the link has ended
	}
}

// isBroken reports whether the client is closed, or will be: a write has failed, and
// the client notices the closed socket when it reads.
func (l *link) isBroken() bool {
	return l.conn.IsClosed() || l.socket.Load().closed.Load()
}

// close ends the link, and returns when it delivers no more messages. It closes
// the socket first, so that the client's lock is free.
func (l *link) close() {
	l.cancel()
	l.closeSocket()
	if l.conn != nil {
		l.conn.Close()
		<-l.over
	}
	l.gate.Lock()
	l.closed = true
	l.gate.Unlock()
}

// reason returns the reason why the link has ended.
func (l *link) reason() error {
	switch {
	case l.left:
		return errLameDuck
	case l.silent.Load():
		return fmt.Errorf("no byte moved for %v", l.bus.config.silence)
	}
	err := cmp.Or(l.refusals.ofLogin(), l.conn.LastError(), nats.ErrConnectionClosed)
	if write := l.socket.Load().failed.Load(); write != nil && errors.Is(err, net.ErrClosed) {
		return *write // the client has read from the socket that the write closed
	}
	return err
}

// watch closes the socket when no byte has moved in either direction for the
// duration silence (S29).
func (l *link) watch(silence time.Duration) {
	const looks = 10
	ticker := time.NewTicker(silence / looks)
	defer ticker.Stop()
	moved, quiet := int64(-1), 0
	for {
		select {
		case <-l.over:
			return
		case <-l.ctx.Done():
			return
		case <-ticker.C:
		}
		now := l.moved.Load() - unsent(l.socket.Load().Conn)
		if quiet++; now != moved {
			moved, quiet = now, 0
		}
		if quiet >= looks {
			l.silent.Store(true)
			discardUnsent(l.socket.Load().Conn)
			l.closeSocket()
			return
		}
	}
}

// backoff returns the pause before an attempt to connect.
func backoff(attempt int) time.Duration {
	most := min(50*time.Millisecond<<min(attempt, 10), 5*time.Second)
	return most/4 + rand.N(most*3/4)
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), part)
}
