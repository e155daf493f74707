package boot

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
)

func TestHookThatOverrunsItsBudgetIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lifecycle{log: slog.New(slog.DiscardHandler), hooks: []namedHook{{
			name: "warm up", start: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		}}}
		err := l.start(t.Context())
		var f *Failure
		if !errors.As(err, &f) || f.Exit != ExitOverrun || f.Code != "boot.hook_overrun" || !strings.Contains(f.Text, "warm up") {
			t.Errorf("got %+v, want status %d and the hook's name", err, ExitOverrun)
		}
	})
}

func TestHookThatHeedsNothingIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		began := time.Now()
		l := lifecycle{log: slog.New(slog.DiscardHandler), started: 1, hooks: []namedHook{{
			name: "pump", budget: time.Minute, stop: func(context.Context) error { <-stuck; return nil },
		}}}
		ended := false
		l.values = []namedHook{{name: "store", budget: time.Minute, stop: func(context.Context) error { ended = true; return nil }}}
		err := l.stop(t.Context())
		if err == nil || !strings.Contains(err.Error(), `"pump"`) || !ended {
			t.Errorf("got %v, and what came after it was ended: %v", err, ended)
		}
		if took := time.Since(began); took != time.Minute+time.Second {
			t.Errorf("it took %v", took)
		}
		close(stuck)
	})
}

func TestServerThatDoesNotAnswerIsTriedUntilTheWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		w := waiting[driver.Driver]{log: slog.New(slog.DiscardHandler), limit: 10 * time.Second, hopeless: func(error) bool { return false }}
		w.open = opener(func(int) error { return down })
		if _, err := w.run(t.Context()); !errors.Is(err, down) || w.took != 10*time.Second || w.attempts < 5 {
			t.Errorf("got %v after %d attempts in %v", err, w.attempts, w.took)
		}
		w = waiting[driver.Driver]{log: w.log, limit: 10 * time.Second, hopeless: w.hopeless}
		w.open = opener(func(n int) error {
			if n < 3 {
				return down
			}
			return nil
		})
		if d, err := w.run(t.Context()); d == nil || err != nil || w.attempts != 3 {
			t.Errorf("got %v, %v after %d attempts", d, err, w.attempts)
		}
	})
}

// opener opens the memory driver unless fails says otherwise of the attempt.
func opener(fails func(attempt int) error) func(context.Context) (driver.Driver, error) {
	attempt := 0
	return func(context.Context) (driver.Driver, error) {
		attempt++
		if err := fails(attempt); err != nil {
			return nil, err
		}
		return memory.NewLock(), nil
	}
}
