// Package megactx defines the context of a handler: the request's context
// together with its locks, its logger and its app, and net/http on both sides
// of it.
//
// Applications import package mega, which has an alias for each name that a
// handler needs. [Identify], [Inject] and [Extract] are for locks and buses that a
// program opens itself.
//
// # Errors as answers
//
// The error of a handler becomes an answer: problem+json (RFC 9457), or a page
// for a client that does not accept JSON, with a code for machines.
//
//	400  lock.invalid_key, lock.invalid_option, limit.invalid_key, limit.invalid_option, request.bad_body, bus.bad_subject, bus.bad_header
//	403  request.cross_origin, request.foreign_host
//	404  request.not_found
//	405  request.method_not_allowed
//	409  lock.not_acquired, lock.queue_full, lock.pool_withdrawn (with Retry-After), lock.lost, lock.stale
//	413  request.too_large, bus.too_large
//	415  request.unsupported_media_type
//	422  request.invalid
//	429  limit.limited, limit.queue_full (with Retry-After)
//	500  lock.deadlock, lock.unsupported, lock.pool_size, lock.no_lease, limit.unsupported, mega.not_configured, mega.unknown_view, internal
//	502  bus.no_responders (with Retry-After), bus.refused, bus.decode, and the code of a responder's error
//	503  lock.unavailable, lock.closed, limit.unavailable, limit.closed, bus.overloaded, bus.disconnected, bus.closed, bus.draining, mega.shutting_down
//	504  request.timeout, bus.timeout
//
// [Error] returns the application's own errors. An answer never names the
// holder of a lock; the log does. A request whose client disconnected is logged
// with the status 499.
//
// # How it works
//
// The front door of an app gives every request an id, a span, limits and a Ctx, and
// logs its end:
//
//	request ── front door ── router ── wrappers ── Handler
//	                                                  │
//	              answer: JSON, HTML, SSE, or error ──┘
//
// A message takes the same way without the router. Work that outlives its request
// is a task: [Ctx.Go]. At the shutdown the streams end first; then the program
// waits for requests and tasks.
//
// The framework keeps a request, its answer and the state of its app in
// internal/request, and the routes in internal/router. A Ctx is a standard context
// with that request and five views: Lock (lock.go), Limit (limit.go), Bus (bus.go),
// Log and App.
// [From] finds it on every descendant, and binds it to that descendant.
package megactx

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/megaframework/mega/internal/request"
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

	Lock  Lock         // bound to this Ctx
	Limit Limit        // likewise
	Bus   Bus          // likewise
	Log   *slog.Logger // with the app, the request's id, its trace and the route
	App   AppInfo

	work *request.Work // nil for the zero Ctx
}

// AppInfo describes the app that the work belongs to.
type AppInfo struct {
	Name    string
	Env     string   // dev, test, production or a name that the operator chose
	Locales []string // the first is the default
	// Prefix is the path below which the app is mounted, "/admin", or "". The
	// server strips it from requests; [Ctx.URL] adds it.
	Prefix string
	// LockReason, BusReason and LimitReason are the reasons for the choice of the
	// drivers, as the boot report states them; [Lock.Info], [Bus.Info] and
	// [Limit.Info] describe the drivers.
	LockReason, BusReason, LimitReason string
}

// Handler answers a request. An error that it returns becomes the answer. A
// handler that wrote nothing and returned nil answers 204. An error or a panic after
// a part of the answer has been written closes the connection, so that neither the
// client nor a proxy takes the part for the whole.
type Handler func(*Ctx) error

type ctxKey struct{}

// Deadline returns the wrapped context's deadline.
func (c *Ctx) Deadline() (time.Time, bool) { return c.std().Deadline() }

// Done returns the wrapped context's channel.
func (c *Ctx) Done() <-chan struct{} { return c.std().Done() }

// Err returns the wrapped context's error.
func (c *Ctx) Err() error { return c.std().Err() }

