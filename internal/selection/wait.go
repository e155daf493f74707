package selection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/refusal"
	"github.com/megaframework/mega/internal/settings"
	limitdriver "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock/driver"
)

// The pauses between attempts to reach a server.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// openServer opens the driver that was selected, at the server s, which may start
// later than this program.
func openServer[D any](ctx context.Context, c *settings.Config, d plan.Decision, s server, log *slog.Logger, open func(context.Context) (D, error)) (D, error) {
	w := waiting[D]{open: open, limit: c.Boot.WaitFor, log: log.With("component", d.Component, "driver", d.Chosen, "server", d.Server)}
	opened, err := w.run(ctx)
	if err != nil {
		var none D
		return none, s.failure(c, w.account(err), err)
	}
	return opened, nil
}

// minAttempt is the time that the last attempt has at least. A client's own
// timeout of a server that does not answer may be longer than the limit.
const minAttempt = 2 * time.Second

// waiting opens a driver or client whose server may start later than this
// program.
type waiting[D any] struct {
	open  func(context.Context) (D, error)
	log   *slog.Logger
	limit time.Duration

	attempts int
	took     time.Duration
}

// run retries until it succeeds, the limit is over or ctx ends, and logs the
// cause of each failed attempt. If ctx ends, the returned error wraps its
// error.
func (w *waiting[D]) run(ctx context.Context) (D, error) {
	began := time.Now()
	defer func() { w.took = time.Since(began) }()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		w.attempts++
		d, err := w.attempt(ctx, max(w.limit-time.Since(began), minAttempt))
		left := w.limit - time.Since(began)
		switch {
		case err == nil:
			return d, nil
		case ctx.Err() != nil:
			return d, errors.Join(ctx.Err(), err)
		case IsPermanent(err) || left <= 0:
			return d, err
		}
		w.log.Warn("waiting for the server", "attempt", w.attempts, "error", err, "left", left.Round(100*time.Millisecond))
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return d, ctx.Err()
		}
	}
}

// IsPermanent reports whether a retry would fail in the same way: the configuration is
// not valid, or the server refuses this program until somebody changes the
// configuration of either of them (L21).
func IsPermanent(err error) bool {
	for _, known := range []error{
		driver.ErrInvalid, driver.ErrUnsupported, limitdriver.ErrInvalid, limitdriver.ErrUnsupported, busdriver.ErrInvalid, busdriver.ErrUnsupported,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return refusal.Of(err) != refusal.None
}

// attempt opens the driver or client once, within d.
func (w *waiting[D]) attempt(ctx context.Context, d time.Duration) (D, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return w.open(ctx)
}

// attempts describes the attempts to reach a server.
type attempts struct {
	tried     failure.Fact
	permanent bool
}

// account describes the attempts after run has failed with err.
func (w *waiting[D]) account(err error) attempts {
	times := "once"
	if w.attempts > 1 {
		times = fmt.Sprintf("%d times", w.attempts)
	}
	return attempts{failure.Fact{Name: "tried", Value: fmt.Sprintf("%s in %v", times, w.took.Round(100*time.Millisecond))}, IsPermanent(err)}
}
