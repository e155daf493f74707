package megactx

import (
	"context"
	"crypto/rand"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/lock"
)

// Host is what every Ctx of one app shares. Fill it before the first use and
// do not change it afterwards.
type Host struct {
	App    AppInfo
	Log    *slog.Logger // default: nowhere
	Locker *lock.Locker // without one, locks answer ErrNotConfigured
	Views  *Views       // without them, HTML answers ErrNotConfigured
	Public *Public      // may be nil

	plainOnce sync.Once // makes plain, the page for problems without a page
	plain     *template.Template

	mu     sync.Mutex // guards active
	active map[*record]struct{}
}

// New returns a Ctx for work outside a request.
func (h *Host) New(ctx context.Context) *Ctx {
	c := &Ctx{Context: ctx, Log: h.log(), App: h.App, Lock: Lock{locker: h.Locker}}
	c.Lock.ctx = c
	return c
}

func (h *Host) log() *slog.Logger {
	if h.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Log
}

// record is what is known of one request, for the log and for the shutdown.
type record struct {
	id           string
	method, path string
	began        time.Time
	gone         context.Context // ends when the client goes away

	// The rest belongs to the goroutine that serves the request.
	status int // 0 until an answer has begun
	bytes  int64
	route  string
	code   string // of the error, if any
	err    error
}

func (rec *record) wrote() bool { return rec.status != 0 }

// serve is the front door of an app: it gives every request an id and a Ctx,
// keeps other sites' pages from posting here, contains panics, and logs.
func (h *Host) serve(next http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &record{id: requestID(r), method: r.Method, path: r.URL.Path, began: time.Now(), gone: r.Context()}
		h.enter(rec)
		defer h.leave(rec)
		std, end := context.WithCancelCause(r.Context())
		defer end(ErrHandlerReturned)

		out := &response{ResponseWriter: w, record: rec}
		c := h.New(std)
		c.Log = c.Log.With("request", rec.id)
		r = r.WithContext(c)
		c.exchange = &exchange{host: h, request: r, writer: out, record: rec}
		out.Header().Set("X-Request-Id", rec.id)

		defer h.contain(out, r, rec)
		if err := sameOrigin.Check(r); err != nil {
			h.fail(out, r, rec, &statusError{
				status: http.StatusForbidden, code: "request.cross_origin",
				detail: "This request came from the page of another site.", cause: err,
			})
			return
		}
		next.ServeHTTP(out, r)
		out.begin() // net/http takes silence for a 200
	})
}

// contain turns a panic of a middleware or a plain http.Handler into an
// answer. It has to be deferred itself.
func (h *Host) contain(w http.ResponseWriter, r *http.Request, rec *record) {
	switch value := recover(); value {
	case nil:
	case http.ErrAbortHandler:
		panic(value)
	default:
		h.fail(w, r, rec, &panicError{value, debug.Stack()})
	}
}

// adapt makes a Handler an http.Handler behind the front door.
func (h *Host) adapt(fn Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		outer, ok := From(r.Context())
		if !ok || outer.exchange == nil {
			h.serve(h.adapt(fn)).ServeHTTP(w, r)
			return
		}
		rec := outer.exchange.record
		rec.route = r.Pattern
		std, end := context.WithCancelCause(r.Context())
		defer end(ErrHandlerReturned) // forgotten leases and lost goroutines notice

		c := outer.WithContext(std)
		c.Log = outer.Log.With("route", r.Pattern)
		r = r.WithContext(c)
		c.exchange = &exchange{host: h, request: r, writer: w, record: rec}
		if err := protect(fn, c); err != nil {
			h.fail(w, r, rec, err)
		} else if !rec.wrote() {
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

// protect calls fn and returns its panic as an error. That of
// http.ErrAbortHandler is net/http's own business.
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
// the Ctx; see From.
func WrapHandler(std http.Handler) Handler {
	return func(c *Ctx) error {
		if c.exchange == nil {
			return ErrNoRequest
		}
		std.ServeHTTP(c.Writer(), c.Request())
		if !c.exchange.record.wrote() {
			c.Writer().WriteHeader(http.StatusOK) // what net/http means by silence
		}
		return nil
	}
}

func (h *Host) enter(rec *record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active == nil {
		h.active = map[*record]struct{}{}
	}
	h.active[rec] = struct{}{}
}

// leave logs the request, also one that ends in a panic.
func (h *Host) leave(rec *record) {
	h.mu.Lock()
	delete(h.active, rec)
	h.mu.Unlock()
	attrs := []slog.Attr{
		slog.String("request", rec.id), slog.String("method", rec.method), slog.String("path", rec.path),
		slog.String("route", rec.route), slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes),
		slog.Duration("took", time.Since(rec.began)),
	}
	level := slog.LevelInfo
	if rec.err != nil {
		attrs = append(attrs, slog.String("code", rec.code), slog.String("error", rec.err.Error()))
		level = severity(rec.status)
	}
	if p, ok := errors.AsType[*panicError](rec.err); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
		level = slog.LevelError
	}
	h.log().LogAttrs(context.Background(), level, "request", attrs...)
}

// severity: what the service got wrong is an error, and what it could not do
// in time or under load is a warning. What a client got wrong is neither.
func severity(status int) slog.Level {
	switch {
	case status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout:
		return slog.LevelWarn
	case status >= 500:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// Active lists the requests in flight, the oldest first: "POST /orders (2.1s)".
func (h *Host) Active() []string {
	h.mu.Lock()
	var all []*record
	for rec := range h.active {
		all = append(all, rec)
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b *record) int { return a.began.Compare(b.began) })
	var lines []string
	for _, rec := range all {
		age := time.Since(rec.began).Round(time.Millisecond)
		lines = append(lines, strings.Join([]string{rec.method, rec.path, "(" + age.String() + ")"}, " "))
	}
	return lines
}

var idRule = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID takes over the id that a proxy gave, if it is one that can stand
// in a log, else makes one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); idRule.MatchString(id) {
		return id
	}
	return strings.ToLower(rand.Text()[:16])
}
