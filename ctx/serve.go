package megactx

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
)

// exchange is a request and its answer, as a handler sees them.
type exchange struct {
	host    *Host
	request *http.Request
	writer  *response
	record  *record
	end     context.CancelCauseFunc // ends the handler's Ctx

	binding sync.Mutex // held while the body is decoded; guards the request's form
	over    atomic.Bool
}

// discard ends the use of the body. It does not wait for a Bind in progress:
// the client may send the rest only after it has received its answer.
func (e *exchange) discard() {
	e.over.Store(true)
	e.removeFiles()
}

// removeFiles removes the temporary files of an upload. net/http does not, since
// the form belongs to a copy of its request. If Bind is in progress, Bind removes
// them when it returns.
func (e *exchange) removeFiles() {
	if !e.binding.TryLock() {
		return
	}
	defer e.binding.Unlock()
	if form := e.request.MultipartForm; form != nil {
		_ = form.RemoveAll() // a file that cannot be removed stays in the temporary folder
	}
}

// serve is the front door of an app: it gives every request an id, a timeout
// and a Ctx, refuses posts from other sites' pages, recovers panics, and logs.
func (h *Host) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rules := h.limits()
		rec := &record{id: requestID(r), method: r.Method, path: r.URL.Path, began: time.Now(), request: r, inspection: h.inspected()}
		rec.out.w, rec.out.front = w, true
		h.enter(rec)
		defer h.leave(rec)
		std, end := rec.allow(r.Context(), rules.timeout)
		defer end(ErrHandlerReturned)
		defer rec.out.shut()

		std, rec.span = h.beginSpan(std, r)
		c := h.New(std)
		c.Log = rec.logOn(c.Log, traceOf(std))
		c.asked = asked{id: rec.id, query: r.URL.RawQuery}
		r = r.WithContext(c)
		limitBody(r, rules.body, rec)
		c.exchange = &exchange{host: h, request: r, writer: &rec.out, record: rec, end: end}
		defer c.exchange.discard()
		rec.out.Header().Set("X-Request-Id", rec.id)

		defer h.contain(r, rec)
		if err := rules.origins.Check(r); err != nil {
			h.fail(&rec.out, r, rec, refuse(http.StatusForbidden, "request.cross_origin", err, "problem.request.cross_origin"))
			return
		}
		if err := h.refresh(); err != nil {
			h.fail(&rec.out, r, rec, err)
			return
		}
		next.ServeHTTP(&rec.out, r)
		if rec.code != codeCancelled {
			rec.out.begin() // net/http sends 200 for an empty answer
		}
	})
}

// allow returns the context of a request with the timeout d, or without a
// timeout if d is 0.
func (rec *record) allow(parent context.Context, d time.Duration) (context.Context, context.CancelCauseFunc) {
	if d == 0 {
		return context.WithCancelCause(parent)
	}
	rec.allowance = newAllowance(parent, d)
	rec.out.allowance = rec.allowance
	std, end := context.WithCancelCause(rec.allowance)
	return std, func(cause error) {
		end(cause)
		rec.allowance.end()
	}
}

// logOn returns a logger with the attributes of the request and its trace.
func (rec *record) logOn(log *slog.Logger, traceID string) *slog.Logger {
	rec.trace = traceID
	if traceID == "" {
		return log.With("request", rec.id)
	}
	return log.With("request", rec.id, "trace_id", traceID)
}

// contain turns a panic of a middleware or a plain http.Handler into an answer.
// The caller must defer it directly.
func (h *Host) contain(r *http.Request, rec *record) {
	switch value := recover(); value {
	case nil:
	case http.ErrAbortHandler:
		if rec.err == nil {
			rec.err, rec.code = http.ErrAbortHandler, codeAborted
		}
		panic(value)
	default:
		begun := rec.out.begun() != 0
		h.fail(&rec.out, r, rec, &panicError{value, debug.Stack()})
		if begun && !rec.out.whole() {
			panic(http.ErrAbortHandler)
		}
	}
}

// adapt returns an http.Handler behind the front door that calls fn.
func (h *Host) adapt(fn Handler) http.HandlerFunc { return h.adaptRoute(fn, nil) }

// adaptRoute is adapt for a route whose handler is own, which fn may wrap.
func (h *Host) adaptRoute(fn, own Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		outer, ok := From(r.Context())
		if !ok || outer.exchange == nil {
			h.serve(h.adaptRoute(fn, own)).ServeHTTP(w, r)
			return
		}
		rec := outer.exchange.record
		rec.route, rec.handler = r.Pattern, own
		std, end := context.WithCancelCause(r.Context())
		defer end(ErrHandlerReturned) // ends forgotten leases and leftover goroutines

		c := outer.WithContext(std)
		c.Log = outer.Log.With("route", r.Pattern)
		c.asked = askedOf(r, rec.id)
		rec.params = c.asked.params
		r = r.WithContext(c)
		out := &response{w: w}
		defer out.shut()
		c.exchange = &exchange{host: h, request: r, writer: out, record: rec, end: end}
		defer c.exchange.discard()
		err := protect(fn, c)
		out.shut()
		switch answered := out.status != 0 || rec.out.begun() != 0; {
		case err != nil && answered:
			rec.note(err)
			if !out.whole() {
				panic(http.ErrAbortHandler) // otherwise the client would take a part for the whole
			}
		case err != nil:
			h.fail(w, r, rec, err)
		case !answered:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

// askedOf copies the router's result, because the router reuses its memory for
// the next request.
func askedOf(r *http.Request, id string) asked {
	a := asked{id: id, query: r.URL.RawQuery}
	route := chi.RouteContext(r.Context())
	if route == nil {
		return a
	}
	for i, name := range route.URLParams.Keys {
		value := route.URLParams.Values[i]
		if r.URL.RawPath != "" { // the router matched the escaped path
			if plain, err := url.PathUnescape(value); err == nil {
				value = plain
			}
		}
		a.params = append(a.params, param{name, value})
	}
	return a
}

// protect calls fn and returns its panic as an error, except
// http.ErrAbortHandler, which net/http handles.
func protect(fn Handler, c *Ctx) (err error) {
	defer func() {
		switch value := recover(); value {
		case nil:
		case http.ErrAbortHandler:
			panic(value)
		default:
			err = &panicError{value, debug.Stack()}
		}
	}()
	return fn(c)
}

// WrapHandler makes an http.Handler a Handler. The request it is given carries
// the Ctx; see From. Its parameters are the request's PathValue.
//
//go:noinline // the list of routes knows it by its name
func WrapHandler(std http.Handler) Handler {
	return func(c *Ctx) error {
		if c.exchange == nil {
			return ErrNoRequest
		}
		std.ServeHTTP(c.exchange.writer, c.exchange.request)
		c.exchange.writer.begin()
		return nil
	}
}

var idRule = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID returns a proxy's request id, if it is safe to log, or else a new
// one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); idRule.MatchString(id) {
		return id
	}
	return strings.ToLower(rand.Text()[:16])
}
