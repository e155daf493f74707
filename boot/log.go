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

// logs contains the log handler and the log levels of a process. Each app has a
// level of its own. All levels can change while the process runs.
type logs struct {
	handler slog.Handler // writes records of all levels
	level   slog.LevelVar
	apps    map[string]*slog.LevelVar
}

// newLogs creates the loggers. They write text on a terminal and in env dev,
// and JSON elsewhere. Each line of a worker contains the worker's number.
func newLogs(w io.Writer, c *config.Config, worker int, v *veil) *logs {
	l := &logs{handler: newHandler(w, c, v), apps: map[string]*slog.LevelVar{}}
	if worker != 0 {
		l.handler = l.handler.WithAttrs([]slog.Attr{slog.Int("worker", worker)})
	}
	for name := range c.Apps {
		l.apps[name] = new(slog.LevelVar)
	}
	l.apply(c)
	return l
}

// newHandler returns a handler that writes all records, masked by v.
func newHandler(w io.Writer, c *config.Config, v *veil) slog.Handler {
	if !readable(w, c) {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: v.attr})
	}
	return tint.NewTextHandler(w, &tint.Options{
		ReplaceAttr: v.attr,
		Level:       slog.LevelDebug, TimeFormat: time.TimeOnly, NoColor: !isTerminal(w) || os.Getenv("NO_COLOR") != "",
	})
}

// apply sets the log levels of a configuration.
func (l *logs) apply(c *config.Config) {
	l.level.Set(levelOf(c.Log.Level))
	for name, level := range l.apps {
		level.Set(levelOf(c.Apps[name].LogLevel))
	}
}

func levelOf(text string) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil { // the schema allows only levels
		panic(err)
	}
	return level
}

// process returns the logger for records that belong to no app.
func (l *logs) process() *slog.Logger { return slog.New(leveled{l.handler, &l.level}) }

// app returns the logger of an app. It derives from the process's logger, which
// the program may have decorated.
func (l *logs) app(name string, process *slog.Logger) *slog.Logger {
	if h, ok := process.Handler().(leveled); ok {
		process = slog.New(leveled{h.Handler, l.apps[name]})
	}
	return process.With("app", name)
}

// leveled is a handler that drops records below a level.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

func (h leveled) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

func (h leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{h.Handler.WithAttrs(attrs), h.level}
}

func (h leveled) WithGroup(name string) slog.Handler {
	return leveled{h.Handler.WithGroup(name), h.level}
}

// readable reports whether the log is written as text for people.
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

// lockLog logs the lock events that matter to an operator. Events of every
// request only appear in statistics.
type lockLog struct{ log *slog.Logger }

// Observe writes an event of a Locker to the log.
func (l lockLog) Observe(e lock.Event) {
	switch e := e.(type) {
	case lock.Lost:
		l.warn("lock lost", e.Key, slog.Uint64("fence", e.Fence), slog.Duration("held", e.Held), failed(e.Err))
	case lock.Forgotten:
		l.warn("lock forgotten and released", e.Key, slog.Uint64("fence", e.Fence), slog.String("because", e.Reason), slog.String("acquired_at", e.Site))
	case lock.ForcedRelease:
		if e.Released == 0 {
			return // nobody held it
		}
		l.warn("lock released by force", e.Key, slog.String("reason", e.Reason), slog.Int("leases", e.Released))
	case lock.RenewFailed:
		l.warn("lock not renewed, trying again", e.Key, slog.Duration("left", e.Left), failed(e.Err))
	case lock.ReleaseFailed:
		l.warn("lock not released, trying again", e.Key, slog.Duration("left", e.Left), failed(e.Err))
	case lock.Unavailable:
		l.log.LogAttrs(context.Background(), slog.LevelError, "lock backend lost", failed(e.Err))
	case lock.Available:
		l.log.LogAttrs(context.Background(), slog.LevelInfo, "lock backend returned", slog.Duration("after", e.After))
	case lock.StillHeld:
		l.warn("shutdown waits for lock", e.Key, slog.Uint64("fence", e.Fence), slog.Duration("held", e.Held), slog.String("acquired_at", e.Site))
	case lock.PoolResized:
		l.warn("pool resized", e.Key, slog.Int("old", e.Old), slog.Int("new", e.New))
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
