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
//	400  lock.invalid_key, lock.invalid_option, request.bad_body
//	403  request.cross_origin
//	404  request.not_found
//	405  request.method_not_allowed
//	409  lock.not_acquired (with Retry-After), lock.lost
//	413  request.too_large
//	415  request.unsupported_media_type
//	422  request.invalid
//	500  lock.deadlock, lock.unsupported, mega.not_configured, internal
//	503  lock.unavailable, lock.closed, mega.shutting_down
//	504  request.timeout
//
// [Error] makes the application's own. An answer never says who holds a lock;
// the log does. A request whose client went away is logged as 499.
package megactx

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/megaframework/mega/lock"
)

// Ctx is the context of one request, or of one piece of work outside a
// request. It is immutable, never reused, and safe for use by several
// goroutines; what derives from it is a new Ctx.
//
// It is a [context.Context] like any other: it may be handed to code that knows
// nothing of this package, and [From] finds it again on every descendant.
type Ctx struct {
	context.Context // the request's; never reassigned

	Lock Lock         // bound to this Ctx
	Log  *slog.Logger // with the app, the request's id and the route
	App  AppInfo

	exchange *exchange // nil outside a request
}

// AppInfo says which app the work belongs to.
type AppInfo struct {
	Name string
	Env  string // dev, test, production or a name of the operator's own
}

// Handler answers a request. An error that it returns becomes the answer; one
// that wrote nothing and returned nil answers 204.
type Handler func(*Ctx) error

type ctxKey struct{}

// Value returns the Ctx itself for this package's key, and asks the wrapped
// context for every other.
func (c *Ctx) Value(key any) any {
	if key == (ctxKey{}) {
		return c
	}
	return c.Context.Value(key)
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
	bound.Lock.ctx = &bound
	return &bound
}

// WithTimeout returns a copy of c that ends after d, and what ends it early.
func (c *Ctx) WithTimeout(d time.Duration) (*Ctx, context.CancelFunc) {
	std, cancel := context.WithTimeout(c, d)
	return c.WithContext(std), cancel
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

// Writer returns the writer of the response. Outside a request it returns one
// that answers ErrNoRequest.
func (c *Ctx) Writer() http.ResponseWriter {
	if c.exchange == nil {
		return nowhere{}
	}
	return c.exchange.writer
}

// nowhere is the writer where there is nobody to answer.
type nowhere struct{}

func (nowhere) Header() http.Header       { return http.Header{} }
func (nowhere) Write([]byte) (int, error) { return 0, ErrNoRequest }
func (nowhere) WriteHeader(int)           {}

// Identify completes a lock's Holder with the app and the request that ask for
// it, for use as [lock.Config].Identify.
func Identify(ctx context.Context, h *lock.Holder) {
	c, ok := ctx.Value(ctxKey{}).(*Ctx)
	if !ok {
		return
	}
	h.App = c.App.Name
	if c.exchange != nil {
		h.Request = c.exchange.record.id
	}
}
