package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// patience is the time for which a server that ends keeps a connection open whose
// client has sent nothing since the connection was made or since the last answer.
// A client that reuses its connections at shorter intervals receives an answer
// that says "Connection: close", and loses no request. Browsers open connections
// in advance and send nothing on them; those end after the same time.
const patience = 500 * time.Millisecond

// headPatience is the time that the head of a request has to arrive at the end, from
// its first byte on. net/http bounds a head that follows an answer only from its
// fourth byte on, and would wait for the others as long as for an idle connection:
// one byte could hold up every shutdown until its budget ends.
const headPatience = 5 * time.Second

// connections knows the state of each connection of a server. It adds to
// http.Server.Shutdown, which closes idle connections while their clients send
// the next request, closes connections that were accepted and not read from, and
// forgets connections that a handler has taken over.
type connections struct {
	patience time.Duration // 0 where clients are promised nothing
	ending   atomic.Bool   // answers say "Connection: close"

	mu   sync.Mutex // guards the fields below, and state and since of each connection
	open map[*conn]struct{}
	left error // why hijacked connections end; nil while they need not
}

// conn is a connection of a server. It knows whether its client has said
// anything, and gives up a client that takes nothing.
type conn struct {
	net.Conn
	of      *connections
	cancel  context.CancelCauseFunc // ends the requests on it
	use     atomic.Int32            // quiet, heard, answered or retired
	heardAt atomic.Int64            // when a request began to arrive, in ns since 1970
	serving atomic.Bool             // a handler is at work
	room    atomic.Pointer[room]    // to give back at the end; nil for none

	state http.ConnState
	since time.Time

	mu    sync.Mutex // guards limit
	limit time.Time  // until when a handler wants its writes to be over
}

// What a connection is used for since it was opened or its last answer.
const (
	quiet    int32 = iota // nothing yet
	heard                 // a request has begun to arrive: it will be answered if it becomes whole
	answered              // its handler was called
	retired               // nothing any more: what arrives now is not looked at
)

type connKey struct{}

// context is an http.Server's ConnContext.
func (c *connections) context(ctx context.Context, raw net.Conn) context.Context {
	its, ok := raw.(*conn)
	if !ok {
		return ctx
	}
	ctx, its.cancel = context.WithCancelCause(context.WithValue(ctx, connKey{}, its))
	return ctx
}

// track is an http.Server's ConnState.
func (c *connections) track(raw net.Conn, state http.ConnState) {
	its, ok := raw.(*conn)
	if !ok {
		return
	}
	switch state {
	case http.StateClosed:
		c.forget(its)
		return
	case http.StateIdle:
		its.use.Store(quiet)
	}
	if left := c.note(its, state); left != nil && state == http.StateHijacked {
		its.cancel(left)
	}
}

// note notes what a connection is doing now, and returns why none is to go on.
func (c *connections) note(its *conn, state http.ConnState) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*conn]struct{}{}
	}
	c.open[its] = struct{}{}
	its.state, its.since = state, time.Now()
	return c.left
}

func (c *connections) forget(its *conn) {
	c.mu.Lock()
	delete(c.open, its)
	c.mu.Unlock()
	if its.cancel != nil {
		its.cancel(nil)
	}
}

// handler serves next. Once the server ends, its answers say that their
// connection is closed after them.
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if its, ok := r.Context().Value(connKey{}).(*conn); ok {
			// A pipelined request comes out of the buffer of net/http, without
			// a call of Read, on a connection whose state is still idle.
			if !its.use.CompareAndSwap(heard, answered) && !its.use.CompareAndSwap(quiet, answered) {
				panic(http.ErrAbortHandler) // its answer could not be sent
			}
			its.serving.Store(true)
			defer c.served(its)
		}
		if c.ending.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// served notes that a handler has returned. Where it has taken the connection
// over, that is the end of its context.
func (c *connections) served(its *conn) {
	its.serving.Store(false)
	if c.taken(its) {
		its.cancel(nil)
	}
}

func (c *connections) taken(its *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return its.state == http.StateHijacked
}

// leave has answers say that their connection ends, and ends the contexts of
// hijacked connections: no answer is due on those.
func (c *connections) leave(cause error) {
	c.ending.Store(true)
	c.mu.Lock()
	c.left = cause
	taken := c.allLocked(func(k *conn) bool { return k.state == http.StateHijacked })
	c.mu.Unlock()
	for _, its := range taken {
		its.cancel(cause)
	}
}

// allLocked are the connections that something holds of.
func (c *connections) allLocked(holds func(*conn) bool) (all []*conn) {
	for its := range c.open {
		if holds(its) {
			all = append(all, its)
		}
	}
	return all
}

// busy reports whether a connection is being served, receives a request, was
// hijacked, or waits for a request and has done so for less than patience.
func (k *conn) busy(patience time.Duration) bool {
	if k.state == http.StateNew || k.state == http.StateIdle {
		use := k.use.Load()
		return use == answered || use == heard && !k.incomplete() || time.Since(k.since) < patience
	}
	return true
}

