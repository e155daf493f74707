// Package mega is all that an application has to import: an app is a value,
// a program is its apps, and a handler is a function of a [Ctx], which carries
// the request, the logger and the locks.
//
//	func main() { mega.Main(mega.App("main", mega.Routes(routes))) }
//
//	func routes(r mega.Router) { r.Post("/products/{id}/buy", buy) }
//
//	func buy(ctx *mega.Ctx) error {
//		return ctx.Lock.With("product:"+ctx.Param("id"), func(ctx *mega.Ctx) error {
//			…
//			return ctx.JSON(http.StatusOK, left)
//		})
//	}
//
// Which driver keeps the locks is chosen at boot by the configuration, and
// told: redis if a cache is configured, else that of the node for a program with
// several workers, else the memory of the process.
package mega

import (
	"context"
	"io/fs"
	"net/http"
	"os"
	"reflect"
	"time"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/internal/cli"
)

type (
	// Ctx is the context of one request.
	Ctx = megactx.Ctx
	// Bus is the view of the message bus on a Ctx.
	Bus = megactx.Bus
	// Lock is the view of locks on a Ctx.
	Lock = megactx.Lock
	// Handler answers a request; an error that it returns becomes the answer.
	Handler = megactx.Handler
	// Stream is an answer of server-sent events: see Ctx.SSE.
	Stream = megactx.Stream
	// Router collects an app's routes.
	Router = megactx.Router
	// AppInfo says which app the work belongs to.
	AppInfo = megactx.AppInfo
	// FieldErrors says what is wrong with which field of an input.
	FieldErrors = megactx.FieldErrors
	// Problem is an error as a client sees it: RFC 9457.
	Problem = megactx.Problem
	// Option is a piece of a program.
	Option = boot.Option
	// SubscribeOption changes a declared subscription: a bus.SubOption, or OnGap.
	SubscribeOption = boot.SubscribeOption
	// HookOption changes how a named function runs.
	HookOption = boot.HookOption
	// Scope is how far locks exclude, and messages reach.
	Scope = boot.Scope
	// Caches are the clients of all caches that are configured, by their
	// aliases.
	Caches = boot.Caches
	// URL is an address in a section of the configuration. A password in it is
	// masked wherever it is printed.
	URL = config.URL
	// Secret is a text in a section of the configuration that masks itself.
	Secret = config.Secret
	// Size is a number of bytes in a section of the configuration: 1MiB.
	Size = config.Size
	// Addr is an address to listen on in a section of the configuration.
	Addr = config.Addr
)

// The scopes for RequireScope.
const (
	Node  = boot.Node  // the processes of one machine
	Fleet = boot.Fleet // all processes that share the driver's server
)

var (
	// ErrNotConfigured says that a Ctx was made without what is asked of it.
	ErrNotConfigured = megactx.ErrNotConfigured
	// ErrNoRequest says that there is no request to answer or to read.
	ErrNoRequest = megactx.ErrNoRequest
	// ErrAnswered says that an answer has begun already.
	ErrAnswered = megactx.ErrAnswered
	// ErrHandlerReturned is why a request's context has ended once its handler
	// has returned, and what its writers answer from then on.
	ErrHandlerReturned = megactx.ErrHandlerReturned
	// ErrShuttingDown is why the contexts of requests, streams and tasks end
	// that have not finished within the shutdown's time.
	ErrShuttingDown = megactx.ErrShuttingDown
)

// Error returns an error that answers a request with this status, dotted code
// and detail.
func Error(status int, code, detail string) error { return megactx.Error(status, code, detail) }

// From returns the Ctx that ctx is or descends from, bound to ctx.
func From(ctx context.Context) (*Ctx, bool) { return megactx.From(ctx) }

// WrapHandler makes an http.Handler a Handler.
func WrapHandler(h http.Handler) Handler { return megactx.WrapHandler(h) }

// CheckLocales returns all errors of catalogues of texts: a key that one locale
// lacks, plural forms that are missing or unknown in a language, and Korean
// particles that fit only some values. The boot runs the same checks.
func CheckLocales(catalogs ...fs.FS) error { return locale.Check(catalogs...) }

