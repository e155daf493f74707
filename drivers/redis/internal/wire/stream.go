package wire

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Stream is a connection that carries the calls of many goroutines. A call does
// not wait for the answers to earlier ones, and there is no goroutine in between:
// each caller writes its command, and with it what others have added meanwhile;
// the first caller that waits reads the answers for all. So a call that comes
// alone wakes no other goroutine, which is a third of its time.
//
// Its client opens the connection (TLS, user, database, the master of a Sentinel
// set), and then leaves it to the stream.
type Stream struct {
	Client  *goredis.Client // opens the connection
	attempt time.Duration   // a connection with calls that is silent for so long is dead

	active atomic.Pointer[link] // the connection of the last greeting

	mu      sync.Mutex // guards the fields below
	session *session   // nil while there is no connection
	busy    bool       // one is being opened or closed
	opened  time.Time  // the last attempt
	closed  bool

	jobs   sync.WaitGroup // what opens and closes connections
	ctx    context.Context
	cancel context.CancelFunc
}

// NewStream returns a stream to a server, which is not connected yet.
func NewStream(o goredis.Options) *Stream {
	s := newStream(o.ReadTimeout)
	o.Dialer = s.dialer(goredis.NewDialer(&o))
	o.ContextTimeoutEnabled, o.Protocol = true, noPushes
	s.Client = goredis.NewClient(&o)
	return s
}

// NewFailoverStream returns a stream to the master of a Sentinel set, which is not
// connected yet.
func NewFailoverStream(o goredis.FailoverOptions) *Stream {
	s := newStream(o.ReadTimeout)
	o.Dialer = s.dialer(goredis.NewDialer(&goredis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig}))
	o.ContextTimeoutEnabled, o.Protocol = true, noPushes
	s.Client = goredis.NewFailoverClient(&o)
	return s
}

// noPushes is the version of the protocol in which a server sends nothing but
// answers.
const noPushes = 2

func newStream(attempt time.Duration) *Stream {
	s := &Stream{attempt: attempt}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// session is the life of one connection. Its fields are guarded by stream.mu,
// except for what the reader alone uses.
type session struct {
	conn    net.Conn
	held    *goredis.Conn // keeps the client from using the connection
	out     []byte        // not written yet
	spare   []byte
	writing bool
	calls   []*call // without an answer, in the order of their commands
	reading bool
	quiet   time.Time // since when no answer has come, while somebody waits
	err     error     // why it has ended

	in  []byte // received by the reader, and not parsed yet
	got []reply
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
func (s *Stream) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &link{Conn: conn, stream: s}, nil
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// greeting is the argument of the stream's PING. Nothing else contains it.
const greeting = "mega: a stream begins"

// reopenEvery is the shortest time between two attempts to connect.
const reopenEvery = 20 * time.Millisecond

// openLocked connects in the background. The caller holds mu.
func (s *Stream) openLocked() {
	if s.busy || s.closed || time.Since(s.opened) < reopenEvery {
		return
	}
	s.busy, s.opened = true, time.Now()
	s.jobs.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.attempt)
		defer cancel()
		held := s.Client.Conn()
		err := held.Do(ctx, "ping", greeting).Err()
		if err == nil {
			err = ctx.Err()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy = false
		if err != nil || s.closed {
			_ = held.Close()
			return
		}
		s.session = &session{conn: s.active.Load().Conn, held: held}
	})
}

// endLocked ends a session. Its calls fail with err: whether the server has
// executed them is not known. The caller holds mu.
func (s *Stream) endLocked(se *session, err error) {
	if se.err != nil {
		return
	}
	se.err, s.session, s.busy = err, nil, true
	for _, c := range se.calls {
		c.cmd.SetErr(err)
		c.answerLocked()
	}
	se.calls = nil
	s.jobs.Go(func() { // closing may block, as TLS takes its leave
		_ = se.conn.Close()
		_ = se.held.Ping(s.ctx) // it fails, and so the client drops the connection
		_ = se.held.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy = false
	})
}

// close ends the connection.
func (s *Stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.cancel()
	if s.session != nil {
		s.endLocked(s.session, net.ErrClosed)
	}
}

// wait returns when the connection is closed.
func (s *Stream) wait() {
	s.jobs.Wait()
	_ = s.Client.Close()
}

// do executes c.cmd once, and returns true. It returns false, and has done
// nothing, if there is no connection. The result is in c.cmd, unless the caller's
// context or limit has ended before: then it is the error.
func (s *Stream) do(ctx context.Context, c *call, limit time.Duration) (bool, error) {
	var ok bool
	if c.wire, ok = appendCommand(c.wire[:0], c.cmd.Args()); !ok {
		return false, nil
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	se := s.session
	if se == nil {
		s.openLocked()
		return false, nil
	}
	if !se.reading { // the answer to a caller that has left may have come long ago
		se.quiet = now
	}
	se.calls, se.out = append(se.calls, c), append(se.out, c.wire...)
	if !se.writing {
		s.flushLocked(se, writes)
	}
	return true, s.awaitLocked(ctx, se, c, now.Add(limit))
}

// writes is how often a caller writes what others have added, before a goroutine
// does it in its place.
const writes = 16

// flushLocked writes until nothing is left to write, or at most so many times. It
// holds mu, but not over I/O.
func (s *Stream) flushLocked(se *session, times int) {
	se.writing = true
	for ; len(se.out) > 0 && se.err == nil; times-- {
		if times == 0 {
			s.jobs.Go(func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.flushLocked(se, -1)
			})
			return
		}
		out := se.out
		se.out = se.spare[:0]
		s.mu.Unlock()
		_ = se.conn.SetWriteDeadline(time.Now().Add(s.attempt))
		_, err := se.conn.Write(out)
		s.mu.Lock()
		se.spare = out
		if err != nil {
			s.endLocked(se, err)
		}
	}
	se.writing = false
}

