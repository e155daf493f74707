package boot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/testkit/output"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

func TestMain(m *testing.M) {
	boot.OwnProcess()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(shopDir)
		os.Exit(status)
	}))
}

// process is one that listens on free ports.
func process(environ ...string) (boot.Process, *output.Buffer) {
	stderr := &output.Buffer{}
	return boot.Process{
		Name: "shop", Stderr: stderr,
		Environ: append([]string{"MEGA_APPS_MAIN_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0"}, environ...),
	}, stderr
}

// start boots a program that the test ends.
func start(t *testing.T, p boot.Process, options ...mega.Option) *boot.Running {
	t.Helper()
	r, err := boot.Start(t.Context(), p, options...)
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Stderr)
	}
	t.Cleanup(func() { _ = r.Stop() }) // a second Stop has nothing to do
	return r
}

// fail boots a program that must not start.
func fail(t *testing.T, p boot.Process, options ...mega.Option) *boot.Failure {
	t.Helper()
	r, err := boot.Start(t.Context(), p, options...)
	if err == nil {
		_ = r.Stop()
		t.Fatal("it started")
	}
	var f *boot.Failure
	if !errors.As(err, &f) {
		t.Fatalf("%T is no Failure: %v", err, err)
	}
	return f
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, r)
}

// send sends a request on a connection of its own. It follows the redirection of a
// page, not the one of a form.
func send(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error {
		if r.Method != http.MethodGet {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	w, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(body)
}

func hello(r megactx.Router) {
	r.Get("/", func(c *megactx.Ctx) error { return c.Text(200, "hello from "+c.App.Name) })
}

func TestProgramServesAndSaysWhatItChose(t *testing.T) {
	p, stderr := process("MEGA_LOG_FORMAT=text", "MEGA_LOCK_TTL=3s")
	p.Verbose = true
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	if status, body := get(t, r.Report().Apps[0].URL+"/"); status != 200 || body != "hello from main" {
		t.Errorf("got %d %s", status, body)
	}
	for _, line := range []string{
		"shop · env test · pid ", "lock.ttl        3s           env MEGA_LOCK_TTL", "neither a cache nor a cluster is configured",
		"redis    no: needs cache.<alias>.url", "exclusion ends at this process", "main  " + r.Report().Apps[0].URL,
	} {
		if !strings.Contains(stderr.String(), line) {
			t.Errorf("%q is not told:\n%s", line, stderr)
		}
	}
}

func TestAProcessWithoutStderrRuns(t *testing.T) {
	p, _ := process()
	p.Stderr = nil
	start(t, p, mega.App("main"))
	if status := boot.Main(t.Context(), boot.Process{Set: []string{"nonesuch=1"}}, mega.App("main")); status == 0 {
		t.Error("a program with an unknown setting has run")
	}
}

func TestReportIsOneRecordWhereMachinesRead(t *testing.T) {
	p, stderr := process("MEGA_LOG_FORMAT=json")
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	want := `"lock":{"component":"lock","chosen":"memory"`
	if !strings.Contains(stderr.String(), want) || !strings.Contains(stderr.String(), r.Report().Apps[0].URL) {
		t.Errorf("no record with %s:\n%s", want, stderr)
	}
}

func TestAppsShareLocksAndKeepTheirValues(t *testing.T) {
	type store struct{ name string }
	type shared struct{ n int }
	app := func(name string) mega.Option {
		return mega.App(name,
			mega.Provide(func(s *shared, info megactx.AppInfo) *store { return &store{fmt.Sprint(info.Name, s.n)} }),
			mega.Routes(func(r megactx.Router, s *store) {
				r.Get("/", func(c *megactx.Ctx) error {
					return c.Lock.With("key", func(c *megactx.Ctx) error {
						state, err := c.Lock.Inspect("key")
						return errors.Join(err, c.Text(200, s.name+" "+state.Holders[0].App))
					})
				})
			}))
	}
	made := 0
	p, _ := process("MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	r := start(t, p, mega.Provide(func() *shared { made++; return &shared{7} }), app("main"), app("admin"),
		mega.Use(func(next megactx.Handler) megactx.Handler {
			return func(c *megactx.Ctx) error { c.Writer().Header().Set("Seen", "yes"); return next(c) }
		}))
	for i, want := range []string{"main7 main", "admin7 admin"} {
		if _, body := get(t, r.Report().Apps[i].URL); body != want {
			t.Errorf("got %q, want %q", body, want)
		}
	}
	if made != 1 {
		t.Errorf("the shared value was made %d times", made)
	}
}

func TestWrappersViewsAndPublicFilesReachTheApp(t *testing.T) {
	type key struct{ word string }
	p, _ := process()
	r := start(t, p, mega.App("main",
		mega.Provide(func() *key { return &key{"open"} }),
		mega.Use(func(k *key, next megactx.Handler) megactx.Handler {
			return func(c *megactx.Ctx) error {
				if c.Query("word") != k.word {
					return megactx.Error(401, "no.word", "Say the word.")
				}
				return next(c)
			}
		}),
		mega.Use(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Std", "yes"); next.ServeHTTP(w, r) })
		}),
		mega.Routes(func(r megactx.Router) error {
			r.Get("/", func(c *megactx.Ctx) error { return c.HTML(200, "home", "sesame") })
			return nil
		}),
		mega.Views(fstest.MapFS{"v/home.html": {Data: []byte("<p>{{.}}</p>")}}),
		mega.Public(fstest.MapFS{"p/a.txt": {Data: []byte("a file")}}),
	))
	url := r.Report().Apps[0].URL
	for target, want := range map[string]string{"/?word=open": "<p>sesame</p>", "/a.txt": "a file", "/": "Say the word."} {
		if _, body := get(t, url+target); !strings.Contains(body, want) {
			t.Errorf("%s: got %s, want %s", target, body, want)
		}
	}
}

func TestFunctionsOfWrongShapesStopTheBoot(t *testing.T) {
	type value struct{}
	provide := mega.Provide(func() *value { return &value{} })
	for name, o := range map[string]mega.Option{
		"Routes without a router":            mega.Routes(func() {}),
		"Routes that returns a number":       mega.Routes(func(megactx.Router) int { return 0 }),
		"Routes that is no function":         mega.Routes(5),
		"Routes that is nothing":             mega.Routes(nil),
		"Routes that is a nil function":      mega.Routes((func(megactx.Router))(nil)),
		"Routes with several":                mega.Routes(func(megactx.Router, ...int) {}),
		"Use that returns nothing":           mega.Use(func(megactx.Handler) {}),
		"Use of two kinds":                   mega.Use(func(http.Handler) megactx.Handler { return nil }),
		"Ready without an error":             mega.Ready("x", func(context.Context) {}),
		"OnPrimary of a router":              mega.OnPrimary("x", func(megactx.Router) {}),
		"OnStart without a name":             mega.OnStart("", func(context.Context) {}),
		"Run without a budget":               mega.Run("x", func(context.Context) {}, mega.Budget(0)),
		"Run with AtLeastOnce":               mega.Run("x", func(context.Context) {}, mega.AtLeastOnce()),
		"OnStart without a context":          mega.OnStart("x", func() error { return nil }),
		"OnStop with two contexts":           mega.OnStop("x", func(context.Context, *megactx.Ctx) error { return nil }),
		"Provide of nothing":                 mega.Provide(func() {}),
		"Provide of an error alone":          mega.Provide(func() error { return nil }),
		"Provide of an error in the middle":  mega.Provide(errorFirst),
		"Provide that takes a context":       mega.Provide(func(context.Context) *value { return nil }),
		"Provide with several":               mega.Provide(func(...int) *value { return nil }),
		"Run with a value that nobody makes": mega.Run("x", func(*http.Client, context.Context) error { return nil }),
		"Provide twice":                      mega.Module(provide, provide),
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := process()
			f := fail(t, p, mega.App("main", o))
			var shown bytes.Buffer
			fmt.Fprint(&shown, f.Text, f.Facts)
			if f.Exit != failure.ExitInternal || !strings.Contains(shown.String(), "boot_test.go:") {
				t.Errorf("got %s: %s, want status %d and this file's name", f.Code, &shown, failure.ExitInternal)
			}
		})
	}
}