// Value returns the Ctx or its work for the keys of this framework, and nil for the key
// of the router, because a router inside a handler takes that value for its own. For
// other keys it returns the value of the wrapped context.
func (c *Ctx) Value(key any) any {
	switch key {
	case ctxKey{}:
		return c
	case request.Key{}:
		return c.work
	case chi.RouteCtxKey:
		return nil
	case request.RouteKey{}:
		if route := c.std().Value(chi.RouteCtxKey); route != nil {
			return route
		}
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
	c, _ := ctx.Value(ctxKey{}).(*Ctx)
	work := request.Of(ctx)
	switch {
	case c != nil && (work == c.work || work == nil):
		if c == ctx {
			return c, true
		}
		return c.WithContext(ctx), true
	case work == nil:
		return nil, false
	case c != nil && work.Continues(c.work):
		c = c.WithContext(ctx)
	default:
		c = newCtx(ctx, work.Host)
	}
	c.work, c.Log = work, work.Log(c.Log)
	return c, true
}

// newCtx returns the Ctx of an app whose work the framework has begun on std.
func newCtx(std context.Context, h *request.Host) *Ctx {
	c := &Ctx{Context: std, Log: h.Logger(), App: AppInfo(h.App)}
	c.Lock, c.Limit, c.Bus = Lock{h.Locker, c}, Limit{h.Limiter, c}, Bus{h.Bus, c}
	if len(c.App.Locales) == 0 {
		c.App.Locales = h.Files().Locales.Names()
	}
	return c
}

// exchange returns the request and its answer, or nil outside a request.
func (c *Ctx) exchange() *request.Exchange {
	if c.work == nil {
		return nil
	}
	return c.work.Exchange
}

// WithContext returns a copy of c whose context is std, which should descend
// from c.
func (c *Ctx) WithContext(std context.Context) *Ctx {
	bound := *c
	bound.Context = std
	bound.Lock.ctx, bound.Limit.ctx, bound.Bus.ctx = &bound, &bound, &bound
	return &bound
}

// WithTimeout returns a copy of c that ends after d, and a function that ends
// it early. It bounds a stream, too, if d is longer than the timeout of the
// request; [context.WithTimeout] on c does not.
func (c *Ctx) WithTimeout(d time.Duration) (*Ctx, context.CancelFunc) {
	std, cancel := context.WithTimeout(withoutDeadline{c}, d)
	return c.WithContext(earlierDeadline{std, c}), cancel
}

// withoutDeadline hides the deadline of a context from package context, which sets no
// timer for a later one: a stream removes the timeout of the request.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// earlierDeadline is a context that reports the deadline of outer, too, if that is
// earlier than its own. Its own timer ends it, or outer.
type earlierDeadline struct {
	context.Context
	outer *Ctx
}

func (e earlierDeadline) Deadline() (time.Time, bool) {
	own, ok := e.Context.Deadline()
	if outer, limited := e.outer.Deadline(); limited && outer.Before(own) {
		return outer, true
	}
	return own, ok
}

// Detach returns a copy of c for work that continues after the request: it does
// not end with c, cannot answer, and holds none of c's locks. It keeps the
// values, the log, the trace, and the request's Param, Query and Locale.
//
// Nothing waits for such work; see [Ctx.Go].
func (c *Ctx) Detach() *Ctx {
	d := c.WithContext(lock.WithoutLease(context.WithoutCancel(c)))
	d.work = c.work.Detached()
	return d
}

// Lease returns the lease on which c runs: the innermost lease, inside
// [Lock.With].
func (c *Ctx) Lease() (*lock.Lease, bool) { return lock.LeaseFrom(c) }

// Request returns the request, or nil outside one. Its context is the Ctx that the
// handler received, not one that was derived from it.
func (c *Ctx) Request() *http.Request {
	if x := c.exchange(); x != nil {
		return x.Request
	}
	return nil
}

// Writer returns the writer of the response. Its Write returns ErrNoRequest
// outside a request, and ErrHandlerReturned after the request.
func (c *Ctx) Writer() http.ResponseWriter {
	if x := c.exchange(); x != nil {
		return x.Writer
	}
	return nowhere{}
}

// Param returns the value of a parameter of the route, unescaped, or "".
func (c *Ctx) Param(name string) string { return c.work.Param(name) }

// Query returns the first value of a query parameter, or "".
func (c *Ctx) Query(name string) string { return c.work.Query(name) }

// URL returns the address of a path of this app: the path with the prefix below
// which the app is mounted. It returns a text that is not an absolute path, or
// begins with "//", unchanged.
func (c *Ctx) URL(path string) string { return request.App(c.App).URL(path) }

// nowhere is the writer of a Ctx without a request.
type nowhere struct{}

func (nowhere) Header() http.Header       { return http.Header{} }
func (nowhere) Write([]byte) (int, error) { return 0, ErrNoRequest }
func (nowhere) WriteHeader(int)           {}
