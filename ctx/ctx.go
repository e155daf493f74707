// Package megactx is what a handler is given: the request's context together
// with the locks, the logger and the app that belong to it, and net/http on
// both sides of it.
//
// Applications import it as package mega, where every name has an alias.
//
// # Errors as answers
//
// What a handler returns becomes an answer: problem+json (RFC 9457), or a page
// for whoever did not ask for JSON, with a code for machines.
//
//	400  lock.invalid_key, lock.invalid_option, request.bad_body, bus.bad_subject, bus.bad_header
//	403  request.cross_origin
//	404  request.not_found
//	405  request.method_not_allowed
//	409  lock.not_acquired (with Retry-After), lock.lost
//	413  request.too_large, bus.too_large
//	415  request.unsupported_media_type
//	422  request.invalid
//	500  lock.deadlock, lock.unsupported, mega.not_configured, internal
//	502  bus.no_responders (with Retry-After), bus.refused, bus.decode, and the code of a responder's error
//	503  lock.unavailable, lock.closed, bus.overloaded, bus.disconnected, bus.closed, bus.draining, mega.shutting_down
//	504  request.timeout, bus.timeout
//
// [Error] makes the application's own. An answer never says who holds a lock;
// the log does. A request whose client went away is logged as 499.
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

// Ctx is the context of one request, or of one piece of work outside a
// request. It is immutable, never reused, and safe for use by several
// goroutines, also after the handler has returned; what derives from it is a
// new Ctx. Whatever cannot be done where it is answers with an error: the zero
// Ctx with ErrNotConfigured or ErrNoRequest, one whose handler has returned
// with ErrHandlerReturned.
//
// It is a [context.Context] like any other: it may be handed to code that knows
// nothing of this package, and [From] finds it again on every descendant.
type Ctx struct {
	context.Context // the request's; never reassigned

	Lock Lock         // bound to this Ctx
	Bus  Bus          // likewise
	Log  *slog.Logger // with the app, the request's id, its trace and the route
	App  AppInfo

	host     *Host
	asked    asked     // what remains true when the request is over
	exchange *exchange // nil outside a request
}

// AppInfo says which app the work belongs to.
type AppInfo struct {
	Name    string
	Env     string   // dev, test, production or a name of the operator's own
	Locales []string // the first is for those who want none of them
	// Prefix is the path below which the app is mounted, "/admin", or "". Who
	// mounts it strips it from requests; [Ctx.URL] adds it.
	Prefix string
}

// asked is what a request asked for.
type asked struct {
	id     string
	query  string
	params []param
	locale string // "" to be found out
}

type param struct{ name, value string }

// Handler answers a request. An error that it returns becomes the answer; one
// that wrote nothing and returned nil answers 204. An error after a part of the
// answer has been written cuts the connection, so that nobody takes the part
// for the whole.
type Handler func(*Ctx) error

type ctxKey struct{}

// Deadline is the wrapped context's.
func (c *Ctx) Deadline() (time.Time, bool) { return c.std().Deadline() }

// Done is the wrapped context's.
func (c *Ctx) Done() <-chan struct{} { return c.std().Done() }

// Err is the wrapped context's.
func (c *Ctx) Err() error { return c.std().Err() }

// Value returns the Ctx itself for this package's key, and asks the wrapped
// context for every other but the router's own, whose value is used again for
// the next request.
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

// From returns the Ctx that ctx is or descends from. It is bound to ctx: to its
// deadline, its end and the lease on it.
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

// WithTimeout returns a copy of c that ends after d, and what ends it early.
func (c *Ctx) WithTimeout(d time.Duration) (*Ctx, context.CancelFunc) {
	std, cancel := context.WithTimeout(c, d)
	return c.WithContext(std), cancel
}

// Detach returns a copy of c for work that goes on when the request is over:
// it does not end with c, cannot answer, and holds none of c's locks. It keeps
// the values, the log, the trace, and what was asked: Param, Query and Locale.
//
// Nothing waits for such work; see [Ctx.Go].
func (c *Ctx) Detach() *Ctx {
	d := c.WithContext(lock.WithoutLease(context.WithoutCancel(c)))
	d.asked.locale = c.Locale()
	d.exchange = nil
	return d
}

// Lease returns the lease on which c runs: the innermost one, inside
// [Lock.With].
func (c *Ctx) Lease() (*lock.Lease, bool) { return lock.LeaseFrom(c) }

// Request returns the request, or nil outside one. Its context is this Ctx.
func (c *Ctx) Request() *http.Request {
	if c.exchange == nil {
		return nil
	}
	return c.exchange.request
}

// Writer returns the writer of the response. It answers ErrNoRequest outside a
// request, and ErrHandlerReturned when that is over.
func (c *Ctx) Writer() http.ResponseWriter {
	if c.exchange == nil {
		return nowhere{}
	}
	return c.exchange.writer
}

// Param returns the part of the path that the route calls name, unescaped.
func (c *Ctx) Param(name string) string {
	for _, p := range slices.Backward(c.asked.params) { // of a route in a route, the inner one
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
	values, _ := url.ParseQuery(c.asked.query) // what is malformed is left out
	return values.Get(name)
}

// URL returns the address of a path of this app: the path with the prefix
// below which the app is mounted. What is not an absolute path is returned as
// it is.
func (c *Ctx) URL(path string) string { return c.App.url(path) }

func (a AppInfo) url(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return path
	}
	return a.Prefix + path
}

// nowhere is the writer where there is nobody to answer.
type nowhere struct{}

func (nowhere) Header() http.Header       { return http.Header{} }
func (nowhere) Write([]byte) (int, error) { return 0, ErrNoRequest }
func (nowhere) WriteHeader(int)           {}

// Identify completes a lock's Holder with the app and the request that ask for
// it, for use as [lock.Config].Identify.
func Identify(ctx context.Context, h *lock.Holder) {
	if c, ok := ctx.Value(ctxKey{}).(*Ctx); ok {
		h.App, h.Request = c.App.Name, c.asked.id
	}
}