//nolint:staticcheck // it is a mistake to be refused
func errorFirst() (error, *int) { return nil, nil }

func TestProgramsThatCannotBeAreRefused(t *testing.T) {
	main := mega.App("main", mega.Routes(hello))
	for _, x := range []struct {
		name    string
		options []mega.Option
		code    string
	}{
		{"without an app", nil, "boot.no_app"},
		{"with an app twice", []mega.Option{main, main}, "boot.app"},
		{"with an app of a strange name", []mega.Option{mega.App("Main")}, "boot.app"},
		{"with an app inside another", []mega.Option{mega.App("main", mega.Module(main))}, "boot.app"},
		{"with a broken page", []mega.Option{mega.App("main", mega.Views(fstest.MapFS{"a.html": {Data: []byte("{{")}, "b": {}}))}, "boot.views"},
		{"with a broken route", []mega.Option{mega.App("main", mega.Routes(func(r megactx.Router) { r.Get("x", nil) }))}, "boot.routes"},
		{"with routes that fail", []mega.Option{mega.App("main", mega.Routes(func(megactx.Router) error { return errors.New("x") }))}, "boot.routes"},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, _ := process()
			if f := fail(t, p, x.options...); f.Code != x.code || f.Exit != failure.ExitInternal {
				t.Errorf("got %+v, want %s", f, x.code)
			}
		})
	}
}

