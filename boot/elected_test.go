package boot_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

func TestOneNodeLeadsAndHandsOverAtShutdown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	leads := make(chan string)
	node := func(name string) (shutdown func()) {
		p, _ := process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_LOCK_NAMESPACE=blue", "MEGA_LOCK_TTL=1m")
		r := start(t, p, mega.App("main", mega.Routes(hello), mega.Lead("the reaper", func(ctx *megactx.Ctx) error {
			if _, ok := ctx.Lease(); !ok {
				return errors.New("no lease")
			}
			select {
			case leads <- name:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return ctx.Err()
		})))
		want := plan.Elected{Name: "the reaper", Scope: "fleet", Lock: "mega:lead:blue:shop:main:the%20reaper"}
		if got := r.Report().Elected; len(got) != 1 || got[0] != want {
			t.Errorf("reported: %+v", got)
		}
		return func() {
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	stop := node("a")
	if name := <-leads; name != "a" {
		t.Fatal(name, "leads")
	}
	node("b")
	began := time.Now()
	stop()
	if name := <-leads; name != "b" || time.Since(began) > 30*time.Second {
		t.Errorf("%s leads %v after the shutdown; the TTL is a minute", name, time.Since(began))
	}
}

func TestHolderOfAnElectedFunctionNamesItsApp(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(string, any) mega.Option{
		"mega:lead::shop:main:work":  func(name string, fn any) mega.Option { return mega.Lead(name, fn) },
		"mega:every::shop:main:work": func(name string, fn any) mega.Option { return mega.Every(name, time.Hour, fn) },
	} {
		p, _ := process()
		found := make(chan string, 1)
		start(t, p, mega.App("main", mega.Routes(hello), option("work", func(ctx *megactx.Ctx) error {
			state, err := ctx.Lock.Inspect(name)
			if err != nil || len(state.Holders) != 1 {
				found <- fmt.Sprint(state.Holders, err)
			} else {
				found <- state.Holders[0].App
			}
			<-ctx.Done()
			return ctx.Err()
		})))
		if got := <-found; got != "main" {
			t.Errorf("%s is held by app %q, want main", name, got)
		}
	}
}

func TestEveryRunsOnceInAllNodesAndSurvivesPanics(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	var runs, ticks atomic.Int64
	for range 2 {
		p, _ := process("MEGA_CACHE_MAIN_URL=" + server.URL())
		start(t, p, mega.App("main", mega.Routes(hello),
			mega.Every("cleanup", 365*24*time.Hour, func(context.Context) { runs.Add(1) }),
			mega.Every("broken", 20*time.Millisecond, func(context.Context) { ticks.Add(1); panic("broken") }),
		))
	}
	until(t, "the work has run, and the broken work again after its panics", func() bool { return runs.Load() > 0 && ticks.Load() >= 3 })
	if n := runs.Load(); n != 1 {
		t.Errorf("%d runs in one tick", n)
	}
}

func TestWorkThatCallsGoexitIsAsWorkThatFails(t *testing.T) {
	t.Parallel()
	p, _ := process()
	var terms, ticks atomic.Int64
	r := start(t, p, mega.App("main", mega.Routes(hello),
		mega.Lead("reaper", func(ctx context.Context) error {
			if terms.Add(1) == 1 {
				runtime.Goexit()
			}
			<-ctx.Done()
			return ctx.Err()
		}),
		mega.Every("broken", 20*time.Millisecond, func(context.Context) { ticks.Add(1); runtime.Goexit() }),
	))
	until(t, "the work runs again", func() bool { return terms.Load() == 2 && ticks.Load() >= 3 })
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

func TestBackgroundFunctionsEndWithTheCauseOfTheShutdown(t *testing.T) {
	t.Parallel()
	causes := make(chan error, 3)
	begun := make(chan struct{})
	waits := func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	}
	p, stderr := process()
	r := start(t, p, mega.App("main", mega.Routes(hello), mega.Run("pump", waits), mega.Lead("reaper", waits), mega.Every("cleanup", time.Hour, waits)))
	for range cap(causes) {
		<-begun
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	for range cap(causes) {
		if cause := <-causes; !errors.Is(cause, mega.ErrShuttingDown) {
			t.Errorf("a function ended because of %v", cause)
		}
	}
	if strings.Contains(stderr.String(), "run failed during the shutdown") {
		t.Errorf("the end of a function is a failure:\n%s", stderr)
	}
}

func TestErrorOfALeaderThatTheShutdownEndsIsLogged(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func() error{
		"disk full":     func() error { return errors.New("disk full") },
		"panic: broken": func() error { panic("broken") },
	} {
		p, stderr := process()
		leads := make(chan struct{})
		r := start(t, p, mega.App("main", mega.Routes(hello), mega.Lead("reaper", func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			return fails()
		})))
		<-leads
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(stderr.String(), name); n != 1 || !strings.Contains(stderr.String(), `"run failed during the shutdown","run":"reaper"`) {
			t.Errorf("%q is logged %d times:\n%s", name, n, stderr)
		}
	}
}

func TestEveryAtLeastOnceRepeatsATickWhoseLockWasLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	p, _ := process("MEGA_CACHE_MAIN_URL=" + server.URL())
	var runs atomic.Int64
	again := make(chan struct{})
	start(t, p, mega.App("main", mega.Routes(hello), mega.Every("nightly", 365*24*time.Hour, func(ctx *megactx.Ctx) error {
		if runs.Add(1) == 2 {
			close(again)
			return nil
		}
		lease, _ := ctx.Lease()
		if _, err := ctx.Lock.ForceRelease(lease.Key(), "the node is taken out"); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}, mega.AtLeastOnce())))
	<-again
}

func TestEveryWithAnImpossibleIntervalFailsTheBoot(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{0, -time.Second, time.Minute + 1} {
		p, stderr := process()
		status := boot.Main(t.Context(), p, mega.App("main", mega.Every("cleanup", every, func(context.Context) {})))
		if status == 0 || !slices.ContainsFunc(strings.Split(stderr.String(), "\n"), func(line string) bool { return strings.Contains(line, "interval") }) {
			t.Errorf("%v: status %d, %s", every, status, stderr)
		}
	}
}

// The engine keeps no record of runs, so the program would end after it was ready.
func TestEveryOnTheEngineRedislockFailsTheBoot(t *testing.T) {
	t.Parallel()
	fn := func(context.Context) error { return nil }
	lead, every := mega.Lead("cleanup", fn), mega.Every("cleanup", time.Hour, fn)
	for _, x := range []struct {
		option  mega.Option
		environ []string
		refused bool
	}{
		{every, []string{"MEGA_CACHE_MAIN_URL=redis://h", "MEGA_LOCK_REDIS_ENGINE=redislock"}, true},
		{lead, []string{"MEGA_CACHE_MAIN_URL=redis://h", "MEGA_LOCK_REDIS_ENGINE=redislock"}, false},
		{every, []string{"MEGA_CACHE_MAIN_URL=redis://h"}, false},
		{every, []string{"MEGA_LOCK_REDIS_ENGINE=redislock"}, false},
	} {
		p, _ := process(x.environ...)
		p.Only = []string{"main"}
		made, err := boot.Plan(p, mega.App("main", x.option), mega.App("other", every))
		if err != nil {
			t.Fatal(err)
		}
		f, ok := errors.AsType[*failure.Failure](made.Refused)
		if ok != x.refused || ok && (f.Code != "lock.unsupported" || !strings.Contains(fmt.Sprint(f.Facts), "elected_test.go:")) {
			t.Errorf("%v: %v", x.environ, made.Refused)
		}
	}
}

func TestALockKeyThatIsTooLongFailsTheBoot(t *testing.T) {
	t.Parallel()
	fn := func(context.Context) error { return nil }
	for length, refused := range map[int]bool{400: false, 600: true} {
		name := strings.Repeat("x", length)
		for _, option := range []mega.Option{mega.Lead(name, fn), mega.Every(name, time.Hour, fn), mega.OnPrimary(name, fn)} {
			p, _ := process()
			_, err := boot.Plan(p, mega.App("main", option))
			f, ok := errors.AsType[*failure.Failure](err)
			if ok != refused || ok && (f.Code != "boot.wrong_shape" || !strings.Contains(fmt.Sprint(f.Facts), "elected_test.go:")) {
				t.Errorf("a name of %d bytes: %v", length, err)
			}
		}
	}
}

// A sum with a duration near the limit of its type is negative: the function would
// have no time at all.
func TestDurationsNearTheirLimitFailTheBoot(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"boot.wait_for", "shutdown.timeout", "shutdown.delay", "cluster.hang_timeout"} {
		p, _ := process()
		p.Set = []string{key + "=2562047h"}
		_, err := boot.Plan(p, mega.App("main"))
		if f, ok := errors.AsType[*failure.Failure](err); !ok || !strings.HasPrefix(f.Code, "config.") {
			t.Errorf("%s: %v", key, err)
		}
	}
	p, _ := process()
	_, err := boot.Plan(p, mega.App("main", mega.OnStart("x", func(context.Context) error { return nil }, mega.Budget(math.MaxInt64))))
	if f, ok := errors.AsType[*failure.Failure](err); !ok || f.Code != "boot.wrong_shape" {
		t.Errorf("a budget: %v", err)
	}
}

