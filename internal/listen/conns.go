package listen

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

// patience is the time for which a server keeps a connection open during
// shutdown if the client has sent nothing since the connection was made or
// since the last answer. A client that reuses its connections at shorter
// intervals receives an answer with the header "Connection: close", and loses
// no request. Browsers open connections in advance and send nothing on them.
// These connections end after the same time.
const patience = 500 * time.Millisecond

// headPatience is the time limit for the head of a request during shutdown,
// from its first byte on. If a head follows an answer, net/http bounds it only
// from its fourth byte on. Up to that byte, net/http would wait as long as for
// an idle connection: one byte could hold up every shutdown until its budget
// ends.
const headPatience = 5 * time.Second

// connections tracks the state of each connection of a server. It compensates
// for http.Server.Shutdown, which closes idle connections while their clients
// send the next request, closes accepted connections that were not read from,
// and forgets connections that a handler has hijacked.
type connections struct {
	patience time.Duration // 0 closes idle connections at once
	ending   atomic.Bool   // answers have the header "Connection: close"

	mu   sync.Mutex // guards the fields below, and state and since of each connection
	open map[*conn]struct{}
	left error // cause that ends the contexts of hijacked connections; nil before shutdown
}

// conn is a connection of a server. It records whether its client has sent
// anything, and fails writes to a client that reads nothing.
type conn struct {
	net.Conn
	of      *connections
	cancel  context.CancelCauseFunc // cancels the contexts of its requests
	use     atomic.Int32            // quiet, heard, answered or retired
	heardAt atomic.Int64            // when a request began to arrive, in ns since 1970
	serving atomic.Bool             // whether a handler is running
	room    atomic.Pointer[room]    // released when the connection closes; nil for none

	state http.ConnState
	since time.Time

	mu    sync.Mutex // guards limit
	limit time.Time  // write deadline that a handler has set
}

// The use of a connection since it was opened or since its last answer.
const (
	quiet    int32 = iota // no use yet
	heard                 // a request has begun to arrive; it is answered once it is complete
	answered              // its handler was called
	retired               // closed by retire; requests that arrive now are ignored
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

// note records the state of a connection. It returns the cause that ends
// hijacked connections, or nil before the shutdown.
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

// handler wraps next and tracks which connections have a handler. During
// shutdown, answers have the header "Connection: close".
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if its, ok := r.Context().Value(connKey{}).(*conn); ok {
			// A pipelined request comes out of the buffer of net/http, without
			// a call of Read, on a connection whose state is still idle.
			if !its.use.CompareAndSwap(heard, answered) && !its.use.CompareAndSwap(quiet, answered) {
				panic(http.ErrAbortHandler) // its answer cannot be sent any more
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

// served records that a handler has returned. If the handler has hijacked the
// connection, served ends the connection's context.
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

// leave makes all further answers close their connection. It also ends the
// contexts of hijacked connections, since these connections get no answer.
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

// allLocked returns the connections for which holds returns true. c.mu must be
// held.
func (c *connections) allLocked(holds func(*conn) bool) (all []*conn) {
	for its := range c.open {
		if holds(its) {
			all = append(all, its)
		}
	}
	return all
}

// busy reports whether a connection has a running handler, receives a request,
// was hijacked, or has waited for a request for less than patience.
func (k *conn) busy(patience time.Duration) bool {
	if k.state == http.StateNew || k.state == http.StateIdle {
		use := k.use.Load()
		return use == answered || use == heard && !k.incomplete() || time.Since(k.since) < patience
	}
	return true
}

// incomplete reports whether the head of a request has begun to arrive and has
// exceeded headPatience.
func (k *conn) incomplete() bool {
	return k.use.Load() == heard && time.Since(time.Unix(0, k.heardAt.Load())) > headPatience
}

// unserved returns the names of the connections in use without a running
// handler: their request is incomplete, or the handler that hijacked them has
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

// quiet waits until no connection is busy, and closes idle connections. When
// ctx ends first, quiet closes the connections that wait for a request at once,
// and returns ctx's error if other connections remain.
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

// inUse closes the connections that are not busy, and reports whether any busy
// connections remain.
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

// closeAll closes the remaining connections.
func (c *connections) closeAll() {
	c.mu.Lock()
	left := c.allLocked(func(*conn) bool { return true })
	c.mu.Unlock()
	for _, its := range left {
		_ = its.Close()
	}
}

// Read records that a request has begun to arrive. A request that arrives while
// its connection closes is either answered or not read at all.
func (k *conn) Read(b []byte) (int, error) {
	n, err := k.Conn.Read(b)
	if n > 0 && !k.hear() {
		return 0, net.ErrClosed
	}
	return n, err
}

// hear records that a request has begun to arrive, and reports whether the
// request will be answered.
func (k *conn) hear() bool {
	if k.use.Load() == quiet {
		k.heardAt.Store(time.Now().UnixNano()) // before other goroutines see the request
		k.use.CompareAndSwap(quiet, heard)
	}
	return k.use.Load() != retired
}

// retire closes the connection and returns true, unless a request has begun to
// arrive that can still be completed. retire also checks the receive buffer of
// the kernel: on a loaded machine, the goroutine that reads may not have run
// since the bytes arrived.
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

// Write fails when the client has read nothing for stallTime. A whole answer
// may take longer, and a handler may pause between its writes.
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

// stalledAt returns the deadline of a write that begins now.
func (k *conn) stalledAt() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := time.Now().Add(stallTime)
	if k.limit.IsZero() {
		return at
	}
	if k.limit.Before(at) {
		return k.limit
	}
	return at
}

func (k *conn) overdue() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.limit.IsZero() && !time.Now().Before(k.limit)
}

// SetWriteDeadline sets the handler's own deadline. stallTime still applies.
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

// CloseWrite closes the sending side, so that a client can still read the last
// answer.
func (k *conn) CloseWrite() error {
	if tcp, ok := k.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// NetConn returns the underlying connection, for a handler that has hijacked
// this one and sets options that only TCP has.
func (k *conn) NetConn() net.Conn { return k.Conn }

// Close closes the connection, and stops tracking a hijacked one, since
// net/http does not report that a hijacked connection is closed.
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
