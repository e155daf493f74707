package boot_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/fx"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
)

type gear struct{ teeth int }

func TestWhatTheInjectorIsGivenCanBeTaken(t *testing.T) {
	p, _ := process()
	r := start(t, p,
		boot.Fx(fx.Supply(&gear{7})),
		mega.App("main",
			boot.Fx(fx.Decorate(func(g *gear) *gear { return &gear{g.teeth + 1} })),
			mega.Routes(func(r megactx.Router, g *gear) {
				r.Get("/", func(c *megactx.Ctx) error { return c.JSON(200, g.teeth) })
			})))
	if _, body := get(t, r.Report().Apps[0].URL); body != "8" {
		t.Errorf("got %s", body)
	}
}

func TestHooksOfTheInjectorAreStepsOfTheBoot(t *testing.T) {
	d := &diary{}
	p, _ := process()
	r := start(t, p, mega.App("main",
		mega.OnPrimary("migrate", d.note("migrate")),
		mega.OnStop("flush", d.note("flush")),
		boot.Fx(fx.Invoke(func(l fx.Lifecycle) {
			l.Append(fx.StartStopHook(func() { d.add("fx 1 starts") }, func() { d.add("fx 1 ends") }))
			l.Append(fx.Hook{OnStop: func(context.Context) error { d.add("fx 2 ends"); return nil }})
		})),
	))
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if want := []string{"fx 1 starts", "migrate", "flush", "fx 2 ends", "fx 1 ends"}; !slices.Equal(d.lines(), want) {
		t.Errorf("got  %q\nwant %q", d.lines(), want)
	}
}

// fx itself says "context deadline exceeded" and unwinds nothing.
func TestHookOfTheInjectorThatFailsIsNamedAndUnwound(t *testing.T) {
	d := &diary{}
	p, _ := process()
	f := fail(t, p, mega.App("main", boot.Fx(fx.Invoke(func(l fx.Lifecycle) {
		l.Append(fx.StartStopHook(func() { d.add("starts") }, func() { d.add("ends") }))
		l.Append(fx.StartHook(func() error { return errors.New("no") }))
	}))))
	if !strings.Contains(f.Text, "fx hook of boot_test.TestHookOfTheInjector") || !slices.Equal(d.lines(), []string{"starts", "ends"}) {
		t.Errorf("got %v, and %q", f, d.lines())
	}
}

func TestProgramMayAskForItsOwnEnd(t *testing.T) {
	for code, want := range map[int]int{0: failure.ExitOK, 3: 3} {
		p, stderr := process()
		status := boot.Main(t.Context(), p, mega.App("main", boot.Fx(fx.Invoke(func(l fx.Lifecycle, s fx.Shutdowner) {
			l.Append(fx.StartHook(func() error { return s.Shutdown(fx.ExitCode(code)) }))
		}))))
		if status != want || strings.Contains(stderr.String(), "failed") {
			t.Errorf("exit status %d, want %d:\n%s", status, want, stderr)
		}
	}
}

func TestWaitEndsWithoutAnErrorWhenTheProgramShutsItselfDown(t *testing.T) {
	for _, code := range []int{0, 3} {
		p, _ := process()
		r := start(t, p, mega.App("main", boot.Fx(fx.Invoke(func(s fx.Shutdowner) error { return s.Shutdown(fx.ExitCode(code)) }))))
		if err := r.Wait(t.Context()); err != nil {
			t.Errorf("code %d: %v", code, err)
		}
	}
}

func TestEveryWaitReturnsAtTheEnd(t *testing.T) {
	want := errors.New("the disk is full")
	p, _ := process()
	failed := start(t, p, mega.App("main", mega.Run("copy", func(context.Context) error { return want })))
	p, _ = process()
	stopped := start(t, p, mega.App("main"))
	if err := stopped.Stop(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		if err := failed.Wait(ctx); !errors.Is(err, want) {
			t.Errorf("after a failure: %v", err)
		}
		if err := stopped.Wait(ctx); err != nil || ctx.Err() != nil {
			t.Errorf("after Stop: %v, %v", err, ctx.Err())
		}
	}
}

// Where the injector was given options of its own, only it knows what is
// provided, and its root cause comes first.
func TestWhatTheInjectorCannotDoIsToldByItsRootCause(t *testing.T) {
	p, _ := process()
	f := fail(t, p, boot.Fx(fx.Supply(&gear{})), mega.App("main", mega.Routes(func(megactx.Router, *strings.Builder) {})))
	if f.Code != "boot.failed" || !strings.HasPrefix(f.Cause.Error(), "missing type: *strings.Builder") {
		t.Errorf("got %v", f)
	}
	f = fail(t, p, mega.App("main", boot.Fx(fx.Invoke(func() error { return errors.New("the root") }))))
	if f.Cause == nil || f.Cause.Error() != "the root" {
		t.Errorf("got %v", f)
	}
}

