package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.uber.org/fx"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/request"
)

// bindHooks passes the hooks their values, and adds them to the lifecycle.
func (b *booting) bindHooks(hooks []plan.Hook) (options []fx.Option) {
	for _, h := range hooks {
		if !b.isWanted(h) {
			continue
		}
		var have plan.Bound
		options = append(options,
			fx.Invoke(h.Fn.Invocation(func(f plan.Bound) { have = f })),
			fx.Invoke(func(host *request.Host) { b.bind(h, have, host) }),
		)
	}
	return options
}

func (b *booting) bind(h plan.Hook, f plan.Bound, host *request.Host) {
	does := hook{name: h.Name, budget: h.Budget, run: func(ctx context.Context) error { return f.Run(ctx, host) }}
	from := h.Fn.Place(host.App.Name)
	switch h.Kind {
	case plan.KindCommand:
		b.bindCommand(f, host)
	case plan.KindPrimary:
		b.steps.primary = append(b.steps.primary, b.primary(h, does, from)...)
	case plan.KindStart:
		b.steps.hooks = append(b.steps.hooks, step{start: does, from: from})
	case plan.KindStop:
		b.steps.hooks = append(b.steps.hooks, step{end: does, phase: leaving})
	case plan.KindReady:
		b.probes.Add(ops.Check{Name: does.name, Budget: does.budget, Run: contain(does.run)})
	case plan.KindRun:
		b.steps.tasks = append(b.steps.tasks, b.task(does))
	case plan.KindLead, plan.KindEvery:
		b.steps.tasks = append(b.steps.tasks, b.task(b.elected(h, does, host)))
	}
}

// task returns a step that runs a function in a goroutine until the program
// stops.
func (b *booting) task(runs hook) step {
	var cancel context.CancelCauseFunc
	done := make(chan struct{})
	begin := func(ctx context.Context) error {
		ctx, cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		go func() {
			defer close(done)
			concluded(ctx, runs.run, func(err error) {
				if ctx.Err() == nil {
					b.taskReturned(runs.name, err)
					return
				}
				b.taskStopped(runs.name, err)
			})
		}()
		return nil
	}
	end := func(ctx context.Context) error {
		cancel(request.ErrShuttingDown)
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the function has not returned: %w", ctx.Err())
		}
	}
	return step{
		start: hook{name: runs.name, budget: hookBudget, run: begin},
		end:   hook{name: runs.name, budget: runs.budget, run: end},
		phase: working,
	}
}

// taskReturned ends the program if a task has failed, or if it was the last one of a
// program that ends with its tasks.
func (b *booting) taskReturned(name string, err error) {
	switch {
	case err != nil:
		b.fail(fmt.Errorf("run %q: %w", name, err))
	case b.unfinished.Add(-1) == 0 && b.ends():
		b.log.Info("all Run functions have returned")
		b.fail(shutdownError{failure.ExitOK})
	}
}

// taskStopped logs the failure of a task that the shutdown has ended. An error that wraps
// the end of its context, or the cause of that end, is no failure.
func (b *booting) taskStopped(name string, err error) {
	_, hasPanicked := errors.AsType[*panicError](err)
	isEnd := errors.Is(err, context.Canceled) || errors.Is(err, request.ErrShuttingDown)
	if err == nil || isEnd && !hasPanicked {
		return
	}
	attrs := append([]slog.Attr{slog.String("run", name)}, logging.ErrorAttrs(err)...)
	b.log.LogAttrs(context.Background(), slog.LevelWarn, "run failed during the shutdown", attrs...)
}

// ends reports whether the process ends when its Run functions have returned. A
// supervisor would start a worker again.
func (b *booting) ends() bool {
	return b.plan.Program.Ends() && !b.supervised() && b.process.Offline == nil
}
