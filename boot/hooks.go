package boot

import (
	"context"
	"fmt"

	"go.uber.org/fx"

	megactx "github.com/megaframework/mega/ctx"
)

// bindHooks passes the hooks their values, and adds them to the lifecycle.
func (b *booting) bindHooks(hooks []hookOption) (options []fx.Option) {
	for _, h := range hooks {
		var have bound
		options = append(options,
			fx.Invoke(h.fn.invocation(func(f bound) { have = f })),
			fx.Invoke(func(host *megactx.Host) { b.bind(h, have, host) }),
		)
	}
	return options
}

func (b *booting) bind(h hookOption, f bound, host *megactx.Host) {
	does := hook{name: h.name, budget: h.budget, run: func(ctx context.Context) error { return f.run(ctx, host) }}
	from := placeOf(h.fn, host)
	switch h.kind {
	case onPrimary:
		b.first = append(b.first, b.primary(does, from)...)
	case onStart:
		b.hooks = append(b.hooks, step{start: does, from: from})
	case onStop:
		b.hooks = append(b.hooks, step{end: does, phase: leaving})
	case onReady:
		b.probes.add(does)
	case onRun:
		b.tasks = append(b.tasks, b.task(does))
	}
}

// task returns a step that runs a function in a goroutine until the program
// stops.
func (b *booting) task(runs hook) step {
	var cancel context.CancelFunc
	done := make(chan struct{})
	begin := func(ctx context.Context) error {
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			defer close(done)
			if err := contained(ctx, runs.run); err != nil && ctx.Err() == nil {
				b.fail(fmt.Errorf("run %q: %w", runs.name, err))
			}
		}()
		return nil
	}
	end := func(ctx context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return step{
		start: hook{name: runs.name, budget: hookBudget, run: begin},
		end:   hook{name: runs.name, budget: runs.budget, run: end},
		phase: working,
	}
}

// placeOf returns where a function is declared and passed to an option, as
// facts of a Failure.
func placeOf(f function, host *megactx.Host) []Fact {
	facts := []Fact{{Name: "declared", Value: f.declared()}, {Name: "given at", Value: "mega." + f.option + ", " + f.site}}
	if app := host.App.Name; app != "" {
		facts = append(facts, Fact{Name: "app", Value: app})
	}
	return facts
}

// check returns an error if the name or the budget of a hook is invalid.
func (h hookOption) check() error {
	switch {
	case h.name == "":
		return h.fn.wrong("it has no name", "a name: whoever reads the log has to know what is meant")
	case h.budget <= 0:
		return h.fn.wrong(fmt.Sprintf("its budget is %v", h.budget), "a budget above 0, or none for the default")
	}
	return nil
}
