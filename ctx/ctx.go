// Package megactx defines the context of a handler: the request's context
// together with its locks, its logger and its app, and net/http on both sides
// of it.
//
// Applications import package mega, which has an alias for each name that a
// handler needs. [Host] and what it takes, such as [Views], [Limits], [Inject] and
// [Identify], are for the code that serves an app: package boot does so, and a
// program with a net/http server of its own can; see the examples.
//
// # Errors as answers
//
// The error of a handler becomes an answer: problem+json (RFC 9457), or a page
// for a client that does not accept JSON, with a code for machines.
//
//	400  lock.invalid_key, lock.invalid_option, request.bad_body, bus.bad_subject, bus.bad_header
//	403  request.cross_origin
//	404  request.not_found
//	405  request.method_not_allowed
//	409  lock.not_acquired, lock.queue_full, lock.pool_withdrawn (with Retry-After), lock.lost, lock.stale
//	413  request.too_large, bus.too_large
//	415  request.unsupported_media_type
//	422  request.invalid
//	500  lock.deadlock, lock.unsupported, lock.pool_size, lock.no_lease, mega.not_configured, mega.unknown_view, internal
//	502  bus.no_responders (with Retry-After), bus.refused, bus.decode, and the code of a responder's error
//	503  lock.unavailable, lock.closed, bus.overloaded, bus.disconnected, bus.closed, bus.draining, mega.shutting_down
//	504  request.timeout, bus.timeout
//
// [Error] returns the application's own errors. An answer never names the
// holder of a lock; the log does. A request whose client disconnected is logged
// with the status 499.
//
// # How it works
//
// Package boot fills one [Host] for each app and builds a [Router] on it. The
// Host's front door gives every request an id, a span, limits and a Ctx, and
// logs its end:
//
//	request ── front door ── router ── wrappers ── Handler      serve.go, router.go, limits.go, trace.go
//	                                                  │
//	              answer: JSON, HTML, SSE, or error ──┘         answer.go, views.go, stream.go, problem.go
//
// A message takes the same way without the router: [Host.Handle] and
// [Host.Answer] make the handlers of an app's subscriptions (hop.go). Work that
// outlives its request is a task of the Host (tasks.go). At the shutdown the Host
// ends the streams first, then waits for requests and tasks.
//
// A Ctx is a standard context with four views: Lock (lock.go), Bus (bus.go), Log
// and App. [From] finds it on every descendant, and binds it to that descendant.
package megactx

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/megaframework/mega/lock"
)

// Ctx is the context of one request, or of one piece of work outside a request.
// It is immutable, never reused, and safe for use by several goroutines, also
// after the handler has returned. A context that is derived from a Ctx is a new
// Ctx. A method that is unavailable returns an error: ErrNotConfigured or
// ErrNoRequest on the zero Ctx, ErrHandlerReturned after the handler has
// returned.
//
// Ctx is a [context.Context]: it can be passed to code that does not know this
// package, and [From] finds it on every descendant.
type Ctx struct {
	context.Context // the request's; never reassigned

	Lock Lock         // bound to this Ctx
	Bus  Bus          // likewise
	Log  *slog.Logger // with the app, the request's id, its trace and the route
	App  AppInfo

	host     *Host
	asked    asked     // remains valid after the request
	exchange *exchange // nil outside a request
}

// AppInfo describes the app that the work belongs to.
type AppInfo struct {
	Name    string
	Env     string   // dev, test, production or a name that the operator chose
	Locales []string // the first is the default
	// Prefix is the path below which the app is mounted, "/admin", or "". The
	// server strips it from requests; [Ctx.URL] adds it.
	Prefix string
}

// asked is the data of a request that remains valid after it.
type asked struct {
	id     string
	query  string
	params []param
	locale string // "" until negotiated
}

type param struct{ name, value string }

// Handler answers a request. An error that it returns becomes the answer. A
// handler that wrote nothing and returned nil answers 204. An error after a
// part of the answer has been written closes the connection, so that the client
// does not take the part for the whole.
type Handler func(*Ctx) error

type ctxKey struct{}

// Deadline returns the wrapped context's deadline.
func (c *Ctx) Deadline() (time.Time, bool) { return c.std().Deadline() }