// Two functions of one name would share a lock: only one of them would run in a
// tick, or lead.
func TestElectedFunctionsOfAnAppHaveDifferentNames(t *testing.T) {
	fn := func(context.Context) error { return nil }
	for name, x := range map[string]struct {
		options []mega.Option
		refused bool
	}{
		"two Every":          {[]mega.Option{mega.App("main", mega.Every("job", time.Minute, fn), mega.Every("job", time.Hour, fn))}, true},
		"two Lead":           {[]mega.Option{mega.App("main", mega.Lead("job", fn), mega.Lead("job", fn))}, true},
		"two in the program": {[]mega.Option{mega.App("main"), mega.Every("job", time.Minute, fn), mega.Every("job", time.Minute, fn)}, true},
		"different kinds":    {[]mega.Option{mega.App("main", mega.Every("job", time.Minute, fn), mega.Lead("job", fn))}, false},
		"different apps":     {[]mega.Option{mega.App("main", mega.Lead("job", fn)), mega.App("other", mega.Lead("job", fn)), mega.Lead("job", fn)}, false},
	} {
		p, _ := process()
		_, err := boot.Plan(p, x.options...)
		f, ok := errors.AsType[*failure.Failure](err)
		if ok != x.refused || ok && (f.Code != "boot.wrong_shape" || !strings.Contains(fmt.Sprint(f.Facts), "elected_test.go:")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
