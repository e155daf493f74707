// Package mega contains everything that an application has to import. An app is
// a value, a program consists of its apps, and a handler is a function of a
// [Ctx]. The Ctx carries the request, the logger, the locks, the limits and the
// bus.
//
//	func main() { mega.Main(mega.App("main", mega.Routes(routes))) }
//
//	func routes(r mega.Router) { r.Post("/products/{id}/buy", buy) }
//
//	func buy(ctx *mega.Ctx) error {
//		err := ctx.Lock.With("product:"+ctx.Param("id"), func(ctx *mega.Ctx) error {
//			…
//		})
//		if err != nil {
//			return err
//		}
//		return ctx.JSON(http.StatusOK, left)
//	}
//
// The configuration selects the driver of the locks at boot, and the boot
// report names it: redis if a cache is configured, otherwise cluster if the
// program has several workers or a cluster socket, otherwise memory, which is
// limited to the process. Each can be required with lock.driver.
//
// The types of a handler are declared in package ctx, and those of a section in
// package config: `go doc github.com/megaframework/mega/ctx Ctx` shows their
// fields and methods. Options are values: any function of this package that
// returns one may be called before Main, from any goroutine, and does nothing but
// describe the program. A wrong option stops the boot with its file and line.
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
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock/driver"
)

type (
	// Ctx is the context of one request, or of other work of an app. It is
	// immutable, and safe for use by several goroutines.
	Ctx = megactx.Ctx
	// Bus is the view of the message bus on a Ctx.
	Bus = megactx.Bus
	// Lock is the view of locks on a Ctx.
	Lock = megactx.Lock
	// Limit is the view of limits on a Ctx.
	Limit = megactx.Limit
	// Handler responds to a request. An error that it returns becomes the
	// response.
	Handler = megactx.Handler
	// Stream is a response of server-sent events: see Ctx.SSE.
	Stream = megactx.Stream
	// Router collects an app's routes.
	Router = megactx.Router
	// AppInfo describes the app that a Ctx belongs to.
	AppInfo = megactx.AppInfo
	// BindOption changes how Ctx.Bind reads a body.
	BindOption = megactx.BindOption
	// FieldErrors contains the error messages of an input by field.
	FieldErrors = megactx.FieldErrors
	// Problem is the error response that a client receives: RFC 9457.
	Problem = megactx.Problem
	// Option is one part of a program.
	Option = plan.Option
	// SubscribeOption changes a declared subscription: a bus.SubOption, or OnGap.
	SubscribeOption = plan.SubscribeOption
	// HookOption changes how a named function runs.
	HookOption = plan.HookOption
	// Scope is the range in which locks exclude and messages are delivered.
	Scope = driver.Scope
	// Caches contains the clients of all configured caches by alias.
	Caches = plan.Caches
	// URL is a URL in a section of the configuration. Its password is masked in
	// all output.
	URL = config.URL
	// Secret is a string in a section of the configuration. It is masked in all
	// output.
	Secret = config.Secret
	// Size is a number of bytes in a section of the configuration: 1MiB.
	Size = config.Size
	// Addr is a listen address in a section of the configuration.
	Addr = config.Addr
)

// The scopes for RequireScope.
const (
	Node  = driver.Node  // the processes of one machine
	Fleet = driver.Fleet // all processes that share the driver's server
)

// The errors of a Ctx. Compare with errors.Is.
var (
	// ErrNotConfigured is the error of a Ctx that was made without the service
	// that the caller uses.
	ErrNotConfigured = megactx.ErrNotConfigured
	// ErrNoRequest is the error of a Ctx that has no request to read or to
	// respond to.
	ErrNoRequest = megactx.ErrNoRequest
	// ErrAnswered is the error of a response to a request that has a response
	// already.
	ErrAnswered = megactx.ErrAnswered
	// ErrHandlerReturned is the cause with which the context of a request or a message
	// ends when its handler returns. The writers of the request return the same error
	// from then on.
	ErrHandlerReturned = megactx.ErrHandlerReturned
	// ErrShuttingDown is the cause with which the contexts of streams end at the
	// start of a shutdown. The contexts of Run, Lead and Every end with it after the last
	// request, and the contexts of requests and tasks if they do not finish within the
	// timeout of the shutdown.
	ErrShuttingDown = megactx.ErrShuttingDown
)

// Error returns an error that becomes the response of a request, with this
// status, dotted code and detail, all of which the client receives. The status is
// 400 to 599; another one is answered 500. An error that wraps it with %w is
// answered in the same way, and its whole text is in the log.
func Error(status int, code, detail string) error { return megactx.Error(status, code, detail) }

