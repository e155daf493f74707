package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var endCases = []testCase{
	{rule: "S8", claim: "no handler starts after Stop", run: noneAfterStop},
	{rule: "S8", claim: "queued messages are discarded and counted, and running handlers may finish", run: stopDiscards},
	{rule: "S8", claim: "Stop may be called inside its own handler, and twice", run: stopWithin},
	{rule: "S8", claim: "Stop, Drain and Close may run concurrently", run: stopMeetsAll},
	{rule: "S8", claim: "the end of the context stops the subscription", run: contextStops},
	{rule: "S8", claim: "Drain handles queued messages and accepts no new ones", run: subDrain},
	{rule: "S8", claim: "Drain ends with its context, and its error lists the remaining messages", run: subDrainBounded},
	{rule: "S8", claim: "Drain of a subscription inside its own handler returns", run: subDrainWithin},
	{rule: "S8", claim: "the backend forgets a subscription that has ended", needs: []fault{"Registrations"}, run: registrationsEnd},
}

func noneAfterStop(e *env) {
	a, b := e.pair()
	publishing, stop := context.WithCancel(e.Ctx)
	over := e.Async(func() {
		for publishing.Err() == nil {
			a.publish("x.y", "")
			e.breathe()
		}
	})
	for i := range suite.Scaled(200) {
		var stopped atomic.Bool
		var late atomic.Int64
		s := b.subscribe("x.*", func(context.Context, *bus.Msg) error {
			if stopped.Load() {
				late.Add(1)
			}
			return nil
		}, bus.Concurrency(1+i%3))
		e.Soon("messages come", func() bool { return s.Stats().Received > 0 })
		s.Stop()
		stopped.Store(true)
		e.Await(s.Done(), "the handlers that run return")
		// Those that were being called when it was stopped may be seen late.
		e.Want(int(late.Load()) <= 1+i%3, "%d handlers have started after Stop", late.Load())
		seen := late.Load()
		e.breathe()
		e.Want(late.Load() == seen, "a handler has started after Done")
	}
	stop()
	e.Await(over, "the publisher ends")
}

func stopDiscards(e *env) {
	a, b := e.pair()
	g := e.gate()
	running := e.gate()
	var finished atomic.Bool
	s := b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		running.open()
		g.pass(ctx)
		finished.Store(ctx.Err() == nil)
		return nil
	})
	for range 10 {
		a.publish("x", "")
	}
	a.flush()
	e.Soon("all have arrived", func() bool { return s.Stats().Received == 10 })
	e.Await(running.c, "the first is being handled")
	s.Stop()
	e.Must(s.Err(), "a subscription that was stopped")
	e.Want(s.Stats().Running == 1, "after Stop: %+v", s.Stats())
	g.open()
	e.Await(s.Done(), "it is over")
	e.Want(finished.Load(), "the context of the handler that ran has ended with Stop")
	e.Want(s.Stats().Handled == 1 && s.Stats().Discarded == 9, "it came to %+v", s.Stats())
}

func stopWithin(e *env) {
	a, b := e.pair()
	sub := make(chan *bus.Sub, 1)
	var handled atomic.Int64
	s := b.subscribe("x", func(context.Context, *bus.Msg) error {
		handled.Add(1)
		s := <-sub
		s.Stop()
		s.Stop()
		return nil
	})
	sub <- s
	for range 10 {
		a.publish("x", "")
	}
	a.flush()
	e.Await(s.Done(), "it is over")
	s.Stop()
	e.Want(handled.Load() == 1, "%d were handled, want 1", handled.Load())
}

func stopMeetsAll(e *env) {
	for range suite.Scaled(30) {
		b := e.process()
		ctx, cancel := context.WithCancel(e.Ctx)
		s, err := b.Subscribe(ctx, "x", func(context.Context, *bus.Msg) error { return nil })
		e.Must(err, "subscribe")
		b.publish("x", "")
		e.All(5, func(i int) {
			switch i {
			case 0:
				s.Stop()
			case 1:
				_ = s.Drain(e.Ctx)
			case 2:
				cancel()
			case 3:
				_ = b.Drain(e.Ctx)
			default:
				e.Must(b.Close(), "close")
			}
		})
		cancel()
		e.Await(s.Done(), "it is over")
		e.Must(b.Close(), "close again")
	}
}