func TestWhatCannotBeHadStopsTheBoot(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	main := mega.App("main", mega.Routes(hello))
	for _, x := range []struct {
		name    string
		environ []string
		option  mega.Option
		code    string
		exit    int
		says    string
	}{
		{"a mistake in the configuration", []string{"MEGA_LOCK_TTL=5"}, main, "config.no_unit", 78, "MEGA_LOCK_TTL"},
		{"several mistakes", []string{"MEGA_LOCK_TTL=5", "MEGA_X=1"}, main, "config.problems", 78, "MEGA_X"},
		{"a scope that is not reached", []string{"MEGA_LOCK_REQUIRE=fleet"}, main, "lock.scope_too_small", 78, "env MEGA_LOCK_REQUIRE"},
		{"redis that does not answer", []string{"MEGA_CACHE_MAIN_URL=redis://u:hidden@" + taken.Addr().String() + "/x", "MEGA_BOOT_WAIT_FOR=0"}, main, "lock.driver_refused", 78, "MEGA_CACHE_MAIN_URL"},
		{"an address that is taken", []string{"MEGA_APPS_MAIN_ADDR=" + taken.Addr().String()}, main, "app.cannot_listen", 69, "env MEGA_APPS_MAIN_ADDR"},
		{"an address for probes that is taken", []string{"MEGA_OPS_ADDR=" + taken.Addr().String()}, main, "app.cannot_listen", 69, "env MEGA_OPS_ADDR"},
		{"a constructor that fails", nil, constructed(func() (*int, error) { return nil, errors.New("no disk") }), "boot.constructor_failed", 69, "no disk"},
		{"a constructor that panics", nil, constructed(func() (*int, error) { panic("no idea") }), "boot.constructor_panicked", 70, "no idea"},
		{"a hook that fails", nil, mega.App("main", mega.OnStart("warm up", func(context.Context) error { return errors.New("cold") })), "boot.hook_failed", 70, "warm up"},
		{"a hook that panics", nil, mega.App("main", mega.OnStart("warm up", func(context.Context) { panic("cold") })), "boot.hook_failed", 70, "cold"},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, stderr := process(x.environ...)
			if status := boot.Main(t.Context(), p, x.option); status != x.exit {
				t.Errorf("exit status %d, want %d", status, x.exit)
			}
			if !strings.Contains(stderr.String(), "("+x.code+")") || !strings.Contains(stderr.String(), x.says) || strings.Contains(stderr.String(), "hidden") {
				t.Errorf("want %s with %q:\n%s", x.code, x.says, stderr)
			}
		})
	}
}