// incomplete reports whether the head of a request has begun to arrive and is
// overdue.
func (k *conn) incomplete() bool {
	return k.use.Load() == heard && time.Since(time.Unix(0, k.heardAt.Load())) > headPatience
}

// unserved names the connections in use without a handler at work: their
// request has not arrived whole, or the handler that took them over has
// returned.
func (c *connections) unserved() []string {
	return c.names(func(its *conn) bool { return its.busy(0) && !its.serving.Load() })
}

func (c *connections) names(of func(*conn) bool) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, its := range c.allLocked(of) {
		names = append(names, fmt.Sprintf("connection from %v (%v)", its.RemoteAddr(), time.Since(its.since).Round(time.Millisecond)))
	}
	return names
}

// quiet waits until no connection is busy, and closes the others. When ctx ends
// first, connections that wait for a request are closed at once; the error is nil
// if there are no others.
func (c *connections) quiet(ctx context.Context) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for c.inUse(c.patience) {
		select {
		case <-look.C:
		case <-ctx.Done():
			if c.inUse(0) {
				return ctx.Err()
			}
			return nil
		}
	}
	return nil
}

// inUse closes the connections that are not busy, and reports whether there are
// others.
func (c *connections) inUse(patience time.Duration) bool {
	c.mu.Lock()
	busy := len(c.allLocked(func(k *conn) bool { return k.busy(patience) }))
	rest := c.allLocked(func(k *conn) bool { return !k.busy(patience) })
	c.mu.Unlock()
	for _, its := range rest {
		if !its.retire() {
			busy++
		}
	}
	return busy > 0
}

// closeAll closes what is left.
func (c *connections) closeAll() {
	c.mu.Lock()
	left := c.allLocked(func(*conn) bool { return true })
	c.mu.Unlock()
	for _, its := range left {
		_ = its.Close()
	}
}

// Read notes that a request has begun to arrive. A request that arrives while its
// connection is closed is either answered or not read at all.
func (k *conn) Read(b []byte) (int, error) {
	n, err := k.Conn.Read(b)
	if n > 0 && !k.hear() {
		return 0, net.ErrClosed
	}
	return n, err
}

// hear notes that a request has begun to arrive, and reports whether it will be
// answered.
func (k *conn) hear() bool {
	if k.use.Load() == quiet {
		k.heardAt.Store(time.Now().UnixNano()) // before others see that there is one
		k.use.CompareAndSwap(quiet, heard)
	}
	return k.use.Load() != retired
}

// retire closes the connection and reports true, unless a request has begun to
// arrive that may still become whole. It looks into the receive buffer of the kernel as well: on a loaded
// machine, the goroutine that reads may not have run since.
func (k *conn) retire() bool {
	if k.use.Load() == retired {
		return true
	}
	overdue := k.incomplete() && k.use.CompareAndSwap(heard, retired)
	if !overdue && (pending(k.Conn) || !k.use.CompareAndSwap(quiet, retired)) {
		return false
	}
	_ = k.Close()
	return true
}

// Write gives up when the client has taken nothing for stallTime: a whole
// answer may take longer, and so may what a handler has to say from time to
// time.
func (k *conn) Write(b []byte) (written int, err error) {
	for {
		if err := k.Conn.SetWriteDeadline(k.stalledAt()); err != nil {
			return written, err
		}
		n, err := k.Conn.Write(b[written:])
		written += n
		if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || k.overdue() {
			return written, err
		}
	}
}

// stalledAt is when a write that begins now has to have got on.
func (k *conn) stalledAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := time.Now().Add(stallTime)
	if k.limit.IsZero() {
		return at
	}
	return earlier(at, k.limit)
}

func (k *conn) overdue() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.limit.IsZero() && !time.Now().Before(k.limit)
}

// SetWriteDeadline is a handler's own bound, beside stallTime.
func (k *conn) SetWriteDeadline(t time.Time) error {
	k.mu.Lock()
	k.limit = t
	k.mu.Unlock()
	return k.Conn.SetWriteDeadline(t)
}

// SetDeadline sets both deadlines.
func (k *conn) SetDeadline(t time.Time) error {
	return errors.Join(k.SetReadDeadline(t), k.SetWriteDeadline(t))
}

// CloseWrite lets a client read the last answer that has not read it yet.
func (k *conn) CloseWrite() error {
	if tcp, ok := k.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// NetConn returns the connection below, for who took this one over and wants to
// set what only TCP has.
func (k *conn) NetConn() net.Conn { return k.Conn }

// Close closes the connection, and forgets one that was taken over: net/http
// does not say that it is closed.
func (k *conn) Close() error {
	k.of.mu.Lock()
	if k.state == http.StateHijacked {
		delete(k.of.open, k)
	}
	k.of.mu.Unlock()
	err := k.Conn.Close()
	if b := k.room.Swap(nil); b != nil {
		b.leave() // after the descriptor is free
	}
	return err
}