type axle struct{}

func newAxle() *axle { return &axle{} }

func TestConstructorOfFxThatEndsItsGoroutineEndsTheBoot(t *testing.T) {
	p, _ := process()
	f := fail(t, p, mega.App("main"), boot.Fx(
		fx.Provide(func() *gear { runtime.Goexit(); return nil }),
		fx.Invoke(func(*gear) {}),
	))
	if f.Code != "boot.failed" || !strings.Contains(f.Error(), "runtime.Goexit") {
		t.Errorf("got %v", f)
	}
}

// The injector would take one of the two values, and ignore the other in silence.
func TestAValueOfFxThatAConstructorProvidesStopsTheBoot(t *testing.T) {
	made := 0
	make7 := func() *gear { made++; return &gear{7} }
	use := mega.Routes(func(r megactx.Router, g *gear) {
		r.Get("/", func(c *megactx.Ctx) error { return c.JSON(200, g.teeth) })
	})
	for name, options := range map[string][]mega.Option{
		"in one app":                       {mega.App("main", mega.Provide(make7), boot.Fx(fx.Provide(make7)), use)},
		"a value":                          {mega.App("main", boot.Fx(fx.Supply(&gear{})), mega.Provide(make7), use)},
		"in a module of fx":                {mega.App("main", mega.Provide(make7), boot.Fx(fx.Module("gears", fx.Provide(make7))), use)},
		"private":                          {mega.App("main", mega.Provide(make7), boot.Fx(fx.Provide(fx.Private, make7)), use)},
		"shared by fx":                     {boot.Fx(fx.Provide(make7)), mega.App("main", mega.Provide(make7), use)},
		"shared by a constructor":          {mega.Provide(make7), mega.App("main", boot.Fx(fx.Provide(make7)), use)},
		"shared by both":                   {mega.Provide(make7), boot.Fx(fx.Provide(make7)), mega.App("main", use)},
		"a shared constructor, without fx": {mega.Provide(make7), boot.Fx(fx.Provide(newAxle)), mega.App("main", mega.Provide(make7), use)},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := process()
			f := fail(t, p, options...)
			if f.Code != "boot.provided_twice" || len(f.Facts) != 2 || made != 0 {
				t.Fatalf("%d made, %s: %v", made, f.Code, f)
			}
			for _, fact := range f.Facts {
				if !strings.Contains(fact.Value, "fx_test.go:") {
					t.Errorf("the fact %q has no place", fact)
				}
			}
			if _, err := boot.Plan(p, options...); err == nil {
				t.Error("the plan, which the dry run checks, has no error")
			}
		})
	}
	for name, options := range map[string][]mega.Option{
		"another type":         {mega.App("main", mega.Provide(make7), boot.Fx(fx.Provide(newAxle)), use)},
		"a decorator":          {mega.App("main", mega.Provide(make7), boot.Fx(fx.Decorate(func(g *gear) *gear { return g })), use)},
		"a replacement":        {mega.App("main", mega.Provide(make7), boot.Fx(fx.Replace(&gear{7})), use)},
		"a name":               {mega.App("main", mega.Provide(make7), boot.Fx(fx.Provide(fx.Annotate(make7, fx.ResultTags(`name:"spare"`)))), use)},
		"private in a module":  {mega.App("main", mega.Provide(make7), boot.Fx(fx.Module("gears", fx.Provide(fx.Private, make7))), use)},
		"of two separate apps": {mega.App("main", mega.Provide(make7), use), mega.App("other", boot.Fx(fx.Provide(make7)))},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := process()
			r := start(t, p, options...)
			for _, app := range r.Report().Apps {
				if app.URL == "" {
					continue // without routes
				}
				if _, body := get(t, app.URL); body != "7" {
					t.Errorf("got %s", body)
				}
			}
		})
	}
}

// errorHook counts the errors that the injector reports to fx.ErrorHook.
type errorHook struct{ errors *int }

func (h errorHook) HandleError(error) { *h.errors++ }

// The options of Fx alone lack the values of the other options. The hook of the program
// does not learn of that: the program starts.
func TestTheCheckOfFxCallsNoFunctionOfTheProgram(t *testing.T) {
	errors, invoked := 0, 0
	p, _ := process()
	start(t, p, mega.App("main",
		mega.Provide(func() *gear { return &gear{7} }),
		boot.Fx(fx.ErrorHook(errorHook{&errors}), fx.Invoke(func(*gear) { invoked++ })),
		mega.Routes(hello),
	))
	if errors != 0 || invoked != 1 {
		t.Errorf("%d errors reported, %d calls of fx.Invoke", errors, invoked)
	}
}
