package request

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Response is a writer that one goroutine uses at a time and that is closed when the
// handler has returned: the server then reuses the connection, and a later write
// returns an error. The front door has a response that counts, and each
// handler has a separate one.
//
// It has all methods that [http.ResponseController] uses and no Unwrap, so that
// no call bypasses it.
type Response struct {
	mu     sync.Mutex // guards the fields and the connection: it is held during a write
	w      http.ResponseWriter
	status int // 0 until an answer has begun
	bytes  int64
	ends   bool  // the answer is complete: Answer has written it, and nothing followed
	failed error // of the first write that failed; at the front door
	closed bool  // the handler has returned; changes under mu and deadlines
	front  bool  // the front door of an app, which completes the header of a page

	duplex bool // the handler reads the request while it answers

	deadlines sync.Mutex // held while a deadline is set, which may end a write in progress; locked after mu

	// Of the request, at the front door; both may be nil.
	timeout *timeout
	body    *body
}

// Header returns the header of the answer. After the handler has returned, it
// returns an unused header.
func (r *Response) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return http.Header{}
	}
	return r.w.Header()
}

// WriteHeader records the status. An informational status is not an answer yet.
func (r *Response) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.writeHeaderLocked(status)
	}
}

func (r *Response) writeHeaderLocked(status int) {
	isAnswer := status >= 200 && status <= 999 // net/http panics at others
	if r.status == 0 && (isAnswer || status == http.StatusSwitchingProtocols) {
		r.status = status
		r.completeHeaderLocked()
		r.hurryLocked()
	}
	r.w.WriteHeader(status)
}

// Write returns ErrHandlerReturned after the handler has returned.
func (r *Response) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, ErrHandlerReturned
	}
	return r.writeLocked(b)
}

func (r *Response) writeLocked(b []byte) (int, error) {
	r.beginLocked()
	r.ends = false
	n, err := r.w.Write(b)
	r.bytes += int64(n)
	return n, r.failedLocked(err)
}

// failedLocked records the error of a write, and returns it.
func (r *Response) failedLocked(err error) error {
	if r.failed == nil {
		r.failed = err
	}
	return err
}

// causes reports whether err wraps the error of a write. A panic with that error is
// a fault of the handler.
func (r *Response) causes(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, panicked := errors.AsType[*panicError](err)
	return r.failed != nil && !panicked && errors.Is(err, r.failed)
}

// Flush sends the data written so far, if the connection can.
func (r *Response) Flush() { _ = r.FlushError() }

// FlushError is Flush for [http.ResponseController].
func (r *Response) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrHandlerReturned
	}
	r.beginLocked()
	return r.failedLocked(http.NewResponseController(r.w).Flush())
}

// CanFlush reports whether the writer of the connection or of the innermost middleware can
// flush. It finds the method as [http.ResponseController] does, and writes nothing.
func (r *Response) CanFlush() bool {
	for w := r.w; ; {
		switch next := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = next.Unwrap()
		default:
			return false
		}
	}
}

// Hijack takes the connection away from the server, for [http.Hijacker].
func (r *Response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, ErrHandlerReturned
	}
	conn, rw, err := http.NewResponseController(r.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	r.timeout.lift() // no request follows on this connection
	r.duplex = false
	if r.status == 0 {
		r.status = http.StatusSwitchingProtocols
	}
	return conn, rw, nil
}

// SetReadDeadline is for [http.ResponseController].
func (r *Response) SetReadDeadline(t time.Time) error {
	return r.setDeadline(func(c *http.ResponseController) error { return c.SetReadDeadline(t) })
}

// SetWriteDeadline is for [http.ResponseController]. It ends a write in progress, too.
func (r *Response) SetWriteDeadline(t time.Time) error {
	return r.setDeadline(func(c *http.ResponseController) error { return c.SetWriteDeadline(t) })
}

func (r *Response) setDeadline(set func(*http.ResponseController) error) error {
	r.deadlines.Lock()
	defer r.deadlines.Unlock()
	if r.closed {
		return ErrHandlerReturned
	}
	return set(http.NewResponseController(r.w))
}

// EnableFullDuplex is for [http.ResponseController].
func (r *Response) EnableFullDuplex() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrHandlerReturned
	}
	r.duplex = true
	return http.NewResponseController(r.w).EnableFullDuplex()
}

// FullDuplex reports whether the handler has enabled full duplex.
func (r *Response) FullDuplex() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.duplex
}

