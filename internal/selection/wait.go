package selection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/failure"
)

// The pauses between attempts to reach a server.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// waiting opens a driver whose server may start later than this program.
type waiting[D any] struct {
	open     func(context.Context) (D, error)
	hopeless func(error) bool // reports whether a retry would fail in the same way
	log      *slog.Logger
	limit    time.Duration

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
		d, err := w.open(ctx)
		left := w.limit - time.Since(began)
		switch {
		case err == nil:
			return d, nil
		case ctx.Err() != nil:
			return d, errors.Join(ctx.Err(), err)
		case w.hopeless(err) || left <= 0:
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

// attempts describes the attempts to reach a server.
type attempts struct {
	tried    failure.Fact
	hopeless bool
}

func (w *waiting[D]) account(err error) attempts {
	times := "once"
	if w.attempts > 1 {
		times = fmt.Sprintf("%d times", w.attempts)
	}
	return attempts{failure.Fact{Name: "tried", Value: fmt.Sprintf("%s in %v", times, w.took.Round(100*time.Millisecond))}, w.hopeless(err)}
}

// denied reports whether a server refuses the credentials or the permissions of
// this process. A retry would fail in the same way (L21).
func denied(err error) bool {
	text := err.Error()
	return slices.ContainsFunc(denials(), func(denial string) bool { return strings.Contains(text, denial) })
}

// denials returns error texts of redis, of NATS and of their clients.
func denials() []string {
	return []string{
		"WRONGPASS ", "NOAUTH ", "NOPERM ", "ERR invalid password", "ERR AUTH ", "ERR Client sent AUTH",
		"nats: Authorization Violation", "nats: authorization violation", "nats: authentication expired", "nats: authentication revoked",
		"nats: account authentication expired", "nats: user authentication expired", "nats: user authentication revoked", "nats: permissions violation",
	}
}
