// Package megatest is the kit for an application's own tests. It boots the
// application with all its options, but without sockets, on locks that a test
// can hold, expire and break, and on a bus whose events it can expect.
//
//	func TestTwoBuyers(t *testing.T) {
//		kit := megatest.New(t, megatest.Config{}, shop.Module)
//		kit.Lock.Hold("product:42")
//		kit.Post("/products/42/buy", nil).Status(409).Code("lock.not_acquired")
//	}
//
// A Kit starts no goroutine outside the test and opens nothing outside the
// bubble of testing/synctest: inside [synctest.Test] an hour's lease expires in
// milliseconds. (The application's own constructors may open more.)
//
// The environment of the test does not reach the application. Its configuration
// consists of the defaults, the test defaults (env is "test"; lock.wait is
// 250ms, so that a busy lock does not delay a test), and the fields of Config.
package megatest

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// Config configures a Kit. The zero value is ready for use.
type Config struct {
	// Set is configuration, as after --set: "lock.wait=50ms". It may set
	// secrets, which a command line must not.
	Set []string
	// Environ is the environment of the application: "MEGA_DATABASE_URL=…".
	Environ []string
	// Dir is the folder where the search for mega.config files begins. It must
	// exist. Default: no file is read.
	Dir string
	// Only names the apps to run. Default: all.
	Only []string
}

// Kit is an application under test. Its methods are safe for use by several
// goroutines until the application stops: after the functions that the test has
// registered with Cleanup since New.
type Kit struct {
	Client        // of the first app
	Lock   *Locks // the locks of the application, seen from outside
	Bus    *Bus   // the bus of the application, likewise
	Log    *Log   // the application's log

	t       testing.TB
	running *boot.Running
	work    group.Group // requests of the test, and the context of the calls in Cleanup
	held    []string    // leases that outlived all work of the application
}

// New boots the application that options describe and stops it when the test
// ends. Options without an App form one app, called "main".
//
// The test fails if the application does not boot, if it does not stop in
// order, or if a lease is still held when all work of the application has ended. A
// request of another goroutine that is still under way is cancelled and waited for.
//
// The failures of a Kit belong to t, also in a subtest of t: a subtest with
// expectations opens a Kit of its own.
func New(t testing.TB, c Config, options ...mega.Option) *Kit {
	t.Helper()
	if !slices.ContainsFunc(options, boot.HasApp) {
		options = []mega.Option{mega.App("main", options...)}
	}
	if _, err := os.ReadDir(c.Dir); c.Dir != "" && err != nil {
		t.Fatalf("Config.Dir: %v", err)
	}
	k := new(Kit)
	k.work.Init()
	t = lasting{t, k.work.Context()}
	k.t, k.Log, k.Lock, k.Bus = t, newLog(t), newLocks(t), &Bus{t: t, driver: newRecording()}
	running, err := boot.Start(t.Context(), boot.Process{
		// The default of env follows from the name of the binary, which a debugger changes.
		Name: "test", Environ: append([]string{"MEGA_ENV=test"}, c.Environ...), Stderr: k.Log, Dir: c.Dir, Only: c.Only,
		Set:     append([]string{"log.format=json", "log.level=debug", "lock.wait=250ms"}, c.Set...),
		Offline: &boot.Offline{Lock: k.Lock.driver, Bus: k.Bus.driver, Left: func(held []string) { k.held = held }},
	}, options...)
	if err != nil {
		t.Fatalf("boot: %s", explained(err))
	}
	k.running, k.Bus.bus = running, running.Bus()
	k.Client = k.App(running.Report().Apps[0].App)
	t.Cleanup(k.stop)
	return k
}

// lasting is a test with a context also for the functions of its Cleanup, which may use
// the Kit: the test's own context ends before them.
type lasting struct {
	testing.TB
	rest context.Context // ends when the application stops
}

// Context returns the context of a call that begins now.
func (l lasting) Context() context.Context {
	if ctx := l.TB.Context(); ctx.Err() == nil {
		return ctx
	}
	return l.rest
}

// explained returns the error of a boot with the places, the stack and the remedies of
// its panel.
func explained(err error) string {
	f, ok := errors.AsType[*boot.Failure](err)
	if !ok {
		return err.Error()
	}
	lines := []string{f.Text + "  (" + f.Code + ")"}
	for _, l := range f.Lines() {
		lines = append(lines, "    "+l.Name+"  "+strings.ReplaceAll(l.Value, "\n", "\n        "))
	}
	for _, action := range f.Actions {
		lines = append(lines, "    • "+action)
	}
	return strings.Join(lines, "\n")
}

// stop stops the application. A leader keeps its lease until then.
func (k *Kit) stop() {
	k.t.Helper()
	if !k.work.Close(patience) {
		k.t.Errorf("a request has no answer %v after its context has ended", patience)
	}
	k.Lock.letGo()
	err := k.running.Stop()
	if len(k.held) > 0 {
		k.t.Errorf("still locked at the end of the test: %s", strings.Join(k.held, ", "))
	}
	if err != nil {
		k.t.Errorf("stop: %v", err)
	}
}

// App returns the client of the app of that name.
func (k *Kit) App(name string) Client {
	k.t.Helper()
	handler, ok := k.running.Handler(name)
	if !ok {
		var names []string
		for _, a := range k.running.Report().Apps {
			names = append(names, a.App)
		}
		k.t.Fatalf("the application runs no app %q, only %s", name, strings.Join(names, ", "))
	}
	return Client{t: k.t, handler: handler, log: k.Log, work: &k.work}
}

// Ctx returns a Ctx of the first app outside a request, for code that takes
// one. It ends with the test, or when the application stops if a function of Cleanup
// has called Ctx.
func (k *Kit) Ctx() *mega.Ctx {
	ctx, _ := k.running.Ctx(k.t.Context(), k.running.Report().Apps[0].App) // it exists: New used its handler
	return ctx
}

// Locks returns the Locker of the application, for code that takes one.
func (k *Kit) Locks() *lock.Locker { return k.running.Locks() }

// Limits returns the Limiter of the application, for code that takes one and to
// pause, reset and inspect limits.
func (k *Kit) Limits() *limit.Limiter { return k.running.Limits() }
