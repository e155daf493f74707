package boot

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/lock"
)

// newLog returns the logger of a process: lines for people on a terminal and
// in dev, JSON elsewhere.
func newLog(w io.Writer, c *config.Config) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Log.Level)); err != nil { // the schema allows only levels
		panic(err)
	}
	if !readable(w, c) {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{
		Level: level, TimeFormat: time.TimeOnly, NoColor: !isTerminal(w) || os.Getenv("NO_COLOR") != "",
	}))
}

// readable reports whether people read the log as it is written.
func readable(w io.Writer, c *config.Config) bool {
	if c.Log.Format == "auto" {
		return c.Env == "dev" || isTerminal(w)
	}
	return c.Log.Format == "text"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// lockLog tells the log what an operator wants to know of locks. What happens
// with every request is left to statistics.
type lockLog struct{ log *slog.Logger }

// Observe writes an event of a Locker to the log.
func (l lockLog) Observe(e lock.Event) {
	switch e := e.(type) {
	case lock.Lost:
		l.warn("lock lost", e.Key, slog.Uint64("fence", e.Fence), slog.Duration("held", e.Held), failed(e.Err))
	case lock.Forgotten:
		l.warn("lock forgotten and released", e.Key, slog.Uint64("fence", e.Fence), slog.String("because", e.Reason), slog.String("acquired_at", e.Site))
	case lock.ForcedRelease:
		l.warn("lock released by force", e.Key, slog.String("reason", e.Reason), slog.Int("leases", e.Released))
	case lock.RenewFailed:
		l.warn("lock not renewed, trying again", e.Key, slog.Duration("left", e.Left), failed(e.Err))
	case lock.ReleaseFailed:
		l.warn("lock not released, trying again", e.Key, slog.Duration("left", e.Left), failed(e.Err))
	case lock.PoolResized:
		l.warn("callers disagree about the size of a pool", e.Key, slog.Int("old", e.Old), slog.Int("new", e.New))
	}
}

func (l lockLog) warn(text, key string, attrs ...slog.Attr) {
	l.log.LogAttrs(context.Background(), slog.LevelWarn, text, append([]slog.Attr{slog.String("key", key)}, attrs...)...)
}

func failed(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.String("error", err.Error())
}
