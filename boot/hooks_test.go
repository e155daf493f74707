package boot_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
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
		boot.OnStart("shared", d.note("start shared")),
		boot.App("main",
			boot.OnStart("start", d.note("start main")),
			boot.OnPrimary("migrate", func(c *megactx.Ctx) error {
				d.add("migrate " + c.App.Name)
				return nil
			})),
		boot.App("admin", boot.OnPrimary("migrate", d.note("migrate admin")), boot.OnStart("start", d.note("start admin"))),
	)
	if want := []string{"migrate main", "migrate admin", "start shared", "start main", "start admin"}; !slices.Equal(d.lines(), want) {
		t.Errorf("got  %q\nwant %q", d.lines(), want)
	}
}

func TestHooksHaveTheBudgetThatTheyAreGiven(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, o := range []boot.Option{
		boot.OnStart("warm up", hang, boot.Budget(20*time.Millisecond)),
		boot.OnPrimary("migrate", hang, boot.Budget(20*time.Millisecond)),
	} {
		p, _ := process()
		f := fail(t, p, boot.App("main", o))
		if f.Code != "boot.hook_overrun" || f.Exit != boot.ExitOverrun || !strings.Contains(f.Text, "20ms") {
			t.Errorf("got %+v", f)
		}
	}
	p, _ := process()
	r := start(t, p, boot.App("main", boot.OnStop("flush", hang, boot.Budget(20*time.Millisecond))))
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
		t.Errorf("got %v", err)
	}
}

// Whatever fails, and however: what had started is ended, in reverse, and what
// had not is not.
func TestWhateverFailsTheRestIsUnwound(t *testing.T) {
	before := func(d *diary) []boot.Option {
		return []boot.Option{
			boot.Provide(func() *lower { return &lower{d} }, func(*lower) *upper { return &upper{d} }),
			boot.OnStart("first", func(*upper, context.Context) { d.add("start first") }),
			boot.OnStop("first", d.note("stop first")),
			boot.Run("never", func(context.Context) { d.add("run") }),
		}
	}
	after := func(d *diary) boot.Option {
		return boot.Module(boot.OnStart("last", d.note("start last")), boot.OnStop("last", d.note("stop last")))
	}
	started := []string{"start first", "stop first", "close upper", "close lower"}
	onlyMade := []string{"close upper", "close lower"}
	for _, x := range []struct {
		name  string
		fails boot.Option
		code  string
		want  []string
	}{
		{"a hook fails", boot.OnStart("x", func(context.Context) error { return errors.New("no") }), "boot.hook_failed", started},
		{"a hook panics", boot.OnStart("x", func(context.Context) { panic("no") }), "boot.hook_failed", started},
		{"a hook overruns", boot.OnStart("x", func(c context.Context) error { <-c.Done(); return c.Err() }, boot.Budget(time.Millisecond)), "boot.hook_overrun", started},
		{"a migration fails", boot.OnPrimary("x", func(context.Context) error { return errors.New("no") }), "boot.hook_failed", onlyMade},
		{"a constructor fails", boot.Module(boot.Provide(func() (*int, error) { return nil, errors.New("no") }), boot.Routes(func(megactx.Router, *int) {})), "boot.constructor_failed", nil},
		{"routes cannot be", boot.Routes(func(megactx.Router) error { return errors.New("no") }), "boot.routes", nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			d := &diary{}
			p, _ := process("MEGA_APPS_A_ADDR=127.0.0.1:0", "MEGA_APPS_B_ADDR=127.0.0.1:0")
			f := fail(t, p,
				boot.App("a", before(d)...),
				boot.App("b", x.fails),
				boot.App("main", after(d)),
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
		boot.App("a", boot.Provide(func() *lower { return &lower{d} }), boot.OnStart("x", func(*lower, context.Context) { d.add("start") })),
		boot.App("b", boot.Routes(hello)),
		boot.App("main", boot.Routes(hello)),
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
	status := boot.Main(ctx, p, boot.App("main",
		boot.Provide(func() *lower { stop(); return &lower{d} }, func(*lower) *upper { d.add("made upper"); return &upper{d} }),
		boot.OnStart("x", func(*upper, context.Context) { d.add("start") }),
	))
	if status != boot.ExitOK || !slices.Equal(d.lines(), []string{"close lower"}) {
		t.Errorf("exit status %d, %q\n%s", status, d.lines(), stderr)
	}
}

func TestWhatCannotBeUnwoundIsNamed(t *testing.T) {
	p, stderr := process()
	status := boot.Main(t.Context(), p, boot.App("main",
		boot.OnStop("flush", func(context.Context) error { return errors.New("the disk is full") }),
		boot.OnStart("x", func(context.Context) error { return errors.New("no") }),
	))
	if status != boot.ExitInternal || !strings.Contains(stderr.String(), `left behind  stop "flush": the disk is full`) {
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
	status := boot.Main(ctx, p, boot.App("main", boot.OnStart("deaf", func(context.Context) { stop(); <-stuck })))
	if status != boot.ExitCut || !strings.Contains(stderr.String(), `"deaf" did not start: it does not end`) {
		t.Errorf("exit status %d:\n%s", status, stderr)
	}
}

func TestRequirementOfAnAppIsKept(t *testing.T) {
	p, _ := process()
	f := fail(t, p, boot.App("main", boot.RequireScope(boot.Fleet)))
	if f.Code != "lock.scope_too_small" || f.Exit != boot.ExitConfig {
		t.Errorf("got %+v", f)
	}
	p, _ = process("MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	p.Only = []string{"main"} // the app that requires it does not run here
	start(t, p, boot.App("main"), boot.App("admin", boot.RequireScope(boot.Fleet)))
}
