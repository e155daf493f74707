package boot

import (
	"context"
	"slices"

	"go.uber.org/fx"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/workers"
)

// Plan computes the plan of the program that options describe: it checks the
// program, loads the configuration and selects the drivers. It opens nothing, so
// that a test can check the configuration of a deployment. The fields Config,
// Lock, Bus and Limit are what a start would use, and Report returns its report.
//
// The error of Plan is a Failure. A selection that the program cannot start with
// is not an error here: the plan contains the decision, and the Failure in
// Refused.
func Plan(p Process, options ...Option) (*plan.Plan, error) {
	p = p.withDefaults()
	made, err := p.plan(context.Background(), options, workers.Inputs{})
	if err != nil {
		return nil, p.failureOf(err)
	}
	return made, nil
}

// plan runs the modules of the planning. They are the first half of the boot;
// stages are the second. An injector takes no options once it runs, and only
// the plan shows whether this process serves, supervises or explains: so that
// the halves are two runs of it. If ctx has ended, plan returns its error.
func (p Process) plan(ctx context.Context, options []Option, in workers.Inputs) (made *plan.Plan, err error) {
	app := fx.New(
		p.injectorLog(),
		fx.RecoverFromPanics(),
		fx.Module("config", fx.Provide(
			func() (*plan.Program, error) { return p.program(options) },
			func(program *plan.Program) (*settings.Config, *settings.Files, error) {
				return p.load(ctx, program, in)
			},
		)),
		fx.Module("select", fx.Provide(p.selects)),
		fx.Populate(&made),
	)
	if err = app.Err(); err != nil && ctx.Err() != nil {
		err = ctx.Err() // the providers of the configuration were not waited for
	}
	return made, err
}

// program returns the program that options describe, as far as this process
// runs it.
func (p Process) program(options []Option) (*plan.Program, error) {
	if err := plan.CheckTrace(p.Trace); err != nil {
		return nil, err
	}
	program, err := plan.NewProgram(options, p.Only)
	if err != nil {
		return nil, err
	}
	return program, checkFx(program)
}

// source returns the source of the configuration. The end of done ends the wait
// for its providers.
func (p Process) source(program *plan.Program, done <-chan struct{}) settings.Source {
	return settings.Source{
		Environ: p.Environ, Env: env(), Name: p.name(), Dir: p.Dir, File: p.Config, Set: p.Set, Flags: p.Flags, Private: p.Offline != nil,
		Apps: program.Names(), Only: p.Only, Sections: program.Sections(), Layers: program.Layers(), Done: done,
	}
}

// load loads the configuration from the files that a supervisor has kept.
// Without them it reads the files, and keeps a copy: a supervisor passes it to
// its workers, so that all of them start by the same version.
func (p Process) load(ctx context.Context, program *plan.Program, in workers.Inputs) (*settings.Config, *settings.Files, error) {
	s := p.source(program, ctx.Done())
	if s.Files = in.Start; s.Files == nil {
		s.Files = new(settings.Files)
	}
	read := s.Files
	c, err := settings.Load(s)
	read.Keep()
	if err == nil {
		err = program.CheckLockKeys(c)
	}
	if err != nil || in.Live == nil {
		return c, read, err
	}
	s.Files = in.Live // only live keys come from there
	next, _, err := settings.Reload(c, s)
	return next, read, err
}

// selects completes the plan with the drivers of the process.
func (p Process) selects(program *plan.Program, c *settings.Config, files *settings.Files) *plan.Plan {
	d, refused := p.decide(program, c)
	return &plan.Plan{Program: program, Config: c, Files: files, Decisions: d, Refused: refused}
}

// startable returns an error if the program of a plan cannot start in this
// process: because of its drivers, or because it needs a supervisor.
func (p Process) startable(made *plan.Plan) error {
	if made.Refused != nil {
		return made.Refused
	}
	if made.Config.Cluster.Workers > 1 && !p.isWorker() && p.Offline == nil {
		return supervisorMissing(made.Config, nil)
	}
	return nil
}

// traces reports whether the injector logs its steps.
func (p Process) traces() bool { return slices.Contains(p.Trace, plan.TraceFx) }

// decide selects the drivers of a process. The returned decisions are complete
// even if decide returns an error.
func (p Process) decide(program *plan.Program, c *settings.Config) (d plan.Decisions, err error) {
	s := selection.Surroundings{Worker: p.isWorker(), LeftOut: program.LeftOut(), Requirements: program.Requirements(), Timed: program.Timed()}
	if p.Offline == nil {
		return selection.Decide(c, s)
	}
	d.Lock, d.Limit = p.Offline.lock(), byCaller("limit", "memory", "process")
	if p.Offline.Bus != nil {
		d.Bus = p.Offline.bus()
		return d, nil
	}
	d.Bus, err = selection.Bus(c, s)
	return d, err
}

// supervisorMissing returns the failure for several workers without a
// supervisor: the program was not started as a whole, or the system cannot
// share listeners.
func supervisorMissing(c *settings.Config, cause error) error {
	return &Failure{
		Code: "cluster.no_supervisor", Exit: failure.ExitConfig, Cause: cause,
		Text:    "Several workers are configured, but this process has no supervisor for them.",
		Facts:   []failure.Fact{failure.Setting(c, "cluster.workers")},
		Actions: failure.Actions("Run one process", failure.Unset(c, "cluster.workers")),
	}
}