// awaitLocked waits for the answer to c, and reads while nobody else does.
func (s *Stream) awaitLocked(ctx context.Context, se *session, c *call, until time.Time) error {
	for !c.answered {
		if !se.reading {
			s.readLocked(ctx, se, c, until)
		} else {
			s.followLocked(ctx, c, until)
		}
		if c.answered {
			break
		}
		err := ctx.Err()
		if err == nil && !time.Now().Before(until) {
			err = ErrSlow
		}
		if err != nil { // the answer will find nobody
			c.left = true
			if !se.reading {
				s.passOnLocked(se)
			}
			return err
		}
	}
	return nil
}

// drainLocked reads in the background until the answer to c, the last of calls
// that nobody awaits any more. Otherwise the next caller, maybe much later, would
// take the connection for dead.
func (s *Stream) drainLocked(se *session, c *call) {
	s.jobs.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !se.reading && !c.answered {
			s.readLocked(s.ctx, se, c, time.Now().Add(2*s.attempt))
		}
	})
}

// followLocked waits until c has an answer or should read, or must not wait any
// more.
func (s *Stream) followLocked(ctx context.Context, c *call, until time.Time) {
	s.mu.Unlock()
	c.timer.Reset(time.Until(until))
	select {
	case <-c.done:
	case <-ctx.Done():
	case <-c.timer.C:
	}
	c.timer.Stop()
	s.mu.Lock()
}

// readLocked reads answers until there is one for c, or it must not wait any more.
func (s *Stream) readLocked(ctx context.Context, se *session, c *call, until time.Time) {
	se.reading = true
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { _ = se.conn.SetReadDeadline(time.Unix(1, 0)) })()
	}
	for !c.answered && ctx.Err() == nil {
		deadline, own := se.quiet.Add(s.attempt), false
		if until.Before(deadline) {
			deadline, own = until, true
		}
		s.mu.Unlock()
		_ = se.conn.SetReadDeadline(deadline)
		var err error
		if ctx.Err() == nil { // else the deadline of AfterFunc may have come before this one
			err = se.receive()
		}
		s.mu.Lock()
		s.deliverLocked(se)
		switch {
		case err == nil || IsTimeout(err) && (ctx.Err() != nil || time.Now().Before(deadline)):
		case IsTimeout(err) && own:
			se.reading = false
			s.passOnLocked(se)
			return
		default:
			s.endLocked(se, err)
		}
	}
	se.reading = false
	s.passOnLocked(se)
}

// receive reads once, and parses what is complete.
func (se *session) receive() error {
	if len(se.in) == cap(se.in) {
		se.in = append(se.in, make([]byte, max(len(se.in), 16<<10))...)[:len(se.in)]
	}
	n, err := se.conn.Read(se.in[len(se.in):cap(se.in)])
	se.in = se.in[:len(se.in)+n]
	at := 0
	for at < len(se.in) {
		r, size, broken := parseReply(se.in[at:])
		if broken != nil {
			return broken
		}
		if size == 0 {
			break
		}
		at += size
		se.got = append(se.got, r)
	}
	se.in = se.in[:copy(se.in, se.in[at:])]
	return err
}

// deliverLocked gives the parsed answers to their calls.
func (s *Stream) deliverLocked(se *session) {
	if len(se.got) == 0 {
		return
	}
	se.quiet = time.Now()
	for i, r := range se.got {
		if i >= len(se.calls) {
			s.endLocked(se, errUnasked)
			break
		}
		c := se.calls[i]
		if r.err != nil {
			c.cmd.SetErr(r.err)
		} else {
			c.cmd.SetVal(r.value)
		}
		c.answerLocked()
	}
	if se.err == nil {
		se.calls = se.calls[:copy(se.calls, se.calls[len(se.got):])]
	}
	for i := range se.got {
		if isReadOnly(se.got[i].err) {
			s.endLocked(se, errReplica) // the name may lead to another server by now
		}
		se.got[i] = reply{}
	}
	se.got = se.got[:0]
}

// passOnLocked has the next caller that waits read.
func (s *Stream) passOnLocked(se *session) {
	for _, c := range se.calls {
		if !c.left {
			c.signal()
			return
		}
	}
	if len(se.calls) > 0 {
		s.drainLocked(se, se.calls[len(se.calls)-1])
	}
}

// answerLocked records that the outcome is in the command.
func (c *call) answerLocked() {
	c.answered = true
	c.signal()
}

func (c *call) signal() {
	select {
	case c.done <- struct{}{}:
	default: // signalled already, and has not looked yet
	}
}