func contextStops(e *env) {
	a, b := e.pair()
	cause := errors.New("the request is over")
	ctx, cancel := context.WithCancelCause(context.WithValue(e.Ctx, valueKey{}, "value"))
	running, ended := e.gate(), e.gate()
	s, err := b.Subscribe(ctx, "x", func(ctx context.Context, _ *bus.Msg) error {
		if ctx.Value(valueKey{}) != "value" {
			e.Report("the values of the subscription's context are missing")
		}
		running.open()
		e.listen(ctx)
		if !errors.Is(context.Cause(ctx), cause) {
			e.Report("the handler's context has ended with %v", context.Cause(ctx))
		}
		ended.open()
		return nil
	})
	e.Must(err, "subscribe")
	a.publish("x", "1")
	e.Await(running.c, "the handler runs")
	a.publish("x", "2")
	cancel(cause)
	e.Await(ended.c, "the handler's context ends")
	e.Await(s.Done(), "it is over")
	e.Is(s.Err(), context.Canceled, "why it ended")
	e.Is(s.Err(), cause, "why it ended")
	e.Want(s.Stats().Handled == 1, "%d were handled", s.Stats().Handled)
	_, err = b.Subscribe(ctx, "x", func(context.Context, *bus.Msg) error { return nil })
	e.Is(err, context.Canceled, "subscribe with a context that has ended")
}

type valueKey struct{}

func subDrain(e *env) {
	a, b := e.pair()
	n := suite.Scaled(300)
	in, other := b.listen("x"), b.listen("x")
	slow := &inbox{e: e}
	slow.Sub = b.subscribe("x", func(ctx context.Context, m *bus.Msg) error {
		time.Sleep(e.Unit / 1000)
		return slow.handle(ctx, m)
	})
	for i := range n {
		a.publish("x", fmt.Sprint(i))
	}
	a.flush()
	e.drain(in, slow)
	for _, s := range []*inbox{in, slow} {
		e.Want(s.len() == n, "%d of %d were handled when Drain had returned", s.len(), n)
		e.Must(s.Err(), "a subscription that was drained")
	}
	a.publish("x", "later")
	a.flush()
	e.drain(other, in)
	e.Want(other.len() == n+1 && in.len() == n, "after Drain one more was handled")
}

func subDrainBounded(e *env) {
	a, b := e.pair()
	g := e.gate()
	var cause atomic.Value
	s := b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		g.pass(ctx)
		cause.Store(ctx.Err())
		return nil
	})
	for range 3 {
		a.publish("x", "")
	}
	a.flush()
	e.Soon("they have arrived", func() bool { return s.Stats().Received == 3 })
	before := time.Now()
	ctx, cancel := e.within(2)
	defer cancel()
	err := s.Drain(ctx)
	e.Is(err, context.DeadlineExceeded, "drain")
	e.took(before, e.Units(2), 20, "a drain of 2 units")
	e.Await(s.Done(), "the handler's context was ended")
	e.Want(cause.Load() != nil && s.Stats().Discarded == 2, "the stats are %+v", s.Stats())
}

func subDrainWithin(e *env) {
	a, b := e.pair()
	sub := make(chan *bus.Sub, 1)
	in := &inbox{e: e}
	s := b.subscribe("x", func(ctx context.Context, m *bus.Msg) error {
		if in.len() == 0 {
			if err := (<-sub).Drain(ctx); err != nil {
				e.Report("drain within: %w", err)
			}
		}
		return in.handle(ctx, m)
	})
	in.Sub = s
	for i := range 5 {
		a.publish("x", fmt.Sprint(i))
	}
	a.flush()
	e.Soon("they have arrived", func() bool { return s.Stats().Received == 5 })
	sub <- s
	e.Await(s.Done(), "it is over")
	in.has("0", "1", "2", "3", "4")
}

func registrationsEnd(e *env) {
	a, b := e.pair()
	before := e.registrations()
	for range suite.Scaled(100) {
		in := b.listen("x.*")
		in.Stop()
		e.drain(b.listen("x.y", bus.Group("g")), a.listen(">"))
		ctx, cancel := context.WithCancel(e.Ctx)
		s, err := b.Subscribe(ctx, "x", func(context.Context, *bus.Msg) error { return nil })
		e.Must(err, "subscribe")
		cancel()
		e.Await(s.Done(), "it is over")
	}
	e.Soon(fmt.Sprintf("the backend is back at %d registrations", before), func() bool { return e.registrations() == before })
}

// registrations counts the subscriptions that the backend knows of.
func (e *env) registrations() int {
	n, err := e.h.Faults.Registrations()
	e.Must(err, "count the registrations")
	return n
}
