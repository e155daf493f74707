package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/request"
)

// patience is the time for which a draining server waits for the next request
// of a connection, since the connection was made or since the last response. A
// client that reuses its connections at shorter intervals receives a response
// with the header "Connection: close", and loses no request. Browsers open
// connections in advance and send nothing on them. These connections end after
// the same time.
const patience = 500 * time.Millisecond

// headPatience is the time for which a draining server waits for the head of a
// request, from its first byte on. The timeout of net/http begins with the
// fourth byte of a head that follows a response: without headPatience, one byte
// would delay every shutdown until its budget ends.
const headPatience = 5 * time.Second

// connections tracks the connections of a server. net/http closes them, each
// from the goroutine that reads it: because of the header "Connection: close",
// or because of a read deadline, which drain brings forward.
//
// The ways of net/http itself (SetKeepAlivesEnabled, Shutdown) close idle
// connections from outside, while their clients send the next request, return
// without a response to a request that was read meanwhile, and do not know
// connections that a handler has hijacked.
type connections struct {
	patience time.Duration // 0 closes waiting connections at once
	ending   atomic.Bool   // responses have the header "Connection: close"
	closed   chan struct{} // has an element after a connection was removed from open

	mu       sync.Mutex // guards the fields below; locked before a connection's mu
	open     map[*conn]struct{}
	draining bool
}

func newConnections() *connections {
	return &connections{closed: make(chan struct{}, 1), open: map[*conn]struct{}{}}
}

// context is an http.Server's ConnContext.
func (c *connections) context(ctx context.Context, raw net.Conn) context.Context {
	k, ok := plainConn(raw)
	if !ok {
		return ctx
	}
	_, k.handshake = raw.(*tls.Conn)
	ctx, k.cancel = context.WithCancelCause(context.WithValue(ctx, connKey{}, k))
	return ctx
}

type connKey struct{}

// plainConn returns the connection below TLS.
func plainConn(raw net.Conn) (*conn, bool) {
	if secure, ok := raw.(*tls.Conn); ok {
		raw = secure.NetConn()
	}
	k, ok := raw.(*conn)
	return k, ok
}

// track is an http.Server's ConnState.
func (c *connections) track(raw net.Conn, state http.ConnState) {
	k, ok := plainConn(raw)
	if !ok {
		return
	}
	switch state {
	case http.StateNew, http.StateIdle:
		k.setState(waiting) // before add: either drain finds k waiting, or add reports the drain
		if c.add(k) {
			k.expire(c.patience)
		}
	case http.StateActive:
		k.startRequest() // a pipelined request comes out of net/http's buffer, without a call of Read
	case http.StateHijacked:
		k.setState(hijacked)
		k.resetOnClose(false)
		if c.add(k) {
			k.cancel(request.ErrShuttingDown)
		}
	case http.StateClosed:
		c.remove(k)
		if k.cancel != nil {
			k.cancel(nil)
		}
	}
}

// add adds a connection, and reports whether the server drains.
func (c *connections) add(k *conn) (draining bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[k] = struct{}{}
	return c.draining
}

func (c *connections) remove(k *conn) {
	c.mu.Lock()
	delete(c.open, k)
	c.mu.Unlock()
	select {
	case c.closed <- struct{}{}:
	default: // wait has not yet received the last one
	}
}

// handler wraps next and tracks which connections have a handler. After
// CloseAfterResponse, responses have the header "Connection: close".
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, ok := r.Context().Value(connKey{}).(*conn)
		if ok {
			k.startHandler()
			defer k.endHandler()
		}
		if c.ending.Load() || ok && k.spares != nil {
			w.Header().Set("Connection", "close")
		}
		serve := next.ServeHTTP
		if ok && !r.ProtoAtLeast(1, 1) {
			serve = k.resetUntilReturn(serve)
		}
		var body *lastBody
		if ok && r.Close && r.ContentLength != 0 {
			body = &lastBody{ReadCloser: r.Body}
			r.Body = body
		}
		serve(w, r)
		if body != nil {
			k.readRest(w, r, body)
		}
	})
}

// resetUntilReturn returns a handler for HTTP/1.0: an end of the connection before its
// return is a reset.
func (k *conn) resetUntilReturn(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		returned := false
		k.resetOnClose(true)
		defer func() {
			switch {
			case returned:
				k.resetOnClose(false)
			case !k.isHijacked(): // a panic: net/http would end TLS first, as after a complete answer
				_ = k.Close()
			}
		}()
		serve(w, r)
		returned = true
	}
}

// lastBody is the body of a request that asks for the close of its connection.
type lastBody struct {
	io.ReadCloser
	isBegun atomic.Bool // a read has begun
	isRead  atomic.Bool // to its end
}

func (b *lastBody) Read(p []byte) (int, error) {
	b.isBegun.Store(true)
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.isRead.Store(true)
	}
	return n, err
}

// restBytes is the limit for the rest of a body that no handler has read, as in net/http.
const restBytes = 256 << 10

// readRest reads the rest of a body before the close for which the request asks. If the
// rest is longer, net/http waits before the close. Without readRest, it does so for other
// requests alone: here the reset for unread bytes would overtake the response.
func (k *conn) readRest(w http.ResponseWriter, r *http.Request, body *lastBody) {
	awaited := r.Header.Get("Expect") != "" && !body.isBegun.Load() // the client may wait for the response
	if awaited || body.isRead.Load() || k.isHijacked() {
		return
	}
	_ = k.SetReadDeadline(time.Now().Add(request.RestTime)) // fails on a closed connection
	if _, err := io.CopyN(io.Discard, body, restBytes); errors.Is(err, io.EOF) {
		return
	}
	request.CloseAfterAnswer(w)
}

// drain makes every connection end: after the response in progress, or if it
// waits for a request longer than patience. It also ends the contexts of
// hijacked connections, since these connections get no response.
func (c *connections) drain(patience time.Duration) {
	c.ending.Store(true)
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	for _, k := range c.all(each) {
		k.expire(patience)
	}
	for _, k := range c.all(func(k *conn) bool { return k.state == hijacked }) {
		k.cancel(request.ErrShuttingDown)
	}
}

// wait waits until all connections are closed.
func (c *connections) wait(ctx context.Context) error {
	for c.count() > 0 {
		select {
		case <-c.closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// all returns the connections for which match returns true. The connection's mu
// is held during the call of match.
func (c *connections) all(match func(*conn) bool) (all []*conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.open {
		k.mu.Lock()
		if match(k) {
			all = append(all, k)
		}
		k.mu.Unlock()
	}
	return all
}

func each(*conn) bool { return true }

// inUse reports whether a connection has a request or was hijacked.
func inUse(k *conn) bool { return k.state != waiting }

// unserved reports whether a connection is in use without a running handler:
// its request is incomplete, its client does not read the response, or the
// handler that hijacked it has returned.
func unserved(k *conn) bool { return inUse(k) && !k.inHandler }

// names returns the descriptions of the connections for which match returns true.
func (c *connections) names(match func(*conn) bool) (names []string) {
	for _, k := range c.all(match) {
		names = append(names, k.String())
	}
	return names
}

// closeAll closes the remaining connections.
func (c *connections) closeAll() {
	for _, k := range c.all(each) {
		if k.writing.Load() { // else the end of an HTTP/1.0 answer would look complete
			k.resetOnClose(true)
		}
		_ = k.Close()
	}
}
