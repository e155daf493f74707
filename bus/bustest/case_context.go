package bustest

import (
	"context"
	"errors"

	"github.com/megaframework/mega/bus"
)

var contextCases = []testCase{
	{rule: "S20", claim: "the handler's context does not end when draining begins", run: drainEndsNoContext},
	{rule: "S20", claim: "the handler's context ends with Close", run: closeEndsContexts},
	{rule: "S20", claim: "the handler's context ends at the deadline of the drain", run: windowEndsContexts},
	{rule: "S20", claim: "a handler finds its message in its context", run: messageInContext},
}

func drainEndsNoContext(e *env) {
	a, b := e.pair()
	g, running := e.gate(), e.gate()
	var handled, ended bool
	b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		running.open()
		g.pass(ctx)
		handled, ended = true, ctx.Err() != nil
		return nil
	})
	a.publish("x", "")
	e.Await(running.c, "the handler runs")
	over := e.Async(func() { e.Must(b.Drain(e.Ctx), "drain") })
	e.Soon("it is draining", func() bool { state, _ := b.State(); return state == bus.StateDraining })
	e.Pass(1)
	g.open()
	e.Await(over, "the drain ends")
	e.Want(handled && !ended, "the handler's context has ended when draining began")
}

func closeEndsContexts(e *env) {
	a, b := e.pair()
	running := e.gate()
	cause := make(chan error, 1)
	b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		running.open()
		e.listen(ctx)
		cause <- context.Cause(ctx)
		return nil
	})
	a.publish("x", "")
	e.Await(running.c, "the handler runs")
	e.Must(b.Close(), "close")
	e.Is(receive(e, cause, "the handler's context ends"), bus.ErrClosed, "why the context ended")
}

func windowEndsContexts(e *env) {
	a, b := e.pair()
	running := e.gate()
	ended := make(chan error, 1)
	b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		running.open()
		e.listen(ctx)
		ended <- ctx.Err()
		return nil
	}, bus.Name("slow"))
	a.publish("x", "")
	e.Await(running.c, "the handler runs")
	ctx, cancel := e.within(1)
	defer cancel()
	err := b.Drain(ctx)
	e.Is(err, context.DeadlineExceeded, "drain")
	var left *bus.UnfinishedError
	e.Want(errors.As(err, &left) && len(left.Subs) == 1 && left.Subs[0].Name == "slow", "the drain returned %v", err)
	e.Is(receive(e, ended, "the handler's context ends"), context.Canceled, "the end of the handler's context")
}

func messageInContext(e *env) {
	a, b := e.pair()
	seen := e.gate()
	b.subscribe("x", func(ctx context.Context, m *bus.Msg) error {
		derived, cancel := context.WithCancel(ctx)
		defer cancel()
		if got, ok := bus.MsgFrom(derived); !ok || got != m {
			e.Report("the context knows of %v, want %v", got, m)
		}
		seen.open()
		return nil
	})
	a.publish("x", "")
	e.Await(seen.c, "it is handled")
}
