package boot

import (
	"context"
	"log/slog"
	"os"
	"slices"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/internal/systemd"
	"github.com/megaframework/mega/internal/workers"
)

// OwnProcess prepares a process that belongs to the program alone, once, and
// returns its environment. It keeps client libraries from writing to standard
// error: their messages are returned as errors, and the caller reports them. It
// also removes the variables of the descriptors that a supervisor has passed,
// since they are not for child processes.
func OwnProcess() (environ []string) {
	goredis.SetLogger(muted{})
	environ = os.Environ()
	for _, name := range slices.Concat(workers.Descriptors(), systemd.Variables()) {
		_ = os.Unsetenv(name) // it has a name
	}
	return environ
}

type muted struct{}

func (muted) Printf(context.Context, string, ...any) {}

// traceFx is the name in Process.Trace that makes the injector log each of its
// steps.
const traceFx = "fx"

// injectorLog returns the logger of the injector: none, unless Trace contains
// traceFx. The injector runs before there is a configuration, and so has a
// separate plain log.
func (p Process) injectorLog() fx.Option {
	if !p.traces() {
		return fx.NopLogger
	}
	return fx.WithLogger(func() fxevent.Logger {
		return &fxevent.SlogLogger{Logger: slog.New(slog.NewTextHandler(p.Stderr, nil)).With("trace", traceFx)}
	})
}