// listening takes an address.
func listening(t *testing.T) string {
	t.Helper()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	return taken.Addr().String()
}

func constructed(c func() (*int, error)) mega.Option {
	return mega.App("main", mega.Provide(c), mega.Routes(func(megactx.Router, *int) {}))
}

// diary writes down in which order things end.
type diary struct {
	mu    sync.Mutex // guards pages
	pages []string
}

func (d *diary) add(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pages = append(d.pages, s)
}

type (
	lower struct{ d *diary }
	upper struct{ d *diary }
)

func (l *lower) Close() error                { l.d.add("close lower"); return nil }
func (u *upper) Close(context.Context) error { u.d.add("close upper"); return nil }

func TestEndIsTheBeginningInReverse(t *testing.T) {
	d := &diary{}
	p, _ := process()
	r := start(t, p, mega.App("main",
		mega.Provide(func() *lower { return &lower{d} }, func(*lower) *upper { return &upper{d} }),
		mega.OnStart("first", func(context.Context) { d.add("start first") }),
		mega.OnStart("second", func(_ *upper, c *megactx.Ctx) error { d.add("start second in " + c.App.Name); return nil }),
		mega.OnStop("first", func(context.Context) { d.add("stop first") }),
		mega.OnStop("second", func(_ *upper, c *megactx.Ctx) error {
			return c.Lock.With("last", func(*megactx.Ctx) error { d.add("stop second, under a lock"); return nil })
		}),
		mega.Run("task", func(ctx context.Context) error { <-ctx.Done(); d.add("task ends"); return ctx.Err() }),
		mega.Routes(hello),
	))
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	want := []string{"start first", "start second in main", "task ends", "stop second, under a lock", "stop first", "close upper", "close lower"}
	if !slices.Equal(d.pages, want) {
		t.Errorf("got  %q\nwant %q", d.pages, want)
	}
}

func TestLocksEndBeforeWhatTheyProtect(t *testing.T) {
	d := &diary{}
	p, _ := process()
	r := start(t, p, mega.App("main",
		mega.Provide(func() *lower { return &lower{d} }),
		mega.OnStart("hold", func(_ *lower, l *lock.Locker, _ context.Context) {
			lease, err := l.Acquire(context.Background(), "x")
			if err != nil {
				t.Error(err)
				return
			}
			context.AfterFunc(lease.Context(), func() {
				d.add("lease ends")
				_ = lease.Release()
			})
		}),
	))
	if err := r.Stop(); err == nil || !strings.Contains(err.Error(), "locks") || !strings.Contains(err.Error(), "x") {
		t.Errorf("got %v, want an error that names the lock that was cut off", err)
	}
	if want := []string{"lease ends", "close lower"}; !slices.Equal(d.pages, want) {
		t.Errorf("got %q, want %q", d.pages, want)
	}
}

func TestBootThatFailsHalfwayEndsWhatItBegan(t *testing.T) {
	d := &diary{}
	p, _ := process()
	_ = fail(t, p, mega.App("main",
		mega.Provide(func() *lower { return &lower{d} }),
		mega.OnStart("first", func(*lower, context.Context) { d.add("start") }),
		mega.OnStop("first", func(context.Context) { d.add("stop") }),
		mega.OnStart("second", func(context.Context) error { return errors.New("no") }),
	))
	if want := []string{"start", "stop", "close lower"}; !slices.Equal(d.pages, want) {
		t.Errorf("got %q, want %q", d.pages, want)
	}
}

func TestConstructorThatFailsLeavesNothingOpen(t *testing.T) {
	d := &diary{}
	p, _ := process()
	_ = fail(t, p, mega.App("main",
		mega.Provide(func() *lower { return &lower{d} }, func(*lower) (*upper, error) { return nil, errors.New("no") }),
		mega.Routes(func(megactx.Router, *upper) {}),
	))
	if want := []string{"close lower"}; !slices.Equal(d.pages, want) {
		t.Errorf("got %q, want %q", d.pages, want)
	}
}

