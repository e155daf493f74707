package boot_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
)

func (d *diary) note(s string) func(context.Context) { return func(context.Context) { d.add(s) } }

func (d *diary) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.pages)
}

func TestWhatThePrimaryDoesComesBeforeEverythingElse(t *testing.T) {
	d := &diary{}
	p, _ := process("MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	start(t, p,
		mega.OnStart("shared", d.note("start shared")),
		mega.App("main",
			mega.OnStart("start", d.note("start main")),
			mega.OnPrimary("migrate", func(c *megactx.Ctx) error {
				d.add("migrate " + c.App.Name)
				return nil
			})),
		mega.App("admin", mega.OnPrimary("migrate", d.note("migrate admin")), mega.OnStart("start", d.note("start admin"))),
	)
	if want := []string{"migrate main", "migrate admin", "start shared", "start main", "start admin"}; !slices.Equal(d.lines(), want) {
		t.Errorf("got  %q\nwant %q", d.lines(), want)
	}
}

func TestHooksHaveTheBudgetThatTheyAreGiven(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, o := range []mega.Option{
		mega.OnStart("warm up", hang, mega.Budget(20*time.Millisecond)),
		mega.OnPrimary("migrate", hang, mega.Budget(20*time.Millisecond)),
	} {
		p, _ := process()
		f := fail(t, p, mega.App("main", o))
		if f.Code != "boot.hook_overrun" || f.Exit != failure.ExitOverrun || !strings.Contains(f.Text, "20ms") {
			t.Errorf("got %+v", f)
		}
	}
	p, _ := process()
	r := start(t, p, mega.App("main", mega.OnStop("flush", hang, mega.Budget(20*time.Millisecond))))
	if err := r.Stop(); err == nil || !strings.Contains(err.Error(), `"flush"`) {
		t.Errorf("got %v, want the name of what did not end", err)
	}
}

func TestConstructorThatHangsDoesNotHoldUpTheStop(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	ctx, stop := context.WithCancel(t.Context())
	p, _ := process()
	_, err := boot.Start(ctx, p, constructed(func() (*int, error) { stop(); <-leave; return nil, nil }))
	if err == nil || !strings.Contains(err.Error(), "does not end") || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if text := err.Error(); !strings.Contains(text, "hooks_test.go:") || strings.Contains(text, "reflect") {
		t.Errorf("the error does not name the constructor alone: %s", text)
	}
}

// Whatever fails, and however: what had started is ended, in reverse, and what
// had not is not.
func TestWhateverFailsTheRestIsUnwound(t *testing.T) {
	before := func(d *diary) []mega.Option {
		return []mega.Option{
			mega.Provide(func() *lower { return &lower{d} }, func(*lower) *upper { return &upper{d} }),
			mega.OnStart("first", func(*upper, context.Context) { d.add("start first") }),
			mega.OnStop("first", d.note("stop first")),
			mega.Run("never", func(context.Context) { d.add("run") }),
		}
	}
	after := func(d *diary) mega.Option {
		return mega.Module(mega.OnStart("last", d.note("start last")), mega.OnStop("last", d.note("stop last")))
	}
	started := []string{"start first", "stop first", "close upper", "close lower"}
	onlyMade := []string{"close upper", "close lower"}
	for _, x := range []struct {
		name  string
		fails mega.Option
		code  string
		want  []string
	}{
		{"a hook fails", mega.OnStart("x", func(context.Context) error { return errors.New("no") }), "boot.hook_failed", started},
		{"a hook panics", mega.OnStart("x", func(context.Context) { panic("no") }), "boot.hook_failed", started},
		{"a hook overruns", mega.OnStart("x", func(c context.Context) error { <-c.Done(); return c.Err() }, mega.Budget(time.Millisecond)), "boot.hook_overrun", started},
		{"a migration fails", mega.OnPrimary("x", func(context.Context) error { return errors.New("no") }), "boot.hook_failed", onlyMade},
		{"a constructor fails", mega.Module(mega.Provide(func() (*int, error) { return nil, errors.New("no") }), mega.Routes(func(megactx.Router, *int) {})), "boot.constructor_failed", nil},
		{"routes cannot be", mega.Routes(func(megactx.Router) error { return errors.New("no") }), "boot.routes", nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			d := &diary{}
			p, _ := process("MEGA_APPS_A_ADDR=127.0.0.1:0", "MEGA_APPS_B_ADDR=127.0.0.1:0")
			f := fail(t, p,
				mega.App("a", before(d)...),
				mega.App("b", x.fails),
				mega.App("main", after(d)),
			)
			want := x.want
			if want == nil {
				want = onlyMade
			}
			if f.Code != x.code || !slices.Equal(d.lines(), want) {
				t.Errorf("%s: got  %q\nwant %q", f.Code, d.lines(), want)
			}
		})
	}
}

func TestSecondOfThreeAppsThatCannotListenStopsTheProcess(t *testing.T) {
	d := &diary{}
	taken := listening(t)
	p, _ := process("MEGA_APPS_A_ADDR=127.0.0.1:0", "MEGA_APPS_B_ADDR="+taken)
	f := fail(t, p,
		mega.App("a", mega.Provide(func() *lower { return &lower{d} }), mega.OnStart("x", func(*lower, context.Context) { d.add("start") })),
		mega.App("b", mega.Routes(hello)),
		mega.App("main", mega.Routes(hello)),
	)
	if f.Code != "app.cannot_listen" || !slices.Equal(d.lines(), []string{"close lower"}) {
		t.Errorf("%s: got %q", f.Code, d.lines())
	}
}

