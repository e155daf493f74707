package selection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
)

// never is a server that does not come up.
func never(err error, log *slog.Logger) waiting[int] {
	return waiting[int]{open: func(context.Context) (int, error) { return 0, err }, log: log, limit: time.Minute}
}

func TestWaitingEndsWithItsContextAndSaysBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		w := never(down, slog.New(slog.DiscardHandler))
		began := time.Now()
		_, err := w.run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

func TestWhatIsTheSameNextTimeIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := never(fmt.Errorf("%w: no such engine", driver.ErrInvalid), slog.New(slog.DiscardHandler))
		if _, err := w.run(t.Context()); err == nil || w.attempts != 1 || w.took != 0 {
			t.Errorf("got %v after %d attempts in %v", err, w.attempts, w.took)
		}
	})
}

func TestEachAttemptTellsItsCauseAndWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := never(errors.New("connection refused"), slog.New(slog.NewTextHandler(&log, nil)))
		_, err := w.run(t.Context())
		lines := strings.Count(log.String(), "\n")
		if err == nil || lines != w.attempts-1 || lines < 5 {
			t.Errorf("%d lines for %d attempts:\n%s", lines, w.attempts, &log)
		}
		for line := range strings.Lines(log.String()) {
			if !strings.Contains(line, `error="connection refused"`) || !strings.Contains(line, "left=") || !strings.Contains(line, "attempt=") {
				t.Errorf("got %q", line)
			}
		}
		if a := w.account(err); a.tried.Name != "tried" || !strings.Contains(a.tried.Value, "times in 1m0s") {
			t.Errorf("got %+v", a)
		}
	})
}

func TestServerThatDoesNotAnswerIsTriedUntilTheWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		w := waiting[driver.Driver]{log: slog.New(slog.DiscardHandler), limit: 10 * time.Second}
		w.open = opener(func(int) error { return down })
		if _, err := w.run(t.Context()); !errors.Is(err, down) || w.took != 10*time.Second || w.attempts < 5 {
			t.Errorf("got %v after %d attempts in %v", err, w.attempts, w.took)
		}
		w = waiting[driver.Driver]{log: w.log, limit: 10 * time.Second}
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

// A server that accepts connections and says nothing.
func TestSilentServerDoesNotOutlastTheWait(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: minAttempt, time.Second: minAttempt, 10 * time.Second: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := never(nil, slog.New(slog.DiscardHandler))
			w.limit, w.open = limit, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
			if _, err := w.run(t.Context()); !errors.Is(err, context.DeadlineExceeded) || w.took != want || w.attempts != 1 {
				t.Errorf("limit %v: %v after %d attempts in %v, want %v", limit, err, w.attempts, w.took, want)
			}
		})
	}
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
