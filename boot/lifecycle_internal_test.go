package boot

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/settings"
)

func TestHookThatOverrunsItsBudgetIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lifecycle{log: slog.New(slog.DiscardHandler), steps: []step{{
			start: hook{"warm up", time.Minute, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		}}}
		began := time.Now()
		err := l.start(t.Context())
		f, ok := errors.AsType[*Failure](err)
		if !ok || f.Exit != failure.ExitOverrun || f.Code != "boot.hook_overrun" || !strings.Contains(f.Text, `"warm up" did not start within 1m0s`) {
			t.Errorf("got %+v, want status %d and the hook's name", err, failure.ExitOverrun)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// A hook whose context has ended may return the error of the work that it has given up,
// such as the one of a child process that was killed.
func TestErrorOfAnInterruptedHookNeedNotWrapTheContexts(t *testing.T) {
	killed := errors.New("signal: killed")
	begin := func(ctx context.Context) error {
		l := lifecycle{log: slog.New(slog.DiscardHandler), steps: []step{{
			start: hook{"dump", time.Minute, func(ctx context.Context) error { <-ctx.Done(); return killed }},
		}}}
		return l.start(ctx)
	}
	synctest.Test(t, func(t *testing.T) {
		err := begin(t.Context())
		if f, ok := errors.AsType[*Failure](err); !ok || f.Code != "boot.hook_overrun" || !errors.Is(f.Cause, killed) {
			t.Errorf("after its budget: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if err := begin(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, killed) {
			t.Errorf("after the end of the boot: %v", err)
		}
	})
}

// A nil pointer in an error is a frequent mistake of Go programs, and its
// methods panic. Those that log the error, or answer a probe with it, must not.
func TestFunctionThatReturnsANilPointerHasPanicked(t *testing.T) {
	var none *fs.PathError
	err := contained(t.Context(), func(context.Context) error { return none })
	if _, ok := errors.AsType[*panicError](err); !ok || !strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("got %T", err)
	}
}

func TestHookThatHeedsNothingIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var l lifecycle
		l.endWith(owning, hook{"store", time.Minute, func(context.Context) error { return nil }})
		l.endWith(leaving, hook{"pump", time.Minute, func(context.Context) error { <-stuck; return nil }})
		ended := false
		l.endWith(owning, hook{"file", time.Minute, func(context.Context) error { ended = true; return nil }})
		began := time.Now()
		err := l.stop(began, time.Hour)
		if err == nil || !strings.Contains(err.Error(), `"pump"`) || !errors.Is(err, errStuck) || !ended {
			t.Errorf("got %v, and what came after it was ended: %v", err, ended)
		}
		if took := time.Since(began); took != time.Minute+noticeTime {
			t.Errorf("it took %v", took)
		}
		close(stuck)
	})
}

// The supervisor kills a worker that takes much longer than the budget of its
// shutdown, before the worker has logged what it has cut off.
func TestHooksThatHeedNothingDelayTheShutdownLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var l lifecycle
		const hooks, budget = 9, 30 * time.Second
		for range hooks {
			l.endWith(leaving, hook{"pump", time.Minute, func(context.Context) error { <-stuck; return nil }})
		}
		began := time.Now()
		if err := l.stop(began, budget); !errors.Is(err, errStuck) {
			t.Errorf("got %v", err)
		}
		if over := time.Since(began) - budget; over > maxOvertime+hooks*(lastWord+lastNotice) {
			t.Errorf("the shutdown took %v more than its budget", over)
		}
		close(stuck)
	})
}

// All hooks together have the budget of the shutdown, whatever their own; and
// where requests have used it up, the rest still gets to let go.
func TestShutdownHasOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lifecycle
		left := map[phase]time.Duration{}
		for p := range phases {
			l.endWith(p, hook{"x", time.Hour, func(ctx context.Context) error {
				deadline, _ := ctx.Deadline()
				left[p] = time.Until(deadline)
				if p == serving {
					<-ctx.Done() // and nothing is left for work in flight
				}
				return nil
			}})
		}
		if err := l.stop(time.Now(), 30*time.Second); err != nil {
			t.Error(err)
		}
		want := map[phase]time.Duration{
			serving: 25 * time.Second, working: lastWord, leaving: 2500 * time.Millisecond, locking: 2500 * time.Millisecond,
			owning: 5 * time.Second, watching: 5 * time.Second,
		}
		if !maps.Equal(left, want) {
			t.Errorf("got %v\nwant %v", left, want)
		}
	})
}

func TestWhatPanicsAtTheEndDoesNotKeepTheRestFromEnding(t *testing.T) {
	var l lifecycle
	ended := false
	l.endWith(owning, hook{"store", time.Minute, func(context.Context) error { ended = true; return nil }})
	l.endWith(leaving, hook{"pump", time.Minute, func(context.Context) error { panic("dry") }})
	l.endWith(leaving, hook{"quitter", time.Minute, func(context.Context) error { runtime.Goexit(); return nil }})
	err := l.stop(time.Now(), time.Minute)
	if err == nil || !strings.Contains(err.Error(), "dry") || !strings.Contains(err.Error(), `"quitter"`) || !ended {
		t.Errorf("got %v, and the store was ended: %v", err, ended)
	}
}

// overran fails t unless err is the failure of a function of this file that did not return,
// after all of its time.
func overran(t *testing.T, err error, took time.Duration) {
	t.Helper()
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Code != "boot.constructor_overrun" || f.Exit != failure.ExitOverrun || !strings.Contains(f.Facts[0].Value, "lifecycle_internal_test.go") {
		t.Errorf("got %+v", err)
	}
	if took != time.Minute+hookBudget+noticeTime {
		t.Errorf("it took %v", took)
	}
}

func TestConstructorThatDoesNotReturnIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		b := &booting{ctx: t.Context(), plan: &plan.Plan{Config: &settings.Config{Config: config.Config{Boot: config.Boot{WaitFor: time.Minute}}}}}
		program, err := plan.NewProgram([]Option{plan.Provide(func() *int { <-leave; return nil }), plan.App("main")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		hang := program.Shared.Provides[0]
		began := time.Now()
		_, err = b.construct(hang, nil)
		overran(t, err, time.Since(began))
		close(leave)
	})
}

func TestFunctionOfRoutesThatDoesNotReturnIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		b := &booting{ctx: t.Context(), plan: &plan.Plan{Config: &settings.Config{Config: config.Config{Boot: config.Boot{WaitFor: time.Minute}}}}}
		program, err := plan.NewProgram([]Option{plan.App("main", plan.Routes(func(megactx.Router) { <-leave }))}, nil)
		if err != nil {
			t.Fatal(err)
		}
		app := &building{booting: b, name: "main"}
		app.route(program.Apps[0].Routes[0].Unbound(nil))
		began := time.Now()
		err = app.finish(&request.Host{})
		overran(t, err, time.Since(began))
		close(leave)
	})
}
