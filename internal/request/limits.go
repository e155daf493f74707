package request

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Limits bounds a request. The zero value allows a body of 1 MiB, sets no
// timeout and allows no other origin.
type Limits struct {
	// Body is the number of bytes of a request's body that may be read; 0 means
	// 1 MiB, negative means unlimited.
	Body int64
	// Timeout is the duration after which a request's context ends; 0 means no
	// timeout. A stream and a hijacked connection are exempt.
	Timeout time.Duration
	// Origins are other sites whose pages may send POST requests to this app:
	// "https://shop.example", without a path.
	Origins []string
}

const defaultBody = 1 << 20

// rules are compiled Limits.
type rules struct {
	body    int64
	timeout time.Duration
	origins *http.CrossOriginProtection
}

func newRules(l Limits) (*rules, error) {
	if l.Timeout < 0 {
		return nil, fmt.Errorf("a request's time cannot be below 0: %v", l.Timeout)
	}
	r := &rules{body: l.Body, timeout: l.Timeout, origins: http.NewCrossOriginProtection()}
	if r.body == 0 {
		r.body = defaultBody
	}
	for _, o := range l.Origins {
		if err := r.origins.AddTrustedOrigin(o); err != nil {
			return nil, fmt.Errorf("trusted origin %q: want scheme://host, optionally with a port: %w", o, err)
		}
	}
	return r, nil
}

// SetLimits applies new limits to later requests. It returns an error for
// invalid limits and keeps the old ones.
func (h *Host) SetLimits(l Limits) error {
	r, err := newRules(l)
	if err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	h.rules.Store(r)
	return nil
}

// limits returns the rules in force.
func (h *Host) limits() *rules {
	if r := h.rules.Load(); r != nil {
		return r
	}
	r, err := newRules(Limits{})
	if err != nil { // the zero Limits are valid
		panic(err)
	}
	h.rules.CompareAndSwap(nil, r)
	return h.rules.Load()
}

var errTimedOut = errors.New("the timeout of the request has passed")

// timeout is the context of a request with a timeout. It ends with
// DeadlineExceeded unless the timeout is lifted before. A stream lifts it,
// which no context of the standard library allows.
//
// Its values are its parent's, so that derived contexts do not attach to the
// inner context directly; they use AfterFunc and read the Err of the timeout.
type timeout struct {
	context.Context                 // the parent
	inner           context.Context // ends with the parent, or when the time is up
	cancel          context.CancelCauseFunc
	deadline        time.Time
	lifted          atomic.Bool
	timer           *time.Timer
}

func newTimeout(parent context.Context, d time.Duration) *timeout {
	t := &timeout{Context: parent, deadline: time.Now().Add(d)}
	t.inner, t.cancel = context.WithCancelCause(parent)
	t.timer = time.AfterFunc(d, func() { t.cancel(errTimedOut) })
	return t
}

func (t *timeout) Deadline() (time.Time, bool) {
	d, ok := t.Context.Deadline()
	if t.lifted.Load() || ok && d.Before(t.deadline) {
		return d, ok
	}
	return t.deadline, true
}

func (t *timeout) Done() <-chan struct{} { return t.inner.Done() }

func (t *timeout) Err() error {
	if t.hasPassed() {
		return context.DeadlineExceeded
	}
	return t.inner.Err()
}

// AfterFunc is the method with which package context derives a context from this
// one without a goroutine.
func (t *timeout) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(t.inner, f) }

// hasPassed reports whether the timeout ended the context.
func (t *timeout) hasPassed() bool { return t != nil && errors.Is(context.Cause(t.inner), errTimedOut) }

// lift removes the timeout, also from the deadline of the contexts below.
func (t *timeout) lift() {
	if t != nil {
		t.lifted.Store(true)
		t.timer.Stop()
	}
}

// end releases the timer and the context.
func (t *timeout) end() {
	if t != nil {
		t.timer.Stop()
		t.cancel(ErrHandlerReturned)
	}
}

// body is the body of a request. Reads fail beyond the limit of its size, which
// counts the bytes as sent, and after the timeout of the request.
type body struct {
	io.ReadCloser
	limit   int64
	length  int64                 // as announced, or -1
	timeout *timeout              // of the request; may be nil
	control *Response             // of the connection
	hurried atomic.Bool           // the connection has the deadline of the request
	failed  atomic.Pointer[error] // of a read that the client has cut off
	isRead  atomic.Bool           // to its end

	mu   sync.Mutex // guards left; held during a read, as in net/http
	left int64
}

func limitBody(r *http.Request, limit int64, rec *record) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	if limit < 0 {
		limit = math.MaxInt64 - 1
	}
	b := &body{
		ReadCloser: r.Body, limit: limit, left: limit, length: r.ContentLength,
		timeout: rec.timeout, control: &rec.out,
	}
	r.Body, rec.out.body = b, b
}

// Read reads one byte more than the limit to detect a larger body. A body with
// a too large Content-Length is not read at all.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.length > b.limit || b.left < 0 {
		return 0, &http.MaxBytesError{Limit: b.limit}
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	b.hurry()
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, &http.MaxBytesError{Limit: b.limit}
	}
	switch err {
	case nil:
	case io.EOF:
		b.isRead.Store(true)
	default:
		b.failed.Store(&err)
	}
	return n, b.readError(err)
}

// isLeft reports whether no read has reached the end.
func (b *body) isLeft() bool { return b != nil && !b.isRead.Load() }

// causes reports whether err wraps the error of a read that the client has cut off.
// A panic with that error is a fault of the handler.
func (b *body) causes(err error) bool {
	if b == nil {
		return false
	}
	failed := b.failed.Load()
	if _, panicked := errors.AsType[*panicError](err); failed == nil || panicked {
		return false
	}
	return errors.Is(err, *failed)
}

// hurry ends a read from a client that has stopped sending, because the end of
// the context does not end the read. A response that cannot set a deadline has
// no connection. net/http removes the deadline when it has read the whole body.
func (b *body) hurry() {
	if b == nil || b.timeout == nil || b.hurried.Load() {
		return
	}
	_ = b.control.setDeadline(func(c *http.ResponseController) error {
		// Here, so that the stream that has lifted the timeout, and readError of a
		// concurrent read, remove the deadline later.
		if b.timeout.lifted.Load() || !b.hurried.CompareAndSwap(false, true) {
			return nil
		}
		return c.SetReadDeadline(b.timeout.deadline)
	})
}

// readError returns the error of a read. One of the deadline that hurry has set wraps
// context.DeadlineExceeded.
func (b *body) readError(err error) error {
	switch {
	case err == nil || b.timeout == nil:
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("read the request: %w: %w", context.DeadlineExceeded, err)
	}
	// From here on a read only detects that the client disconnects.
	_ = b.control.SetReadDeadline(time.Time{})
	return err
}
