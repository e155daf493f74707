package request

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// Host is the state that every Ctx of one app shares. Fill it before the first
// use and do not change it afterwards, except for its limits.
type Host struct {
	App     App
	Log     *slog.Logger   // default: nowhere
	Locker  *lock.Locker   // without one, locks return ErrNotConfigured
	Limiter *limit.Limiter // likewise
	Bus     *bus.Bus       // likewise
	Views   *Views         // without them, HTML returns ErrNotConfigured
	Public  *Public        // may be nil
	Locales *locale.Texts  // without them, T returns the key
	Served  func(Finished) // called after every request; may be nil
	Tracer  trace.Tracer   // default: the global provider's
	// Mask masks secrets in the text of an error before a span has it. Default: it
	// masks only the credentials of URLs.
	Mask func(string) string
	// Refresh returns the files of the app after a change, which replace those
	// above, and nil without a change. It is called at each request; its error is
	// the answer. Nil for files that do not change.
	Refresh func() (*Files, error)

	fresh atomic.Pointer[Files] // from Refresh

	rules      atomic.Pointer[rules] // see SetLimits
	tasks      tasks
	streams    streams
	pages      pages
	complaints complaints
	tracing    tracing

	plainOnce sync.Once // makes plain, the page for problems without a page
	plain     *template.Template

	mu     sync.Mutex // guards active
	active map[*record]struct{}
}

// Files are the files of an app.
type Files struct {
	Views   *Views
	Public  *Public
	Locales *locale.Texts
}

// Files returns the files to use now.
func (h *Host) Files() Files {
	if fresh := h.fresh.Load(); fresh != nil {
		return *fresh
	}
	return Files{h.Views, h.Public, h.Locales}
}

// refresh replaces the files after a change.
func (h *Host) refresh() error {
	if h.Refresh == nil {
		return nil
	}
	files, err := h.Refresh()
	if err != nil {
		return fmt.Errorf("read the changed files: %w", err)
	}
	if files != nil {
		h.fresh.Store(files)
		h.pages.forget()
	}
	return nil
}

// Finished is a finished request, for metrics.
type Finished struct {
	App    string
	Route  string // the pattern, or "" where there is none
	Method string
	Status int // 0 if the connection was cut before an answer
	Took   time.Duration
	Bytes  int64 // of the answer's body
}

// Logger returns the logger of the app.
func (h *Host) Logger() *slog.Logger {
	if h.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Log
}

// record is the state of one request, for the log, for metrics and for the
// shutdown.
type record struct {
	id           string
	method, path string
	began        time.Time
	request      *http.Request // as received; its context ends when the client disconnects
	out          Response      // to the connection
	timeout      *timeout      // nil without a time limit

	localeOnce sync.Once // chooses the locale
	chosen     string

	inspection *inspection // nil except in env dev and test

	// These belong to the goroutine that serves the request.
	span    trace.Span // nil if no tracer records it
	trace   string     // its id, or ""
	serving bool       // the handlers of the app have not returned

	// A handler that a middleware such as http.TimeoutHandler has left behind runs
	// on another goroutine, also after the end of the request.
	mu       sync.Mutex // guards the fields below
	result   outcome
	left     bool  // the request has ended
	handlers int   // of routes, that have not returned
	behind   *task // for the handlers that run on after the end of the request; may be nil
}

// outcome is the route of a request and its error.
type outcome struct {
	route     string
	handler   any     // the function of the route, once it has been chosen
	params    []param // of the route
	err       error
	code      string // of the error, if any
	errStatus int    // the status of the answer for err
}

// outcome returns the outcome so far.
func (rec *record) outcome() outcome {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.result
}

// enterRoute records the route of a request before its handler runs.
func (h *Host) enterRoute(rec *record, route string, handler any, params []param) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.result.route, rec.result.handler, rec.result.params = route, handler, params
	rec.handlers++
	h.keepLocked(rec)
}

// leaveRoute records that the handler of a route has returned.
func (h *Host) leaveRoute(rec *record) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.handlers--; rec.handlers == 0 && rec.behind != nil {
		h.tasks.remove(rec.behind)
		rec.behind = nil
	}
}