// A value of the second app is not made any more once the first one cannot be,
// nor once the program was asked to stop.
func TestStopDuringConstructionConstructsNothingMore(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	d := &diary{}
	p, stderr := process()
	status := boot.Main(ctx, p, mega.App("main",
		mega.Provide(func() *lower { stop(); return &lower{d} }, func(*lower) *upper { d.add("made upper"); return &upper{d} }),
		mega.OnStart("x", func(*upper, context.Context) { d.add("start") }),
	))
	if status != failure.ExitOK || !slices.Equal(d.lines(), []string{"close lower"}) {
		t.Errorf("exit status %d, %q\n%s", status, d.lines(), stderr)
	}
}

func TestWhatCannotBeUnwoundIsNamed(t *testing.T) {
	p, stderr := process()
	status := boot.Main(t.Context(), p, mega.App("main",
		mega.OnStop("flush", func(context.Context) error { return errors.New("the disk is full") }),
		mega.OnStart("x", func(context.Context) error { return errors.New("no") }),
	))
	if status != failure.ExitInternal || !strings.Contains(stderr.String(), `left behind  stop "flush": the disk is full`) {
		t.Errorf("exit status %d:\n%s", status, stderr)
	}
}

// Whoever is asked to stop before it has started, and leaves something behind,
// says so and does not exit as if all were well.
func TestStopThatLeavesSomethingBehindIsNoSuccess(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stuck := make(chan struct{})
	defer close(stuck)
	p, stderr := process()
	status := boot.Main(ctx, p, mega.App("main", mega.OnStart("deaf", func(context.Context) { stop(); <-stuck })))
	if status != failure.ExitCut || !strings.Contains(stderr.String(), `"deaf" did not start: it does not end`) {
		t.Errorf("exit status %d:\n%s", status, stderr)
	}
}

func TestStopEndsABootWhoseRoutesHang(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stuck := make(chan struct{})
	defer close(stuck)
	p, stderr := process()
	status := boot.Main(ctx, p, mega.App("main", mega.Routes(func(mega.Router) { stop(); <-stuck })))
	if status != failure.ExitCut || !strings.Contains(stderr.String(), "hooks_test.go") || !strings.Contains(stderr.String(), "it does not end") {
		t.Errorf("exit status %d:\n%s", status, stderr)
	}
}

// The router calls the function without a route, too.
func TestStopEndsABootWhoseMiddlewareHangs(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stuck := make(chan struct{})
	defer close(stuck)
	p, stderr := process()
	hangs := func(next http.Handler) http.Handler { stop(); <-stuck; return next }
	status := boot.Main(ctx, p, mega.App("main", mega.Use(hangs)))
	if status != failure.ExitCut || !strings.Contains(stderr.String(), "hooks_test.go") || !strings.Contains(stderr.String(), "it does not end") {
		t.Errorf("exit status %d:\n%s", status, stderr)
	}
}

func TestPanelNamesTheMiddlewareThatStopsTheBoot(t *testing.T) {
	type std = http.Handler
	type own = megactx.Handler
	for _, x := range []struct {
		name string
		use  any
		says string
		own  bool // is called for a route alone
	}{
		{"no handler", func(std) std { return nil }, "A function of mega.Use returned no handler", false},
		{"no handler of mega", func(own) own { return nil }, "A function of mega.Use returned no handler", true},
		{"a panic", func(std) std { panic("broken") }, "panic: broken", false},
		{"a panic in one of mega", func(own) own { panic("broken") }, "panic: broken", true},
		{"Goexit", func(std) std { runtime.Goexit(); return nil }, "runtime.Goexit", false},
		{"Goexit in one of mega", func(own) own { runtime.Goexit(); return nil }, "runtime.Goexit", true},
	} {
		_, file, line, _ := runtime.Caller(0)
		use := mega.Use(x.use)
		given := failure.Fact{Name: "given at", Value: fmt.Sprintf("mega.Use, %s:%d", file, line+1)}
		options := map[string]mega.Option{"with a route": mega.Routes(hello), "without a route": mega.Module()}
		if x.own {
			delete(options, "without a route")
		}
		for name, option := range options {
			p, _ := process()
			f := fail(t, p, mega.App("main", use, option))
			if f.Code != "boot.failed" || !strings.Contains(f.Error(), x.says) || !slices.Contains(f.Facts, given) {
				t.Errorf("%s %s: got %v, %+v; want %v", x.name, name, f, f.Facts, given)
			}
		}
	}
}

func TestPanelNamesAFunctionThatEndsItsGoroutine(t *testing.T) {
	for name, options := range map[string][]mega.Option{
		"constructor": {mega.Provide(func() *lower { runtime.Goexit(); return nil }), mega.Routes(func(mega.Router, *lower) {})},
		"Routes":      {mega.Routes(func(mega.Router) { runtime.Goexit() })},
	} {
		p, _ := process()
		f := fail(t, p, mega.App("main", options...))
		if !strings.Contains(f.Error(), "runtime.Goexit") || !strings.Contains(fmt.Sprint(f.Facts), "hooks_test.go") {
			t.Errorf("%s: got %v, %+v", name, f, f.Facts)
		}
	}
}

func TestRequirementOfAnAppIsKept(t *testing.T) {
	p, _ := process()
	f := fail(t, p, mega.App("main", mega.RequireScope(mega.Fleet)))
	if f.Code != "lock.scope_too_small" || f.Exit != failure.ExitConfig {
		t.Errorf("got %+v", f)
	}
	p, _ = process("MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	p.Only = []string{"main"} // the app that requires it does not run here
	start(t, p, mega.App("main"), mega.App("admin", mega.RequireScope(mega.Fleet)))
}
