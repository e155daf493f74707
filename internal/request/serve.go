package request

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
)

// Door is the front door of an app. Bind returns the Ctx for the innermost Work of
// a context.
type Door struct {
	Host *Host
	Bind func(context.Context) context.Context
}

// Handler returns the handler of the app: it gives every request an id, a timeout
// and a Ctx, refuses posts from other sites' pages, recovers panics, and logs.
func (d Door) Handler(next http.Handler) http.Handler {
	h := d.Host
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rules := h.limits()
		rec := &record{id: requestID(r), method: r.Method, path: r.URL.Path, began: time.Now(), request: r, inspection: h.inspected()}
		rec.out.w, rec.out.front = w, true
		h.enter(rec)
		defer h.leave(rec)
		std, end := rec.allow(r.Context(), rules.timeout)
		defer end(ErrHandlerReturned)
		defer rec.out.close()

		std, rec.span = h.beginSpan(std, r)
		rec.trace = traceOf(std)
		x := &Exchange{Writer: &rec.out, End: end, record: rec}
		work := &Work{Host: h, ID: rec.id, Exchange: x, query: r.URL.RawQuery, attrs: rec.attrs()}
		r = r.WithContext(d.Bind(carrier{std, work}))
		limitBody(r, rules.body, rec)
		x.Request = r
		defer x.discard()
		rec.out.Header().Set("X-Request-Id", rec.id)

		defer h.contain(r, rec)
		if err := rules.origins.Check(r); err != nil {
			h.fail(&rec.out, r, rec, Refuse(http.StatusForbidden, "request.cross_origin", err, "problem.request.cross_origin"))
			return
		}
		if err := h.refresh(); err != nil {
			h.fail(&rec.out, r, rec, err)
			return
		}
		rec.serving = true
		next.ServeHTTP(&rec.out, r)
		rec.serving = false
		if rec.outcome().code != codeCancelled {
			rec.out.Begin() // net/http sends 200 for an empty answer
		}
	})
}

// allow returns the context of a request with the timeout d, or without a
// timeout if d is 0.
func (rec *record) allow(parent context.Context, d time.Duration) (context.Context, context.CancelCauseFunc) {
	if d == 0 {
		return context.WithCancelCause(parent)
	}
	rec.timeout = newTimeout(parent, d)
	rec.out.timeout = rec.timeout
	std, end := context.WithCancelCause(rec.timeout)
	return std, func(cause error) {
		end(cause)
		rec.timeout.end()
	}
}

// attrs returns the attributes of the request and its trace for the log.
func (rec *record) attrs() []slog.Attr {
	if rec.trace == "" {
		return []slog.Attr{slog.String("request", rec.id)}
	}
	return []slog.Attr{slog.String("request", rec.id), slog.String("trace_id", rec.trace)}
}

// contain turns a panic of a middleware or a plain http.Handler into an answer,
// and records a call of runtime.Goexit.
// The caller must defer it directly.
func (h *Host) contain(r *http.Request, rec *record) {
	switch value := recover(); value {
	case nil:
		if rec.serving { // runtime.Goexit: net/http closes the connection without an answer
			h.note(rec, errHandlerGone)
		}
	case http.ErrAbortHandler:
		rec.abort()
		panic(value)
	default:
		begun := rec.out.begun() != 0
		rec.out.Header().Del("Content-Encoding") // of a middleware, which does not encode this answer
		h.fail(&rec.out, r, rec, &panicError{value, debug.Stack()})
		if begun && !rec.out.whole() {
			panic(http.ErrAbortHandler)
		}
	}
}

// Route returns an http.Handler that calls fn with the Ctx of the request, in front
// of the door if the request has not passed it. own is the function whose place
// is shown with an error, which fn may wrap, or nil.
func (d Door) Route(fn func(context.Context) error, own any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		outer := Of(r.Context())
		if outer == nil || outer.Exchange == nil {
			d.Handler(d.Route(fn, own)).ServeHTTP(w, r)
			return
		}
		rec := outer.Exchange.record
		encoded := w.Header().Get("Content-Encoding") != "" // by a middleware
		std, end := context.WithCancelCause(r.Context())
		defer end(ErrHandlerReturned) // ends forgotten leases and leftover goroutines

		out := &Response{w: w}
		defer out.close()
		work := outer.routed(r, &Exchange{Writer: out, End: end, record: rec})
		d.Host.enterRoute(rec, r.Pattern, own, work.params)
		defer d.Host.leaveRoute(rec)
		c := d.Bind(carrier{std, work})
		r = r.WithContext(c)
		work.Exchange.Request = r
		defer work.Exchange.discard()
		err := protect(c, fn)
		out.close()
		switch answered := out.status != 0 || rec.out.begun() != 0; {
		case err != nil && answered:
			d.Host.note(rec, err)
			if !out.whole() {
				panic(http.ErrAbortHandler) // otherwise the client would take a part for the whole
			}
		case err != nil:
			if !encoded {
				w.Header().Del("Content-Encoding") // the handler has set it
			}
			if inner := work.Exchange.speaks.Load(); inner != nil {
				r = r.WithContext(carrier{c, inner})
			}
			d.Host.fail(w, r, rec, err)
		case !answered:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

// routed returns the work of the route of r, with x, which continues w.
func (w *Work) routed(r *http.Request, x *Exchange) *Work {
	inner := &Work{
		Host: w.Host, ID: w.ID, Exchange: x, outer: w,
		query: r.URL.RawQuery, params: paramsOf(r), locale: w.locale, attrs: []slog.Attr{slog.String("route", r.Pattern)},
	}
	if r.URL.RawPath != "" { // the router has set the escaped values
		for _, p := range inner.params {
			r.SetPathValue(p.name, p.value)
		}
	}
	return inner
}

// paramsOf returns the parameters that the router has found.
func paramsOf(r *http.Request) (all []param) {
	route := chi.RouteContext(r.Context())
	if route == nil {
		return nil
	}
	for i, name := range route.URLParams.Keys {
		value := route.URLParams.Values[i]
		if r.URL.RawPath != "" { // the router matched the escaped path
			if plain, err := url.PathUnescape(value); err == nil {
				value = plain
			}
		}
		all = append(all, param{name, value})
	}
	return all
}

// protect calls fn and returns its panic as an error, except
// http.ErrAbortHandler, which net/http handles.
func protect(c context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		switch value := recover(); value {
		case nil:
		case http.ErrAbortHandler:
			panic(value)
		default:
			err = &panicError{value, debug.Stack()}
		}
	}()
	return withoutPanic(fn(c))
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
