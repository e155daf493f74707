// Package logging has the loggers of a process, and writes the events of locks and
// the bus that matter to an operator to the log.
package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lmittmann/tint"

	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/secrets"
	"github.com/megaframework/mega/internal/settings"
)

// Logs contains the log handler and the log levels of a process. Each app has a
// level of its own. All levels can change while the process runs.
type Logs struct {
	handler slog.Handler // writes records of all levels
	level   slog.LevelVar
	apps    map[string]*slog.LevelVar
	records recentRecords // the last warnings and errors
}

// New creates the loggers. They write text on a terminal and in env dev,
// and JSON elsewhere. Each line of a worker contains the worker's number.
func New(w io.Writer, c *settings.Config, worker int, v *secrets.Veil) *Logs {
	l := &Logs{apps: map[string]*slog.LevelVar{}}
	l.handler = recorder{Handler: newHandler(w, c, v), records: &l.records, veil: v}
	if worker != 0 {
		l.handler = l.handler.WithAttrs([]slog.Attr{slog.Int("worker", worker)})
	}
	for name := range c.Apps {
		l.apps[name] = new(slog.LevelVar)
	}
	l.Apply(c)
	return l
}

// newHandler returns a handler that writes all records, masked by v.
func newHandler(w io.Writer, c *settings.Config, v *secrets.Veil) slog.Handler {
	if !Readable(w, c) {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: v.JSONAttr})
	}
	options := &tint.Options{
		ReplaceAttr: v.TextAttr,
		Level:       slog.LevelDebug, TimeFormat: time.TimeOnly, NoColor: !plain.Colours(w),
	}
	return newStackHandler(w, v.TextAttr, func(w io.Writer) slog.Handler { return tint.NewTextHandler(w, options) })
}

// Apply sets the log levels of a configuration.
func (l *Logs) Apply(c *settings.Config) {
	l.level.Set(levelOf(c.Log.Level))
	for name, level := range l.apps {
		level.Set(levelOf(c.Apps[name].LogLevel))
	}
}

// levels are the valid log levels.
var levels = []string{"debug", "info", "warn", "error"}

// Set sets the log level of an app, or of the whole process if app is empty. It
// holds until the next reload of the configuration.
func (l *Logs) Set(app, level string) error {
	if !slices.Contains(levels, level) {
		return fmt.Errorf("%q is none of %s", level, strings.Join(levels, ", "))
	}
	if app == "" {
		l.level.Set(levelOf(level))
		for _, of := range l.apps {
			of.Set(levelOf(level))
		}
		return nil
	}
	of, ok := l.apps[app]
	if !ok {
		return fmt.Errorf("there is no app %q", app)
	}
	of.Set(levelOf(level))
	return nil
}

func levelOf(text string) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil { // the schema allows only levels
		panic(err)
	}
	return level
}

// Recent returns the last warnings and errors of all loggers.
func (l *Logs) Recent() Recent { return l.records.recent() }

// Process returns the logger for records that belong to no app.
func (l *Logs) Process() *slog.Logger { return slog.New(leveled{l.handler, &l.level}) }

// App returns the logger of an app. It derives from the process's logger, which
// the program may have decorated.
func (l *Logs) App(name string, process *slog.Logger) *slog.Logger {
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

// Readable reports whether the log is written as text for people.
func Readable(w io.Writer, c *settings.Config) bool {
	if c.Log.Format == "auto" {
		return c.Env == "dev" || plain.IsTerminal(w)
	}
	return c.Log.Format == "text"
}
