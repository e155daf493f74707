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
	"github.com/megaframework/mega/internal/supervisor"
	"github.com/megaframework/mega/internal/systemd"
)

// OwnProcess is what a program does once, when the process is its own, and
// returns its environment. It keeps client libraries from writing to standard
// error by themselves: what they would say comes back as errors, and is told
// once, by whoever asked. And it keeps to itself what a supervisor has passed to
// it: the descriptors are not those of its children.
func OwnProcess() (environ []string) {
	goredis.SetLogger(muted{})
	environ = os.Environ()
	for _, name := range slices.Concat(supervisor.Descriptors(), systemd.Variables()) {
		_ = os.Unsetenv(name) // it has a name
	}
	return environ
}

type muted struct{}

func (muted) Printf(context.Context, string, ...any) {}

// program is what options describe, as far as this process runs it.
func (p Process) program(options []Option) (*program, error) {
	for _, topic := range p.Trace {
		if topic != traceFx {
			return nil, &Failure{
				Code: "boot.unknown_trace", Exit: ExitUsage, Text: fmt.Sprintf("There is nothing called %q to trace.", topic),
				Actions: []string{"trace the injector: " + traceFx},
			}
		}
	}
	program, err := newProgram(options)
	if err != nil {
		return nil, err
	}
	return program, program.narrow(p.Only)
}

// source is where the configuration comes from.
func (p Process) source(program *program) config.Source {
	return config.Source{
		Environ: p.Environ, Env: env(), Name: p.name(), Dir: p.Dir, File: p.Config, Set: p.Set,
		Apps: program.names(), Only: p.Only, Sections: program.sections(), Layers: program.layers(),
	}
}

// traceFx in Process.Trace has the injector tell what it does, a line each.
const traceFx = "fx"

// injectorLog is where the injector tells what it does: nowhere, unless that is
// traced. It speaks before there is a configuration, and so has a plain log of
// its own.
func (p Process) injectorLog() fx.Option {
	if !slices.Contains(p.Trace, traceFx) {
		return fx.NopLogger
	}
	return fx.WithLogger(func() fxevent.Logger {
		return &fxevent.SlogLogger{Logger: slog.New(slog.NewTextHandler(p.Stderr, nil)).With("trace", traceFx)}
	})
}