// keepLocked makes the shutdown wait for the handlers that a middleware has left behind,
// as for a task. Their context has ended, so that nothing more ends them.
func (h *Host) keepLocked(rec *record) {
	if !rec.left || rec.handlers == 0 || rec.behind != nil {
		return
	}
	t := &task{name: "handler of " + rec.method + " " + rec.path, began: rec.began, end: func(error) {}}
	if h.tasks.add(t) {
		rec.behind = t
	}
}

// abort records that a handler has aborted the connection, unless it has failed.
func (rec *record) abort() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.result.err == nil {
		rec.result.err, rec.result.code = http.ErrAbortHandler, codeAborted
	}
}

// end ends a request and returns its final outcome.
func (h *Host) end(rec *record) outcome {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.left = true
	h.keepLocked(rec)
	return rec.result
}

func (h *Host) enter(rec *record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active == nil {
		h.active = map[*record]struct{}{}
	}
	h.active[rec] = struct{}{}
}

// leave records the end of a request, also of one that ends in a panic.
func (h *Host) leave(rec *record) {
	o := h.end(rec)
	h.mu.Lock()
	delete(h.active, rec)
	h.mu.Unlock()
	r := Finished{
		App: h.App.Name, Route: o.route, Method: rec.method,
		Status: rec.out.status, Took: time.Since(rec.began), Bytes: rec.out.bytes,
	}
	if rec.method == http.MethodHead {
		r.Bytes = 0 // the server sends no body
	}
	if o.code == codeCancelled && r.Status == 0 {
		r.Status = clientClosed
	}
	h.endSpan(rec, o, r)
	h.access(rec, o, r)
	if h.Served != nil {
		h.Served(r)
	}
}

// access writes the line of a request in the log.
func (h *Host) access(rec *record, o outcome, r Finished) {
	attrs := []slog.Attr{
		slog.String("request", rec.id), slog.String("method", r.Method), slog.String("path", rec.path),
		slog.String("route", r.Route), slog.Int("status", r.Status), slog.Int64("bytes", r.Bytes),
		slog.Duration("took", r.Took),
	}
	attrs, level := rec.explained(attrs, o)
	h.Logger().LogAttrs(context.Background(), level, "request", attrs...)
}

// failedLate logs the error of a handler that a middleware has left behind, after the
// line of the request.
func (h *Host) failedLate(rec *record, o outcome) {
	attrs := []slog.Attr{
		slog.String("request", rec.id), slog.String("method", rec.method), slog.String("path", rec.path), slog.String("route", o.route),
	}
	attrs, level := rec.explained(attrs, o)
	h.Logger().LogAttrs(context.Background(), level, "handler failed after its answer", attrs...)
}

// explained adds the trace and the error of a request to the attributes of a line in
// the log, and returns its level.
func (rec *record) explained(attrs []slog.Attr, o outcome) ([]slog.Attr, slog.Level) {
	if rec.trace != "" {
		attrs = append(attrs, slog.String("trace_id", rec.trace))
	}
	level := slog.LevelInfo
	if o.err != nil {
		attrs = append(attrs, slog.String("code", o.code), slog.String("error", o.err.Error()))
		level = severity(o.errStatus)
		attrs = append(attrs, rec.places(o)...)
	}
	if p, ok := errors.AsType[*panicError](o.err); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
		level = slog.LevelError
	}
	return attrs, level
}

// Severity returns the log level for the error of a handler that is its answer.
func Severity(err error) slog.Level { return severity(problemOf(err, nil).Status) }

// severity returns the log level for a status: an error for a mistake of the
// service, a warning for a timeout or overload. A client's mistake is neither.
func severity(status int) slog.Level {
	switch {
	case status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout:
		return slog.LevelWarn
	case status >= 500:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// InFlight returns the number of requests in flight.
func (h *Host) InFlight() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.active)
}

// Active returns the requests in flight, the oldest first: "POST /orders
// (2.1s)".
func (h *Host) Active() []string {
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.active))
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b *record) int { return a.began.Compare(b.began) })
	var lines []string
	for _, rec := range all {
		lines = append(lines, fmt.Sprintf("%s %s (%v)", rec.method, rec.path, time.Since(rec.began).Round(time.Millisecond)))
	}
	return lines
}