// Josa returns the particle of pair that follows word in Korean: "을" of
// "을/를" behind "물".
func Josa(word, pair string) string { return locale.Josa(word, pair) }

// Main runs the program that options describe, until a signal ends it, and
// exits. What is given to it outside an App is shared by all apps.
//
// It exits with 0; with 1 if something had to be cut off, 64 for a wrong
// command line, 69 if something that was asked for cannot be had, 70 if the
// program is wrong, 75 if a start hook took too long, and 78 if the
// configuration is wrong.
func Main(options ...Option) {
	environ := boot.OwnProcess()
	dir, err := os.Getwd()
	if err != nil {
		dir = "" // a folder that was removed: there is nothing to search
	}
	os.Exit(cli.Run(cli.Process{Args: os.Args, Environ: environ, Dir: dir, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, options...))
}

// App is an app of the program. Its name is a lower-case word; what it is
// given is private to it.
func App(name string, options ...Option) Option { return boot.App(name, options...) }

// Module is several options as one.
func Module(options ...Option) Option { return boot.Module(options...) }

// Provide adds constructors: functions that take provided values and return
// one or more values, the last of which may be an error. Provided from the
// start are *slog.Logger, *lock.Locker, *bus.Bus, prometheus.Registerer (of
// github.com/prometheus/client_golang/prometheus), inside an app AppInfo, and
// where caches are configured redis.UniversalClient (of
// github.com/redis/go-redis/v9: the only cache, else the one called main, else
// the one of lock.cache) and Caches.
//
// A constructor whose values nobody needs is not called. A value with a method
// Close(context.Context) error, Close() error or Close() is closed when the
// program ends, in reverse order.
func Provide(constructors ...any) Option { return boot.Provide(constructors...) }

// Config adds the struct T to the configuration as a section, and provides it.
// A field with the tag key:"url" in a section called "database" is
// database.url, and MEGA_DATABASE_URL; its tags default, enum, min, max and
// required are checked before anything starts.
func Config[T any](section string) Option { return boot.Section(reflect.TypeFor[T](), section) }

// ConfigFrom adds a layer to the configuration, between the files and the
// environment, from any provider of github.com/knadh/koanf: a file, a
// key-value store, a service. A parser decodes what the provider returns; it is
// nil for a provider that returns a map.
//
// The keys of the layer are checked as strictly as those of a file, and name is
// its origin in errors and in `config explain`. It is read within boot.wait_for
// at the start, and again at SIGHUP. Inside an App it sets the keys of that app.
func ConfigFrom(name string, provider config.Provider, parser config.Parser) Option {
	return boot.ConfigFrom(name, provider, parser)
}

// Routes has fn add the app's routes: it takes a Router and provided values.
func Routes(fn any) Option { return boot.Routes(fn) }

// Use has fn wrap every handler of the app: it takes provided values and a
// Handler, and returns the wrapped one. With http.Handler in the place of
// Handler it wraps everything that the app serves.
func Use(fn any) Option { return boot.Use(fn) }

// Subscribe has fn called with every event of topic, which may be a pattern: fn
// takes provided values, a *Ctx of its app, and a T or the *bus.Msg itself. The
// subscription stands before anything serves, and its messages are handled
// before the program ends. Two processes of a program both get every event,
// unless the subscription has a bus.Group. One that ends by its bus.OnFull
// policy, or by a refusal of the backend, is made again with back-off, and
// starts with a gap.
//
//	mega.Subscribe(Sold, (*Ledger).OnSold) // func(*Ledger, *mega.Ctx, Sale) error
func Subscribe[T any](topic bus.Topic[T], fn any, options ...SubscribeOption) Option {
	return boot.Subscribe(string(topic), reflect.TypeFor[T](), fn, options...)
}

// OnGap has fn called where messages of the subscription were lost, as
// [bus.OnGap] does: fn takes provided values, a *Ctx of its app and the number of
// lost messages, -1 if it is unknown. A copy that fn fetches, and the
// subscription's function keeps up to date, is right.
//
//	mega.Subscribe(Priced, (*Prices).Apply, mega.OnGap((*Prices).Fetch)) // func(*Prices, *mega.Ctx, int) error
func OnGap(fn any) SubscribeOption { return boot.OnGap(fn) }

// Respond has fn answer the requests whose subject matches pattern: fn takes
// provided values, a *Ctx of its app and what the request carries, and returns
// the answer and an error. Of the processes that respond, one answers each.
//
//	mega.Respond("stock.get", (*Shop).Stock) // func(*Shop, *mega.Ctx, StockOf) (Stock, error)
func Respond(pattern string, fn any, options ...bus.SubOption) Option {
	return boot.Respond(pattern, fn, options...)
}

// Publish sends v as an event of its topic to all who have subscribed. It
// returns once the event is on its way. Trace and request id travel with it.
func Publish[T any](ctx *Ctx, topic bus.Topic[T], v T, options ...bus.PubOption) error {
	return megactx.Publish(ctx, topic, v, options...)
}

// Call requests subject with req and returns the answer of who responds to it.
// Without a deadline on ctx it waits for 5 seconds.
func Call[Req, Resp any](ctx *Ctx, subject string, req Req, options ...bus.PubOption) (Resp, error) {
	return megactx.Call[Req, Resp](ctx, subject, req, options...)
}

// OnPrimary runs fn at the start of each node: in one of its processes, before
// any OnStart and before anything serves. It is for migrations. It takes what
// OnStart takes, and has 2 minutes unless it is given another Budget.
//
// Where locks reach the fleet, fn runs on one node at a time, under the lock
// mega:primary:<namespace>:<program>:<name>; otherwise nodes run it side by side.
// fn has to be idempotent: every node and every generation of workers runs it, and
// so does the successor of a process that died in it. The wait for other nodes
// does not count in the budget. If the lock is lost, fn's context ends and the
// boot fails.
func OnPrimary(name string, fn any, options ...HookOption) Option {
	return boot.OnPrimary(name, fn, options...)
}

// OnStart has fn run before the program serves. It takes provided values and a
// context or a *Ctx; its error stops the boot, and everything that had started
// is ended again. It has 15 seconds unless it is given another Budget.
func OnStart(name string, fn any, options ...HookOption) Option {
	return boot.OnStart(name, fn, options...)
}

// OnStop has fn run when the last request is over, while locks still work.
func OnStop(name string, fn any, options ...HookOption) Option {
	return boot.OnStop(name, fn, options...)
}

// Run has fn run in the background until it returns, or until its context ends
// because the last request is over. An error that it returns before then ends
// the program.
func Run(name string, fn any, options ...HookOption) Option { return boot.Run(name, fn, options...) }

// Ready has fn decide, with an error, whether the program is ready for traffic:
// /readyz on the address of ops.addr.
func Ready(name string, fn any, options ...HookOption) Option {
	return boot.Ready(name, fn, options...)
}

// Budget is what a named function may take. One that takes longer is told to
// end, and named.
func Budget(d time.Duration) HookOption { return boot.Budget(d) }

// RequireScope refuses to boot where locks do not reach as far as the app needs
// them to, and for an app that subscribes or responds, where messages do not.
func RequireScope(s Scope) Option { return boot.RequireScope(s) }

// Views adds pages for Ctx.HTML: html/template files that end in .html. Those
// in the folder "shared" belong to all pages, and if one of them defines the
// template "layout", it is rendered around each page. The page "error" shows a
// Problem.
func Views(files fs.FS) Option { return boot.Views(files) }

// Locales adds the app's texts in the languages that it speaks, for Ctx.T: files
// as go-i18n has them, called by their locales, such as ko.yaml and en.yaml.
// Which of them are offered is apps.<name>.locales; default all.
func Locales(files fs.FS) Option { return boot.Locales(files) }

// Public adds files that the app serves at their paths, wherever it has no
// route.
func Public(files fs.FS) Option { return boot.Public(files) }