func TestWhatNobodyNeedsIsNotMade(t *testing.T) {
	p, _ := process()
	start(t, p, mega.App("main", mega.Provide(func() (*int, error) { return nil, errors.New("nobody asked") }), mega.Routes(hello)))
}

func TestSectionReachesItsApp(t *testing.T) {
	type mail struct {
		From string `key:"from" default:"nobody"`
	}
	p, _ := process("MEGA_MAIL_FROM=me")
	mails := mega.Config[mail]("mail")
	r := start(t, p, mega.App("main", mails, mega.Module(mails), mega.Routes(func(r megactx.Router, m mail) {
		r.Get("/", func(c *megactx.Ctx) error { return c.Text(200, m.From) })
	})))
	if _, body := get(t, r.Report().Apps[0].URL); body != "me" {
		t.Errorf("got %q", body)
	}
}

func TestProbesFollowTheProgram(t *testing.T) {
	down := errors.New("the disk is full")
	var mu sync.Mutex
	var state error
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(hello), mega.Ready("disk", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		return state
	})))
	ops := r.Report().Ops
	if status, body := get(t, ops+"/readyz"); status != 200 {
		t.Errorf("ready: got %d %s", status, body)
	}
	mu.Lock()
	state = down
	mu.Unlock()
	if status, body := get(t, ops+"/readyz"); status != 503 || !strings.Contains(body, `"disk":"the disk is full"`) {
		t.Errorf("not ready: got %d %s", status, body)
	}
	if status, _ := get(t, ops+"/livez"); status != 200 {
		t.Errorf("what it depends on is down, and it is taken for dead: %d", status)
	}
}

func TestDefaultAddressOfProbesGivesWay(t *testing.T) {
	first, _ := process()
	first.Environ = []string{"MEGA_APPS_MAIN_ADDR=127.0.0.1:0"}
	second := first
	a := start(t, first, mega.App("main", mega.Routes(hello)))
	b := start(t, second, mega.App("main", mega.Routes(hello)))
	if a.Report().Ops == b.Report().Ops {
		t.Errorf("both answer probes on %s", a.Report().Ops)
	}
	if status, _ := get(t, b.Report().Ops+"/readyz"); status != 200 {
		t.Errorf("the second one's: %d", status)
	}
}

func TestTaskThatFailsEndsTheProgram(t *testing.T) {
	p, stderr := process()
	status := boot.Main(t.Context(), p, mega.App("main", mega.Run("pump", func(context.Context) error { return errors.New("dry") })))
	if status != failure.ExitInternal || !strings.Contains(stderr.String(), "dry") {
		t.Errorf("exit status %d:\n%s", status, stderr)
	}
}

func TestStopBeforeTheStartIsNoFailure(t *testing.T) {
	for _, end := range []func(context.Context) error{context.Context.Err, func(context.Context) error { return errors.New("signal: killed") }} {
		ctx, stop := context.WithCancel(t.Context())
		p, stderr := process()
		status := boot.Main(ctx, p, mega.App("main", mega.OnStart("wait", func(ctx context.Context) error {
			stop()
			<-ctx.Done()
			return end(ctx)
		})))
		if status != failure.ExitOK || strings.Contains(stderr.String(), "could not start") {
			t.Errorf("exit status %d:\n%s", status, stderr)
		}
	}
}

func TestALockWaitOfZeroDoesNotWait(t *testing.T) {
	t.Parallel()
	p, _ := process("MEGA_LOCK_WAIT=0s")
	start(t, p, mega.App("main", mega.OnStart("work", func(ctx context.Context, locks *lock.Locker) error {
		lease, err := locks.Acquire(ctx, "k")
		if err != nil {
			return err
		}
		_, err = locks.Acquire(ctx, "k")
		if busy, ok := errors.AsType[*lock.NotAcquiredError](err); !ok || busy.Waited >= time.Second {
			t.Errorf("the key that is held: %v", err)
		}
		return lease.Release()
	})))
}

