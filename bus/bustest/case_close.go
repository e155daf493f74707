package bustest

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/bus"
)

var closeCases = []testCase{
	{rule: "S22", claim: "after Close every call is ErrClosed at once", run: closed},
	{rule: "S22", claim: "Close ends a thousand requests in flight", run: closeEndsRequests},
	{rule: "S22", claim: "Close does not wait for a handler that does not listen, and names it", run: closeNames},
	{rule: "S22", claim: "Close while everything is in use leaves nothing", run: closeUnderLoad},
	{rule: "S22", claim: "Close while the backend is away is quick", needs: []fault{"Down", "Up"}, run: closeWhileDown},
}

func closed(e *env) {
	b := e.process()
	in := b.listen("x")
	s := b.echo("x")
	b.publish("x", "1")
	e.must(b.Close(), "close")
	e.must(b.Close(), "close again")
	before := time.Now()
	for verb, err := range b.verbs("x") {
		e.is(err, bus.ErrClosed, "%s", verb)
		e.hasCode(err, "bus.closed")
	}
	e.is(b.Flush(e.ctx), bus.ErrClosed, "flush")
	e.is(b.Drain(e.ctx), bus.ErrClosed, "drain")
	in.Stop()
	e.must(in.Drain(e.ctx), "drain a subscription")
	e.is(in.Err(), bus.ErrClosed, "why the subscription ended")
	e.is(s.Err(), bus.ErrClosed, "why the responder ended")
	e.await(in.Done(), "it is over")
	state, _ := b.State()
	e.want(state == bus.StateClosed && b.Info().Name != "" && b.Stats().State == bus.StateClosed, "the state is %s", state)
	e.took(before, 0, 10, "all these calls")
}

func closeEndsRequests(e *env) {
	a, b := e.pair()
	s := b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { e.listen(ctx); return nil, nil }, bus.Concurrency(bus.MaxConcurrency))
	n := min(max(Scaled(1000), 100), bus.MaxConcurrency)
	var over []<-chan struct{}
	for range n {
		over = append(over, e.async(func() {
			_, err := a.Request(e.ctx, "x", nil)
			if !errors.Is(err, bus.ErrClosed) {
				e.report("request: %w", err)
			}
		}))
	}
	e.soon("they are in flight", func() bool { return s.Stats().Running == n })
	before := time.Now()
	e.must(a.Close(), "close")
	for _, c := range over {
		e.await(c, "the requests end")
	}
	e.took(before, 0, 20, "closing")
}

func closeNames(e *env) {
	b := e.process()
	b.cut.Store(true) // the case checks the error of its Close
	hold, running := e.gate(), e.gate()
	s := b.subscribe("x", func(context.Context, *bus.Msg) error { running.open(); <-hold.c; return nil }, bus.Name("deaf"))
	b.publish("x", "")
	e.await(running.c, "the handler runs")
	before := time.Now()
	err := b.Close()
	e.took(before, 250*time.Millisecond, 20, "closing")
	var left *bus.UnfinishedError
	e.want(errors.As(err, &left) && len(left.Subs) == 1 && left.Subs[0].Name == "deaf", "close says %v", err)
	hold.open()
	e.await(s.Done(), "it is over")
}

func closeUnderLoad(e *env) {
	for range Scaled(10) {
		a, b := e.pair()
		b.echo("x")
		b.listen(">")
		b.listen("x", bus.Group("g"))
		var over []<-chan struct{}
		for range 4 {
			over = append(over, e.async(func() {
				for b.Publish(e.ctx, "x", nil) == nil {
					e.breathe()
				}
			}), e.async(func() {
				for {
					if _, err := b.Request(e.ctx, "x", nil); errors.Is(err, bus.ErrClosed) {
						return
					}
					e.breathe()
				}
			}), e.async(func() {
				for {
					s, err := b.Subscribe(e.ctx, "y", func(context.Context, *bus.Msg) error { return nil })
					if err != nil {
						e.is(err, bus.ErrClosed, "subscribe")
						return
					}
					s.Stop()
					e.breathe()
				}
			}))
		}
		e.soon("they are at it", func() bool { return b.Stats().Total.Received > 200 })
		e.must(b.Close(), "close")
		for _, c := range over {
			e.await(c, "all calls end")
		}
		e.must(a.Close(), "close the other")
	}
}

func closeWhileDown(e *env) {
	b := e.process()
	b.listen("x")
	e.down()
	e.isDisconnected(b)
	publishMany(b, "x", 1, 5)
	before := time.Now()
	err := b.Close()
	e.want(err == nil || errors.Is(err, bus.ErrDisconnected), "close says %v", err)
	b.cut.Store(true)
	e.took(before, 0, 30, "closing")
	e.up()
}
