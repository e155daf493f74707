package request

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/megaframework/mega/ctx/locale"
)

// Work is one request, or one piece of work outside a request, as a context
// carries it. A Ctx is made of the innermost Work of its context. A Work does not
// change; a copy with other values is another Work. The methods of a nil Work
// return zero values.
type Work struct {
	Host     *Host
	ID       string    // of the request that the work belongs to, or ""
	Exchange *Exchange // nil outside a request

	query  string
	params []param
	locale string      // "" until negotiated
	outer  *Work       // the work that this one continues, or nil
	attrs  []slog.Attr // of the log of the work; the log of outer does not have them
}

type param struct{ name, value string }

// App describes the app that the work belongs to.
type App struct {
	Name    string
	Env     string   // dev, test, production or a name that the operator chose
	Locales []string // the first is the default
	Prefix  string   // the path below which the app is mounted, "/admin", or ""

	LockReason, BusReason, LimitReason string // why the drivers were chosen, as in the boot report
}

// URL returns the address of a path of the app. It returns a text that is not an
// absolute path, or begins with "//", unchanged.
func (a App) URL(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return path
	}
	return a.Prefix + path
}

// Key is the key under which a context has its Work.
type Key struct{}

// RouteKey is the key under which a Ctx has the value of the router, which it hides
// from handlers.
type RouteKey struct{}

// carrier is a context with a Work.
type carrier struct {
	context.Context
	work *Work
}

func (c carrier) Value(key any) any {
	if key == (Key{}) {
		return c.work
	}
	return c.Context.Value(key)
}

// Of returns the innermost Work of ctx, or nil.
func Of(ctx context.Context) *Work {
	w, _ := ctx.Value(Key{}).(*Work)
	return w
}

// Context returns ctx with work of the app outside a request.
func (h *Host) Context(ctx context.Context) context.Context {
	return carrier{ctx, &Work{Host: h}}
}

// Continues reports whether w is a part of the work outer, whose Ctx is the
// origin of the Ctx for w.
func (w *Work) Continues(outer *Work) bool { return w.outer != nil && w.outer == outer }

// Log returns a logger with the attributes of the work.
func (w *Work) Log(log *slog.Logger) *slog.Logger {
	if len(w.attrs) == 0 {
		return log
	}
	return slog.New(log.Handler().WithAttrs(w.attrs))
}

// Param returns the value of a parameter of the route, unescaped, or "".
func (w *Work) Param(name string) string {
	if w == nil {
		return ""
	}
	for _, p := range w.params {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

// Query returns the first value of a query parameter, or "".
func (w *Work) Query(name string) string {
	if w == nil || w.query == "" {
		return ""
	}
	values, _ := url.ParseQuery(w.query) // malformed parameters are left out
	return values.Get(name)
}

// Detached returns the work without its request. It keeps the locale.
func (w *Work) Detached() *Work {
	if w == nil {
		return nil
	}
	d := *w
	d.locale, d.Exchange, d.outer = w.Locale(), nil, nil
	return &d
}

// In returns the work in the locale of the app that matches wanted best.
func (w *Work) In(wanted string) *Work {
	if w == nil {
		return nil
	}
	d := *w
	d.locale, d.outer = w.Host.Files().Locales.Match(wanted), nil
	return &d
}

// Locale returns the locale of the work, or "" if its app has no texts.
func (w *Work) Locale() string {
	switch {
	case w == nil:
		return ""
	case w.locale != "":
		return w.locale
	case w.Exchange != nil:
		return w.Exchange.record.locale(w.Host.Files().Locales)
	}
	return w.Host.Files().Locales.Match()
}

// locale matches the locale of a request, once.
func (rec *record) locale(l *locale.Texts) string {
	rec.localeOnce.Do(func() { rec.chosen = l.Match(wantedLocales(rec.request)...) })
	return rec.chosen
}

// Exchange is a request and its answer, as a handler sees them.
type Exchange struct {
	Request *http.Request // its context is the handler's Ctx
	Writer  *Response
	End     context.CancelCauseFunc // ends the handler's Ctx

	record   *record
	binding  sync.Mutex  // held while the body is decoded; guards the request's form
	returned atomic.Bool // the handler has returned
	speaks   atomic.Pointer[Work]
}

// Speak makes w decide the locale of the answer to an error: a middleware has called the
// next handler with it.
func (w *Work) Speak() {
	if w != nil && w.Exchange != nil {
		w.Exchange.speaks.Store(w)
	}
}

// Serve calls std with the request on ctx, the handler's Ctx or one that a wrapper
// has derived from it.
func (e *Exchange) Serve(ctx context.Context, std http.Handler) {
	if e.Request.Context() == ctx {
		std.ServeHTTP(e.Writer, e.Request)
		return
	}
	ServeCopy(std, e.Writer, e.Request.WithContext(ctx))
}

// ServeCopy calls std with r, a copy of another request, and removes the temporary
// files of an upload that std has read into r: net/http knows only the request that it
// has made.
func ServeCopy(std http.Handler, w http.ResponseWriter, r *http.Request) {
	known := r.MultipartForm
	defer func() {
		if form := r.MultipartForm; form != nil && form != known {
			_ = form.RemoveAll() // a file that cannot be removed stays in the temporary folder
		}
	}()
	std.ServeHTTP(w, r)
}

// Read calls fn to decode the body. It returns ErrHandlerReturned once the handler
// has returned.
func (e *Exchange) Read(fn func(*http.Request) error) error {
	e.binding.Lock()
	defer e.endRead()
	if e.returned.Load() {
		return ErrHandlerReturned
	}
	return fn(e.Request)
}

func (e *Exchange) endRead() {
	e.binding.Unlock()
	if e.returned.Load() {
		e.removeFiles()
	}
}

// discard ends the use of the body. It does not wait for a Bind in progress:
// the client may send the rest only after it has received its answer.
func (e *Exchange) discard() {
	e.returned.Store(true)
	e.removeFiles()
}

// removeFiles removes the temporary files of an upload. net/http does not, since
// the form belongs to a copy of its request. If Bind is in progress, Bind removes
// them when it returns.
func (e *Exchange) removeFiles() {
	if !e.binding.TryLock() {
		return
	}
	defer e.binding.Unlock()
	if form := e.Request.MultipartForm; form != nil {
		_ = form.RemoveAll() // a file that cannot be removed stays in the temporary folder
	}
}