// Lenient makes Ctx.Bind accept JSON with unknown fields, which it ignores, with
// duplicate members, of which the last one counts, and with bytes that are not
// UTF-8, each of which becomes U+FFFD.
func Lenient() BindOption { return megactx.Lenient() }

// From returns the Ctx that ctx is or descends from, bound to ctx. It reports
// whether there is one.
func From(ctx context.Context) (*Ctx, bool) { return megactx.From(ctx) }

// WrapHandler converts an http.Handler to a Handler.
func WrapHandler(h http.Handler) Handler { return megactx.WrapHandler(h) }

// CheckLocales returns all errors in catalogues of texts: a key that is missing
// in one locale, plural forms that are missing or unknown in a language, and
// Korean particles that fit only some values. The boot runs the same checks.
func CheckLocales(catalogs ...fs.FS) error { return locale.Check(catalogs...) }

// Josa returns the particle of pair that follows word in Korean: "을" of "을/를"
// after "물".
func Josa(word, pair string) string { return locale.Josa(word, pair) }

// Main runs the program that options describe until a signal ends it, and exits
// the process: it does not return, and deferred calls of its caller do not run.
// It reads the arguments of the command line, which may name another verb than
// serve. All apps share the options that are outside an App.
//
// The exit status is 0 after a clean shutdown, 1 if the shutdown interrupted
// work, 64 for a wrong command line, 69 if a required service is unavailable,
// 70 for an error in the program, 75 if a start hook exceeded its budget, and
// 78 for an error in the configuration.
func Main(options ...Option) {
	environ := boot.OwnProcess()
	dir, err := os.Getwd()
	if err != nil {
		dir = "" // the folder was removed: there are no files to search
	}
	os.Exit(cli.Run(cli.Process{Args: os.Args, Environ: environ, Dir: dir, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, options...))
}

// App adds an app to the program. Its name is a lower-case word, and its
// options are private to it.
func App(name string, options ...Option) Option { return plan.App(name, options...) }

// Module combines several options into one.
func Module(options ...Option) Option { return plan.Module(options...) }

// Provide adds constructors. A constructor is a function that takes provided
// values and returns one or more values, the last of which may be an error. The
// framework provides *slog.Logger, *lock.Locker, *limit.Limiter, *bus.Bus and
// prometheus.Registerer (of github.com/prometheus/client_golang/prometheus),
// inside an app also AppInfo. With a configured cache it provides Caches and
// redis.UniversalClient (of github.com/redis/go-redis/v9). That client is the
// only cache, else the one with the alias main, else the one that lock.cache
// names.
//
// A constructor runs only if its values are needed. A value with a method
// Close(context.Context) error, Close() error or Close() is closed when the
// program ends, in reverse order.
func Provide(constructors ...any) Option { return plan.Provide(constructors...) }

// Config adds the struct T to the configuration as a section, and provides it.
// In the section "database", a field with the tag key:"url" is the key
// database.url and the variable MEGA_DATABASE_URL. Package config lists the tags
// and the types of fields. All values are checked before anything starts.
func Config[T any](section string) Option { return plan.Section(reflect.TypeFor[T](), section) }

// ConfigFrom adds a layer to the configuration, between the files and the
// environment. The layer comes from any provider of github.com/knadh/koanf: a
// file, a key-value store, a service. The parser decodes the provider's bytes;
// it is nil for a provider that returns a map.
//
// The keys of the layer are checked as strictly as the keys of a file. The name
// is its origin in errors and in `config explain`. The layer is read at the
// start, within boot.wait_for or at least a second, and again at SIGHUP. Inside an App it sets the
// keys of that app.
func ConfigFrom(name string, provider config.Provider, parser config.Parser) Option {
	return plan.ConfigFrom(name, provider, parser)
}

// Routes adds the app's routes. The function takes a Router and provided
// values. It runs once, at the boot; a panic of the Router, for example for two
// routes with one pattern, stops the boot.
func Routes(fn any) Option { return plan.Routes(fn) }

// Use wraps every handler of the app with fn, which takes provided values and a
// Handler, and returns the wrapped Handler. With http.Handler in place of
// Handler, fn wraps everything that the app serves. The first Use is the
// outermost wrapper; those outside an App are around those of the app.
func Use(fn any) Option { return plan.Use(fn) }

// Subscribe calls fn with every event of topic, which may be a pattern. The
// function takes provided values, a *Ctx of its app, and a T or the *bus.Msg
// itself. The subscription starts before the program serves, and its queued
// messages are handled before the program ends. Two processes of a program both
// receive every event, unless the subscription has a bus.Group. A subscription
// that its bus.OnFull policy or the backend ends is made again with back-off,
// and starts with a gap.
//
//	mega.Subscribe(Sold, (*Ledger).OnSold) // func(*Ledger, *mega.Ctx, Sale) error
func Subscribe[T any](topic bus.Topic[T], fn any, options ...SubscribeOption) Option {
	return plan.Subscribe(string(topic), reflect.TypeFor[T](), fn, options...)
}

// OnGap calls fn where messages of the subscription were lost, as [bus.OnGap]
// does. The function takes provided values, a *Ctx of its app and the number of
// lost messages, which is -1 if unknown. If fn fetches a copy of some data and
// the subscription's function keeps it up to date, the copy stays correct.
//
//	mega.Subscribe(Priced, (*Prices).Apply, mega.OnGap((*Prices).Fetch)) // func(*Prices, *mega.Ctx, int) error
func OnGap(fn any) SubscribeOption { return plan.OnGap(fn) }

// Respond calls fn to respond to the requests whose subject matches pattern.
// The function takes provided values, a *Ctx of its app and the payload of the
// request, and returns the response and an error. If several processes respond,
// one of them handles each request.
//
//	mega.Respond("stock.get", (*Shop).Stock) // func(*Shop, *mega.Ctx, StockOf) (Stock, error)
func Respond(pattern string, fn any, options ...bus.SubOption) Option {
	return plan.Respond(pattern, fn, options...)
}

// Publish sends v as an event of topic to all subscribers. It does not wait for
// handlers; a nil error means that the event is accepted. The event carries the
// trace and the request id of ctx. If ctx has ended, nothing is published. The
// errors are those of [bus.Bus.Publish].
func Publish[T any](ctx *Ctx, topic bus.Topic[T], v T, options ...bus.PubOption) error {
	return megactx.Publish(ctx, topic, v, options...)
}

// Call sends req as a request to subject and returns the response. It waits until
// ctx ends; without a deadline on ctx its timeout is 5 seconds. A handler's ctx
// has the deadline of its request, apps.<name>.timeout: use ctx.WithTimeout for a
// shorter one. It returns bus.ErrNoResponders at once if nobody responds, a
// *bus.RemoteError if the responder failed, and the other errors of
// [bus.Bus.Request].
func Call[Req, Resp any](ctx *Ctx, subject string, req Req, options ...bus.PubOption) (Resp, error) {
	return megactx.Call[Req, Resp](ctx, subject, req, options...)
}

// OnPrimary runs fn at each start of the program, in one of its workers, before
// any OnStart and before the program serves. Use it for migrations. It takes
// the same parameters as OnStart. Its budget is 2 minutes unless options
// contain a Budget.
//
// If the scope of locks is the fleet, fn runs in one process at a time, under the
// lock mega:primary:<namespace>:<program>:<name>. Otherwise programs that are
// started separately may run it at the same time, on one node too. The function
// has to be idempotent: every start and every generation of workers runs it, and
// it runs again if a process dies in it. The budget does not include the wait for
// other processes. If the lock is lost, fn's context ends and the boot fails.
func OnPrimary(name string, fn any, options ...HookOption) Option {
	return plan.OnPrimary(name, fn, options...)
}

// OnStart runs fn before the program serves. The function takes provided values
// and a context or a *Ctx. Its error stops the boot, and everything that has
// started is stopped again. Its budget is 15 seconds unless options contain a
// Budget.
func OnStart(name string, fn any, options ...HookOption) Option {
	return plan.OnStart(name, fn, options...)
}

// OnStop runs fn after the last request, task and message, while locks and the bus
// still work. The Subscribe and Respond of this process have ended by then: other
// processes receive what fn publishes and requests. It takes the same parameters as
// OnStart. Its error is logged, and the exit status is then 1. Its budget is 15 seconds
// unless options contain a Budget, and at most what is left of shutdown.timeout. OnStop
// functions run in reverse order, and each runs if everything before it in the options
// has started.
func OnStop(name string, fn any, options ...HookOption) Option {
	return plan.OnStop(name, fn, options...)
}

// Run runs fn in the background, in every process of the program, from the start
// of service. It takes the same parameters as OnStart. Its context ends after the
// last request has ended; fn then has 15 seconds to return unless options contain
// a Budget, and an error other than the context's is logged. An error or a panic of
// fn before then ends the process. When fn has returned nil, nothing happens, except that a program
// ends which has nothing else to do: no listener, subscription, responder or
// Every.
func Run(name string, fn any, options ...HookOption) Option { return plan.Run(name, fn, options...) }

// Lead runs fn in the background, as Run does, in one process at a time of those
// that share the locks: see [lock.Locker.Lead]. If the process ends or loses its
// lock, another one runs fn; a process that shuts down hands over as soon as fn
// has returned. An error or a panic of fn is logged, and fn is run again, in this
// or another process. The cause of its context is lock.ErrLost after the loss of the
// lock, and ErrShuttingDown at the end of the program. When fn returns nil
// under a live lock, this process no longer campaigns.
//
// The lock is mega:lead:<namespace>:<program>:<app>:<name>, so an app has one
// Lead of a name. Its fence, from ctx.Lease, is the number of the term.
func Lead(name string, fn any, options ...HookOption) Option { return plan.Lead(name, fn, options...) }

// Every runs fn in the background once per tick in all processes that share the
// locks: see [lock.Locker.Every]. Ticks have the length every and count from 1970
// UTC on the clock of the lock's backend, so that the clocks of the processes do
// not matter: every 24 hours is once a day, at midnight UTC. The length is 10 ms
// to 366 days, in whole microseconds. A tick that nobody
// has used yet is used as soon as a process starts. While fn runs for longer than
// a tick, the ticks are skipped. An error or a panic of fn is logged.
//
// The lock is mega:every:<namespace>:<program>:<app>:<name>, so an app has one
// Every of a name; mega lock show shows the last run. The engine redislock does not support it.
func Every(name string, every time.Duration, fn any, options ...HookOption) Option {
	return plan.Every(name, every, fn, options...)
}

// Command adds the verb name to the command line of the program: for an import,
// a report, a repair. The verb runs fn and ends. fn takes provided values, a
// context or a *Ctx, and, if it wants them, the arguments of the command line as
// a []string. Its error is printed.
//
//	mega.Command("import", (*Store).Import) // func(*Store, *mega.Ctx, []string) error
//
// A command runs in a process of its own, with the configuration, the locks and
// the bus of the program, and with the values that fn takes. Nothing else runs:
// no listener, no OnStart, OnPrimary, Run or subscription. A signal ends the
// context. The exit status is 0, or 1 after an error, or the ExitCode() of the
// error if it has one.
func Command(name string, fn any) Option { return plan.Command(name, fn) }

// Ready adds fn as a check of the readiness for traffic: /readyz on the address
// of ops.addr. It takes the same parameters as OnStart. If fn returns an error,
// panics or exceeds its budget, which is 2 seconds unless options contain a
// Budget, the program is not ready, and the answer has the text of the error.
// Probes at the same time share one call of fn.
func Ready(name string, fn any, options ...HookOption) Option {
	return plan.Ready(name, fn, options...)
}

// AtLeastOnce returns an option of Every: when the process of a run has crashed, has
// lost its lock, or has shut down and the function has returned an error, another
// process runs the function again in the same tick. Without it each of these spends the
// tick. See [lock.AtLeastOnce].
func AtLeastOnce() HookOption { return plan.AtLeastOnce() }

// Budget returns an option that limits the time of a named function to d, which
// is above 0. When the time is over, the function's context ends, and the program
// reports the function by name. For Run, Lead and Every it limits the time that
// the function has to return at the end of the program.
func Budget(d time.Duration) HookOption { return plan.Budget(d) }

// RequireScope fails the boot if the scope of locks is smaller than s. For an
// app that subscribes or responds, it also fails the boot if the scope of
// messages is smaller.
func RequireScope(s Scope) Option { return plan.RequireScope(s) }

// Views adds pages for Ctx.HTML: html/template files that end in .html. Files
// in the folder "shared" belong to all pages. If one of them defines the
// template "layout", it is rendered around each page. The page "error" shows a
// Problem.
func Views(files fs.FS) Option { return plan.Views(files) }

// Locales adds the app's texts for Ctx.T, in one or more languages. The files
// have the format of go-i18n, and their names are their locales, such as
// ko.yaml and en.yaml. The key apps.<name>.locales selects the locales that the
// app offers; the default is all.
func Locales(files fs.FS) Option { return plan.Locales(files) }

// Public adds static files. The app serves each at its path if no route
// matches.
func Public(files fs.FS) Option { return plan.Public(files) }
