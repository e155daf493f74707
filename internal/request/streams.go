package request

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// streams are the open streams.
type streams struct {
	mu    sync.Mutex // guards the fields below
	open  map[*Exchange]struct{}
	ended bool // EndStreams was called
}

// OpenStream adds the stream of e to those that the shutdown ends. The caller must
// close it.
func (h *Host) OpenStream(e *Exchange) {
	h.streams.mu.Lock()
	ended := h.streams.ended
	if !ended {
		if h.streams.open == nil {
			h.streams.open = map[*Exchange]struct{}{}
		}
		h.streams.open[e] = struct{}{}
	}
	h.streams.mu.Unlock()
	if ended {
		e.End(ErrShuttingDown)
	}
}

// CloseStream removes the stream of e.
func (h *Host) CloseStream(e *Exchange) {
	h.streams.mu.Lock()
	defer h.streams.mu.Unlock()
	delete(h.streams.open, e)
}

// EndStreams ends every stream, with ErrShuttingDown as the cause, and each
// later stream as soon as it begins: its client reconnects to another process.
// The shutdown calls it first, because a stream does not end by itself.
func (h *Host) EndStreams() {
	h.streams.mu.Lock()
	h.streams.ended = true
	open := h.streams.open
	h.streams.open = nil
	h.streams.mu.Unlock()
	for e := range open {
		e.End(ErrShuttingDown)
	}
}

// ReadRest reads the rest of the body, within the limit of the app. net/http reads it, too,
// before it sends an answer, but at most 256 KiB, and it detects a client that disconnects
// only after the whole body.
func (e *Exchange) ReadRest() {
	if b := e.record.out.body; b != nil {
		_, _ = io.Copy(io.Discard, b) // the stream of a client that has disconnected ends at once
	}
}

// Lift removes the timeout of the request.
func (e *Exchange) Lift() { e.record.timeout.lift() }

// Hurry ends a write in progress within grace, so that the shutdown does not wait
// for a client that receives nothing. It sets the connection's deadline without
// the writer's lock.
func (e *Exchange) Hurry() {
	_ = http.NewResponseController(e.record.out.w).SetWriteDeadline(time.Now().Add(grace))
}

// Push writes b and flushes, with a timeout. It writes nothing, and returns the cause,
// if ctx has ended.
func (r *Response) Push(ctx context.Context, b []byte, within time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrHandlerReturned
	}
	control := http.NewResponseController(r.w)
	// A writer that cannot set a deadline, as in a test, has no connection.
	_ = control.SetWriteDeadline(time.Now().Add(within))
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	if err := context.Cause(ctx); err != nil { // Hurry may have set its deadline before
		return err
	}
	if _, err := r.writeLocked(b); err != nil {
		return err
	}
	return control.Flush()
}
