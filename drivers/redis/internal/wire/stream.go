package wire

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Stream is a connection that carries the calls of many goroutines. A call does
// not wait for the answers to earlier ones, and there is no goroutine in between:
// each caller writes its command, and with it what others have added meanwhile, or
// leaves it to many that have just been answered; the first caller that waits reads
// the answers for all. So a call that comes alone wakes no other goroutine, which is
// a third of its time.
//
// Its client opens the connection (TLS, user, database, the master of a Sentinel
// set), and then leaves it to the stream. A call that finds no connection waits for
// one: after a network has lost connections in silence, only a new one is known to
// work.
type Stream struct {
	Client  *goredis.Client // opens the connection
	where   string          // the server, for errors
	attempt time.Duration   // a connection with calls that is silent for so long is dead

	reconnected func() // called before the first call on each connection but the first
	connected   bool   // there was a connection before; only open uses it

	active atomic.Pointer[link] // the connection of the last greeting

	mu      sync.Mutex // guards the fields below
	session *session   // nil while there is no connection
	opening *opening   // or nil
	opened  time.Time  // the last attempt
	closed  bool

	jobs   sync.WaitGroup // what opens and closes connections
	ctx    context.Context
	cancel context.CancelFunc
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
	size    int     // of these commands
	reading bool
	waking  int       // callers that have an answer and have not seen it yet
	quiet   time.Time // since when nothing has come, while there are calls
	err     error     // why it has ended

	in   []byte // received by the reader, and not parsed yet
	part extent // of an answer at the start of in that was not complete
	got  []reply
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

// do sends a command once. The result is in c.reply, unless the caller's context or
// limit has ended before, or there is no connection: then it is the error.
func (s *Stream) do(ctx context.Context, c *call, args []string, limit time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	until := now.Add(limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	se := s.session
	if se == nil {
		var err error
		if se, err = s.connectedLocked(ctx, c, until); err != nil {
			return err
		}
		now = time.Now()
	}
	if len(se.calls) == 0 {
		se.quiet = now
	}
	before := len(se.out)
	se.out = appendCommand(se.out, args)
	c.size = len(se.out) - before
	se.calls, se.size = append(se.calls, c), se.size+c.size
	s.writeLocked(se)
	err := s.awaitLocked(ctx, se, c, until)
	if err == nil {
		se.waking--
		s.writeLocked(se)
	}
	return err
}

// writeLocked writes what nobody has written yet. It leaves a few commands to the
// callers that are waking up: each of them comes here before it returns, and is likely
// to call again, so that one write carries the commands of several.
func (s *Stream) writeLocked(se *session) {
	if !se.writing && len(se.out) > 0 && (se.waking < crowd || len(se.out) >= bunch) {
		s.flushLocked(se, writes)
	}
}

const (
	// crowd is the number of callers that must be waking up. With fewer of
	// them the server would wait for its next command.
	crowd = 5
	// bunch is the size of the commands that are not left to others, about
	// three.
	bunch = 512
	// writes is how often a caller writes what others have added, before a
	// goroutine does it in its place.
	writes = 16
	// fits is the size of the commands without an answer that the buffers of
	// the system have room for, so that a write does not block whatever the
	// network does. A goroutine writes what is more: a caller must be able to
	// leave, and to read for others.
	fits = 32 << 10
	// keeps is the size of the buffers that are kept for the next call.
	keeps = 64 << 10
)

// flushLocked writes until nothing is left to write, or, if times is not negative,
// at most so many times and while it cannot block. It holds mu, but not over I/O.
func (s *Stream) flushLocked(se *session, times int) {
	se.writing = true
	for ; len(se.out) > 0 && se.err == nil; times-- {
		if times == 0 || times > 0 && se.size > fits {
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
		if se.spare = out; cap(out) > keeps {
			se.spare = nil
		}
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
			s.mu.Unlock()
			_ = c.follow(ctx, c.done, until)
			s.mu.Lock()
		}
		if c.answered {
			break
		}
		err := ctx.Err()
		if err == nil && !time.Now().Before(until) {
			err = fmt.Errorf("%w from %s", ErrSlow, s.where)
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

// unwatched is how long a caller waits before it watches its context, and so the
// longest time for which it does not notice the end of that context. Most answers
// come sooner, and a watch takes more allocations than the rest of a call.
const unwatched = 5 * time.Millisecond

// follow waits for an event, or returns the error when c must not wait any more.
func (c *call) follow(ctx context.Context, event <-chan struct{}, until time.Time) error {
	c.timer.Reset(min(time.Until(until), unwatched))
	defer c.timer.Stop()
	select {
	case <-event:
		return nil
	case <-c.timer.C:
	}
	c.timer.Reset(time.Until(until))
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.timer.C:
		return ErrSlow
	}
}

// lastLook is how long a read takes that finds what has come already.
const lastLook = time.Millisecond

// readLocked reads answers until there is one for c, or it must not wait any more.
func (s *Stream) readLocked(ctx context.Context, se *session, c *call, until time.Time) {
	se.reading = true
	s.readUntilLocked(ctx, se, c, sooner(until, time.Now().Add(unwatched)))
	if !c.answered {
		stop := context.AfterFunc(ctx, func() { _ = se.conn.SetReadDeadline(time.Unix(1, 0)) })
		s.readUntilLocked(ctx, se, c, until)
		stop()
	}
	se.reading = false
	s.passOnLocked(se)
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// readUntilLocked reads until there is an answer for c, ctx has ended or the time
// is over.
func (s *Stream) readUntilLocked(ctx context.Context, se *session, c *call, until time.Time) {
	for !c.answered {
		deadline, own := se.quiet.Add(s.attempt), false
		if until.Before(deadline) {
			deadline, own = until, true
		}
		s.mu.Unlock()
		_ = se.conn.SetReadDeadline(deadline)
		if ctx.Err() != nil { // its end may have set a deadline before
			s.mu.Lock()
			return
		}
		n, err := se.receive()
		if IsTimeout(err) && !own && !time.Now().Before(deadline) { // a process that stood still has the answer in its buffers
			_ = se.conn.SetReadDeadline(time.Now().Add(lastLook))
			n, err = se.receive()
		}
		s.mu.Lock()
		if n > 0 { // of a large answer perhaps, that is not complete
			se.quiet = time.Now()
		}
		s.deliverLocked(se)
		switch {
		case err == nil || IsTimeout(err) && (ctx.Err() != nil || time.Now().Before(deadline)):
		case IsTimeout(err) && own:
			return
		default:
			s.endLocked(se, err)
		}
	}
}

// receive reads n bytes at once, and parses what is complete.
func (se *session) receive() (n int, err error) {
	if len(se.in) == cap(se.in) {
		se.in = append(se.in, make([]byte, max(len(se.in), 16<<10))...)[:len(se.in)]
	}
	n, err = se.conn.Read(se.in[len(se.in):cap(se.in)])
	se.in = se.in[:len(se.in)+n]
	at := 0
	for at < len(se.in) && (se.part == (extent{}) || se.part.complete(se.in[at:])) {
		r, size, broken := parseReply(se.in[at:])
		if broken != nil {
			return n, broken
		}
		if size == 0 {
			se.part.complete(se.in[at:])
			break
		}
		at, se.part = at+size, extent{}
		se.got = append(se.got, r)
	}
	rest := se.in[at:]
	if cap(se.in) > keeps && len(rest) == 0 {
		se.in = nil
	}
	se.in = se.in[:copy(se.in, rest)]
	return n, err
}

// deliverLocked gives the parsed answers to their calls.
func (s *Stream) deliverLocked(se *session) {
	if len(se.got) == 0 {
		return
	}
	for i, r := range se.got {
		if i >= len(se.calls) {
			s.endLocked(se, errUnasked)
			break
		}
		c := se.calls[i]
		se.size -= c.size
		se.answerLocked(c, r)
	}
	if se.err == nil {
		se.calls = se.calls[:copy(se.calls, se.calls[len(se.got):])]
	}
	for i := range se.got {
		if isReplica(se.got[i].err) {
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

// answerLocked gives c its answer.
func (se *session) answerLocked(c *call, r reply) {
	c.reply, c.answered = r, true
	if !c.left {
		se.waking++
	}
	c.signal()
}

func (c *call) signal() {
	select {
	case c.done <- struct{}{}:
	default: // signalled already, and has not looked yet
	}
}
