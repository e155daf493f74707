package bustest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var closeCases = []testCase{
	{rule: "S22", claim: "after Close every call is ErrClosed at once", run: closed},
	{rule: "S22", claim: "Close ends a thousand requests in flight", run: closeEndsRequests},
	{rule: "S22", claim: "Close ends a Flush and a Publish that wait for a backend that is away", needs: []fault{"Down", "Up"}, run: closeEndsWaits},
	{rule: "S22", claim: "Close ends a Flush and a Publish that wait for a stopped backend", needs: []fault{"Pause", "Continue"}, run: closeEndsWaitsAtStandstill},
	{rule: "S22", claim: "Close does not wait for a handler that ignores its context, and names it", run: closeNames},
	{rule: "S22", claim: "Close while everything is in use leaves nothing", run: closeUnderLoad},
	{rule: "S22", claim: "Close while the backend is away is quick, and has the number of messages that were not confirmed", needs: []fault{"Down", "Up"}, run: closeWhileDown},
}

func closed(e *env) {
	b := e.process()
	in := b.listen("x")
	var asked *bus.Msg
	s := b.respond("x", func(_ context.Context, m *bus.Msg) ([]byte, error) { asked = m; return nil, nil })
	b.request("x", "")
	b.publish("x", "1")
	e.Must(b.Close(), "close")
	e.Must(b.Close(), "close again")
	e.Must(b.driver.Close(e.Ctx), "close the driver again")
	before := time.Now()
	for verb, err := range b.verbs("x") {
		e.Is(err, bus.ErrClosed, "%s", verb)
		e.hasCode(err, "bus.closed")
	}
	e.Is(asked.Reply(e.Ctx, nil), bus.ErrClosed, "reply")
	e.Is(b.Flush(e.Ctx), bus.ErrClosed, "flush")
	e.Is(b.Drain(e.Ctx), bus.ErrClosed, "drain")
	in.Stop()
	e.Must(in.Drain(e.Ctx), "drain a subscription")
	e.Is(in.Err(), bus.ErrClosed, "why the subscription ended")
	e.Is(s.Err(), bus.ErrClosed, "why the responder ended")
	e.Await(in.Done(), "it is over")
	state, _ := b.State()
	e.Want(state == bus.StateClosed && b.Info().Name != "" && b.Stats().State == bus.StateClosed, "the state is %s", state)
	e.took(before, 0, 10, "all these calls")
}

func closeEndsRequests(e *env) {
	a, b := e.pair()
	hold := e.gate()
	s := b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { hold.pass(ctx); return nil, nil }, bus.Concurrency(bus.MaxConcurrency))
	n := min(max(suite.Scaled(1000), 100), bus.MaxConcurrency)
	var over []<-chan struct{}
	for range n {
		over = append(over, e.Async(func() {
			_, err := a.Request(e.Ctx, "x", nil)
			if !errors.Is(err, bus.ErrClosed) {
				e.Report("request: %w", err)
			}
		}))
	}
	e.Soon("they are in flight", func() bool { return s.Stats().Running == n })
	before := time.Now()
	e.Must(a.Close(), "close")
	for _, c := range over {
		e.Await(c, "the requests end")
	}
	e.took(before, 0, 20, "closing")
	hold.open()
	e.Soon("no handler runs", func() bool { return s.Stats().Running == 0 }) // on a busy machine that takes longer than the grace of Close
}

func closeEndsWaits(e *env) {
	b := e.process()
	e.down()
	e.isDisconnected(b)
	e.closeEndsWaits(b)
	e.up()
}

func closeEndsWaitsAtStandstill(e *env) {
	b := e.process()
	e.AtEnd(func() { _ = e.h.Faults.Continue() })
	e.Must(e.h.Faults.Pause(), "pause")
	e.closeEndsWaits(b)
	e.Must(e.h.Faults.Continue(), "continue")
}

// closeEndsWaits closes b while calls wait for a backend that does not answer.
func (e *env) closeEndsWaits(b *process) {
	b.cut.Store(true) // the error of Close is about the backend
	e.fill(b)
	ctx, cancel := e.within(1)
	defer cancel()
	err := b.Flush(ctx)
	e.Want(err != nil, "Flush does not wait for the backend")
	var over []<-chan struct{}
	for name, call := range map[string]func(context.Context) error{
		"flush":   b.Flush,
		"publish": func(ctx context.Context) error { return b.Publish(ctx, "x", make([]byte, 1<<19)) },
	} {
		for range 16 {
			over = append(over, e.Async(func() {
				ctx, cancel := context.WithTimeout(e.Ctx, time.Hour)
				defer cancel()
				if err := call(ctx); !errors.Is(err, bus.ErrClosed) {
					e.Report("%s: %w", name, err)
				}
			}))
		}
	}
	e.breathe() // so that they wait
	_ = b.Close()
	for _, c := range over {
		e.Await(c, "they end")
	}
}

func closeNames(e *env) {
	b := e.process()
	b.cut.Store(true) // the case checks the error of its Close
	hold, running := e.gate(), e.gate()
	s := b.subscribe("x", func(context.Context, *bus.Msg) error { running.open(); <-hold.c; return nil }, bus.Name("deaf"))
	b.publish("x", "")
	e.Await(running.c, "the handler runs")
	before := time.Now()
	err := b.Close()
	e.took(before, 250*time.Millisecond, 20, "closing")
	var left *bus.UnfinishedError
	e.Want(errors.As(err, &left) && len(left.Subs) == 1 && left.Subs[0].Name == "deaf", "close returned %v", err)
	hold.open()
	e.Await(s.Done(), "it is over")
}

func closeUnderLoad(e *env) {
	for range suite.Scaled(10) {
		a, b := e.pair()
		b.cut.Store(true) // the case checks the error of its Close
		subs := []*bus.Sub{b.echo("x"), b.listen(">").Sub, b.listen("x", bus.Group("g")).Sub}
		var over []<-chan struct{}
		for range 4 {
			over = append(over, e.Async(func() {
				for b.Publish(e.Ctx, "x", nil) == nil {
					e.breathe()
				}
			}), e.Async(func() {
				for {
					if _, err := b.Request(e.Ctx, "x", nil); errors.Is(err, bus.ErrClosed) {
						return
					}
					e.breathe()
				}
			}), e.Async(func() {
				for {
					if err := b.Flush(e.Ctx); err != nil {
						e.Is(err, bus.ErrClosed, "flush")
						return
					}
					e.breathe()
				}
			}), e.Async(func() {
				for {
					s, err := b.Subscribe(e.Ctx, "y", func(context.Context, *bus.Msg) error { return nil })
					if err != nil {
						e.Is(err, bus.ErrClosed, "subscribe")
						return
					}
					s.Stop()
					e.breathe()
				}
			}))
		}
		e.Soon("they are at it", func() bool { return b.Stats().Total.Received > 200 })
		err := b.Close()
		// On a busy machine a handler may not get a processor within the grace.
		if left, cut := errors.AsType[*bus.UnfinishedError](err); !cut || len(left.Subs) == 0 {
			e.Must(err, "close")
		}
		for _, c := range over {
			e.Await(c, "all calls end")
		}
		for _, s := range subs {
			e.Await(s.Done(), "a subscription ends")
		}
		e.Must(a.Close(), "close the other")
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
	e.Is(err, bus.ErrDisconnected, "close")
	e.Want(strings.Contains(err.Error(), "5 accepted messages not confirmed"), "the close does not report 5 messages: %v", err) // S4
	b.cut.Store(true)
	e.took(before, 0, 30, "closing")
	e.up()
}