// Answer writes a whole answer in one call, or the head of a stream.
func (r *Response) Answer(a Answer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrHandlerReturned
	case r.status != 0:
		return ErrAnswered
	}
	if a.Status < 200 || a.Status > 999 { // net/http panics, or waits for another status
		return fmt.Errorf("mega: the status %d is not one of an answer", a.Status)
	}
	a.writeHeader(r.w.Header())
	r.writeHeaderLocked(a.Status)
	if len(a.Body) > 0 {
		// A failed write means that the client disconnected; the request's
		// context reports that.
		_, _ = r.writeLocked(a.Body)
	}
	r.ends = !a.Stream
	return nil
}

// whole reports whether the answer is complete: it was written in one call, or
// has no body, or has the announced length.
func (r *Response) whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.status {
	case http.StatusSwitchingProtocols, http.StatusNoContent, http.StatusNotModified:
		return true
	}
	return r.ends || r.w.Header().Get("Content-Length") == strconv.FormatInt(r.bytes, 10)
}

// begun returns the status of the answer, or 0.
func (r *Response) begun() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Begin sets the status 200 if no status was set, as net/http does.
func (r *Response) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 && !r.closed {
		r.writeHeaderLocked(http.StatusOK)
	}
}

func (r *Response) beginLocked() {
	if r.status == 0 {
		r.status = http.StatusOK
		r.completeHeaderLocked()
		r.hurryLocked()
	}
}

// hurryLocked limits the time for the rest of the request, which net/http reads
// before it sends the head of the answer.
func (r *Response) hurryLocked() {
	if !r.duplex {
		r.body.hurry()
	}
}

// The default headers of a page: other sites cannot frame it, browsers do not
// guess its type, and its links disclose only its origin. All answers share the
// values; their capacity equals their length, so that an append copies them.
var (
	frameAncestors = []string{"frame-ancestors 'self'"}
	noSniff        = []string{"nosniff"}
	referrer       = []string{"strict-origin-when-cross-origin"}
)

// completeHeaderLocked adds the default headers of a page. A value that the app has
// set stays, also an empty one. An answer without a type gets them too, because
// it may be a page: net/http detects its type when the header is complete.
func (r *Response) completeHeaderLocked() {
	if !r.front {
		return
	}
	h := r.w.Header()
	if ids := h["X-Request-Id"]; len(ids) > 1 {
		h["X-Request-Id"] = ids[:1] // a handler that is a proxy has added its server's
	}
	if types := h["Content-Type"]; len(types) > 0 && !isPage(types[0]) {
		return
	}
	byDefault(h, "Content-Security-Policy", frameAncestors)
	byDefault(h, "X-Content-Type-Options", noSniff)
	byDefault(h, "Referrer-Policy", referrer)
}

func byDefault(h http.Header, name string, value []string) {
	if _, set := h[name]; !set {
		h[name] = value
	}
}

func isPage(contentType string) bool {
	t, _, _ := strings.Cut(contentType, ";")
	t = strings.ToLower(strings.TrimSpace(t))
	return t == "text/html" || t == "application/xhtml+xml"
}

// close waits for a write in progress and refuses every later one.
func (r *Response) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadlines.Lock()
	defer r.deadlines.Unlock()
	if r.duplex && !r.closed && r.body.isLeft() {
		// net/http would read the rest without a limit of time, or take what arrives after
		// the deadline for the next request.
		_ = http.NewResponseController(r.w).SetReadDeadline(time.Now().Add(RestTime))
		CloseAfterAnswer(r.w)
	}
	r.closed = true
}

// RestTime is the time for the rest of a request before the close of its connection.
const RestTime = 500 * time.Millisecond

// CloseAfterAnswer makes net/http close the connection of w after the answer, and wait before
// the close: a reset for unread bytes would overtake the answer.
func CloseAfterAnswer(w http.ResponseWriter) {
	tooLong := http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0)
	_, _ = tooLong.Read(make([]byte, 1)) // net/http does so for this error
}

// Answer is a whole answer, or the head of a stream.
type Answer struct {
	Status int
	Type   string
	Header http.Header // more headers, which may be shared; Vary values are added
	Body   []byte
	Stream bool // the handler sends the rest, and completes it by returning nil
}

func (a Answer) writeHeader(h http.Header) {
	for name, values := range a.Header {
		if name == "Vary" {
			values = append(h[name], values...)
		}
		h[name] = values
	}
	if a.Type == "" {
		return
	}
	h.Set("Content-Type", a.Type)
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	h["X-Content-Type-Options"] = noSniff
}
