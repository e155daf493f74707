package boot

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/plan"
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

// program returns the program that options describe, as far as this process
// runs it.
func (p Process) program(options []Option) (*plan.Program, error) {
	for _, topic := range p.Trace {
		if topic != traceFx {
			return nil, &Failure{
				Code: "boot.unknown_trace", Exit: ExitUsage, Text: fmt.Sprintf("There is nothing called %q to trace.", topic),
				Actions: []string{"trace the injector: " + traceFx},
			}
		}
	}
	return plan.NewProgram(options, p.Only)
}

// source returns the source of the configuration.
func (p Process) source(program *plan.Program) config.Source {
	return config.Source{
		Environ: p.Environ, Env: env(), Name: p.name(), Dir: p.Dir, File: p.Config, Set: p.Set,
		Apps: program.Names(), Only: p.Only, Sections: program.Sections(), Layers: program.Layers(),
	}
}

// traceFx is the name in Process.Trace that makes the injector log each of its
// steps.
const traceFx = "fx"

// injectorLog returns the logger of the injector: none, unless Trace contains
// traceFx. The injector runs before there is a configuration, and so has a
// separate plain log.
func (p Process) injectorLog() fx.Option {
	if !slices.Contains(p.Trace, traceFx) {
		return fx.NopLogger
	}
	return fx.WithLogger(func() fxevent.Logger {
		return &fxevent.SlogLogger{Logger: slog.New(slog.NewTextHandler(p.Stderr, nil)).With("trace", traceFx)}
	})
}