// Done returns the wrapped context's channel.
func (c *Ctx) Done() <-chan struct{} { return c.std().Done() }

// Err returns the wrapped context's error.
func (c *Ctx) Err() error { return c.std().Err() }

// Value returns the Ctx itself for the key of this package, and nil for the key
// of the router, because the router reuses its value for the next request. For
// other keys it returns the value of the wrapped context.
func (c *Ctx) Value(key any) any {
	switch key {
	case ctxKey{}:
		return c
	case chi.RouteCtxKey:
		return nil
	}
	return c.std().Value(key)
}

func (c *Ctx) std() context.Context {
	if c.Context == nil {
		return context.Background()
	}
	return c.Context
}

func (c *Ctx) logger() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

// From returns the innermost Ctx of ctx and its ancestors. The result is bound
// to ctx: to its deadline, its end and its lease.
func From(ctx context.Context) (*Ctx, bool) {
	c, ok := ctx.Value(ctxKey{}).(*Ctx)
	if !ok || c == ctx {
		return c, ok
	}
	return c.WithContext(ctx), true
}

// WithContext returns a copy of c whose context is std, which should descend
// from c.
func (c *Ctx) WithContext(std context.Context) *Ctx {
	bound := *c
	bound.Context = std
	bound.Lock.ctx, bound.Bus.ctx = &bound, &bound
	return &bound
}

// WithTimeout returns a copy of c that ends after d, and a function that ends
// it early.
func (c *Ctx) WithTimeout(d time.Duration) (*Ctx, context.CancelFunc) {
	std, cancel := context.WithTimeout(c, d)
	return c.WithContext(std), cancel
}

// Detach returns a copy of c for work that continues after the request: it does
// not end with c, cannot answer, and holds none of c's locks. It keeps the
// values, the log, the trace, and the request's Param, Query and Locale.
//
// Nothing waits for such work; see [Ctx.Go].
func (c *Ctx) Detach() *Ctx {
	d := c.WithContext(lock.WithoutLease(context.WithoutCancel(c)))
	d.asked.locale = c.Locale()
	d.exchange = nil
	return d
}

// Lease returns the lease on which c runs: the innermost lease, inside
// [Lock.With].
func (c *Ctx) Lease() (*lock.Lease, bool) { return lock.LeaseFrom(c) }

// Request returns the request, or nil outside one. Its context is this Ctx.
func (c *Ctx) Request() *http.Request {
	if c.exchange == nil {
		return nil
	}
	return c.exchange.request
}

// Writer returns the writer of the response. Its Write returns ErrNoRequest
// outside a request, and ErrHandlerReturned after the request.
func (c *Ctx) Writer() http.ResponseWriter {
	if c.exchange == nil {
		return nowhere{}
	}
	return c.exchange.writer
}

// Param returns the value of a parameter of the route, unescaped, or "".
func (c *Ctx) Param(name string) string {
	for _, p := range slices.Backward(c.asked.params) { // of nested routes, the inner one
		if p.name == name {
			return p.value
		}
	}
	return ""
}

// Query returns the first value of a query parameter, or "".
func (c *Ctx) Query(name string) string {
	if c.asked.query == "" {
		return ""
	}
	values, _ := url.ParseQuery(c.asked.query) // malformed parameters are left out
	return values.Get(name)
}

// URL returns the address of a path of this app: the path with the prefix below
// which the app is mounted. It returns any other text unchanged, if it is not
// an absolute path.
func (c *Ctx) URL(path string) string { return c.App.url(path) }

func (a AppInfo) url(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return path
	}
	return a.Prefix + path
}

// nowhere is the writer of a Ctx without a request.
type nowhere struct{}

func (nowhere) Header() http.Header       { return http.Header{} }
func (nowhere) Write([]byte) (int, error) { return 0, ErrNoRequest }
func (nowhere) WriteHeader(int)           {}

// Identify adds the app and the request of ctx to a lock's Holder, for use as
// [lock.Config].Identify.
func Identify(ctx context.Context, h *lock.Holder) {
	if c, ok := ctx.Value(ctxKey{}).(*Ctx); ok {
		h.App, h.Request = c.App.Name, c.asked.id
	}
}
