package limit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxLearned bounds the pause that a Transport takes from a response.
const MaxLearned = time.Hour

// Transport returns a RoundTripper that waits until m allows a request, with
// keyOf as its key, and then sends it by base; nil means
// http.DefaultTransport. A request with an empty key is not limited.
//
// A response 429 or 503 with a Retry-After pauses the key for that time, in all
// processes, for at most MaxLearned. The response itself is returned, and the
// request is not repeated. With Concurrent, the slot is given back when the body
// of the response is closed.
//
// RoundTrip returns the errors of [Limiter.Wait] and of base.
func Transport(l *Limiter, base http.RoundTripper, keyOf func(*http.Request) string, m Limit, opts ...Option) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{l, base, keyOf, m, opts}
}

type transport struct {
	limiter *Limiter
	base    http.RoundTripper
	keyOf   func(*http.Request) string
	limit   Limit
	opts    []Option
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := t.keyOf(r)
	if key == "" {
		return t.base.RoundTrip(r)
	}
	p, err := t.limiter.Wait(r.Context(), key, t.limit, t.opts...)
	if err != nil {
		if r.Body != nil { // a RoundTripper closes the body, also after an error
			_ = r.Body.Close()
		}
		return nil, err
	}
	if p.slot.lease != nil {
		r = r.WithContext(p.slot.lease.Context()) // ends when the slot is lost
	}
	kept := false // by the response
	defer func() {
		if !kept { // also where base panics
			_ = p.slot.release()
		}
	}()
	response, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	t.learn(r.Context(), key, response)
	kept = response.Body != nil
	if p.slot.lease != nil && kept {
		response.Body = holding(response.Body, p.slot)
	}
	return response, nil
}

// CloseIdleConnections closes those of the base: [http.Client.CloseIdleConnections]
// calls it.
func (t *transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// learn pauses the key if the response requests it. An error of the pause does not
// change the response.
func (t *transport) learn(ctx context.Context, key string, r *http.Response) {
	if r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusServiceUnavailable {
		return
	}
	d := retryAfter(r.Header, time.Now())
	if d <= 0 || t.limiter.Unavailable() != nil { // the response does not wait for a lost backend
		return
	}
	reason := fmt.Sprintf("response %d with Retry-After", r.StatusCode)
	_ = t.limiter.Pause(context.WithoutCancel(ctx), key, min(d, MaxLearned), reason)
}

// retryAfter returns the time that a Retry-After names in seconds or as a date;
// 0 without one, and if it is not valid. A date counts from the Date of the
// response, if it has one: the clocks may differ.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(value, 10, 63); err == nil {
		return time.Duration(min(n, uint64(MaxPause/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(at.Sub(now), 0)
}

// holding returns a body whose Close gives the slot back. The body of a
// connection that has switched protocols stays writable.
func holding(body io.ReadCloser, s slot) io.ReadCloser {
	held := &heldBody{body, s}
	if w, ok := body.(io.Writer); ok {
		return &heldConn{held, w}
	}
	return held
}

type heldBody struct {
	io.ReadCloser
	slot slot
}

func (b *heldBody) Close() error {
	err := b.ReadCloser.Close()
	_ = b.slot.release()
	return err
}

type heldConn struct {
	*heldBody
	io.Writer
}