func TestLocksAreInTheRedisThatIsConfigured(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	for _, engine := range []string{"queue", "redislock"} {
		p, stderr := process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_LOCK_REDIS_KEY=shop:{%s}", "MEGA_LOCK_REDIS_ENGINE="+engine, "MEGA_LOCK_REQUIRE=fleet")
		r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
			r.Get("/", func(c *megactx.Ctx) error {
				return c.Lock.With("x", func(c *megactx.Ctx) error {
					held, err := server.Do("EXISTS", "shop:{x}")
					return errors.Join(err, c.Text(200, fmt.Sprint(held, c.Lock.Info().Engine)))
				})
			})
		})))
		if _, body := get(t, r.Report().Apps[0].URL); body != "1 "+engine && body != "1"+engine {
			t.Errorf("%s: while it is held, the key in redis and the engine are %q\n%s", engine, body, stderr)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestRedisMayComeUpLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	p, stderr := process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_BOOT_WAIT_FOR=60s")
	back := make(chan error, 1)
	go func() {
		for !strings.Contains(stderr.String(), "waiting for the server") {
			time.Sleep(time.Millisecond)
		}
		back <- server.Restart()
	}()
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	if r.Report().Lock.Chosen != "redis" {
		t.Errorf("the locks are in %s", r.Report().Lock.Chosen)
	}
}

// Nothing of the program is cut off by a backend that does not answer.
func TestRedisThatIsStoppedDoesNotFailTheShutdown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	p, stderr := process("MEGA_CACHE_MAIN_URL=" + server.URL())
	began := make(chan struct{})
	r := start(t, p, mega.App("main", mega.Every("tick", 500*time.Millisecond, func(context.Context) {
		select {
		case began <- struct{}{}:
		default:
		}
	})))
	<-began
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Continue() }()
	until(t, "lock backend lost", func() bool { return strings.Contains(stderr.String(), "lock backend lost") })
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if want := "locks closed without their backend"; !strings.Contains(stderr.String(), want) {
		t.Errorf("%q is not logged:\n%s", want, stderr)
	}
}

func TestUnreachableRedisStopsTheBoot(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	p, stderr := process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_BOOT_WAIT_FOR=300ms")
	if status := boot.Main(t.Context(), p, mega.App("main", mega.Routes(hello))); status != failure.ExitUnavailable {
		t.Errorf("exit status %d, want %d", status, failure.ExitUnavailable)
	}
	for _, want := range []string{"(lock.driver_unavailable)", "cache.main.url = " + server.URL() + "  (env MEGA_CACHE_MAIN_URL)", "connection refused", "MEGA_BOOT_WAIT_FOR=60s"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q is not told:\n%s", want, stderr)
		}
	}
}

func TestWhatHappensToLocksIsLogged(t *testing.T) {
	p, stderr := process("MEGA_LOG_FORMAT=json")
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			return c.Lock.With("x", func(inside *megactx.Ctx) error {
				if _, err := c.Lock.ForceRelease("x", "stuck"); err != nil {
					return err
				}
				<-inside.Done()
				return nil
			})
		})
	})))
	if status, body := get(t, r.Report().Apps[0].URL); status != 409 || !strings.Contains(body, "lock.lost") {
		t.Errorf("got %d %s", status, body)
	}
	for _, want := range []string{`"msg":"lock released by force","key":"x","reason":"stuck","leases":1`, `"msg":"lock lost","key":"x"`} {
		if !comes(stderr, want) { // the loss is told beside the answer, not before it
			t.Errorf("%s is not logged:\n%s", want, stderr)
		}
	}
}

// comes waits for a text.
func comes(stderr *output.Buffer, text string) bool {
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(time.Millisecond) {
		if strings.Contains(stderr.String(), text) {
			return true
		}
	}
	return false
}
