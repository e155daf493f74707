package bustest

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var nestedCases = []testCase{
	{rule: "S26", claim: "every call may be made inside a handler", run: callsWithin},
	{rule: "S26", claim: "a publisher may hold a mutex that its subscribers lock", run: heldMutex},
	{rule: "S26", claim: "two responders that request from each other are answered", run: askEachOther},
	{rule: "S26", claim: "Close inside a handler does not wait for that handler", run: closeWithin},
}

func callsWithin(e *env) {
	a, b := e.pair()
	over := e.gate()
	other, third := b.listen("other"), b.listen("third")
	b.echo("ask")
	b.subscribe("x", func(ctx context.Context, m *bus.Msg) error {
		defer over.open()
		check := func(err error, what string) {
			if err != nil {
				e.Report("%s: %w", what, err)
			}
		}
		check(b.Publish(ctx, "other", []byte("from within")), "publish")
		_, err := b.Request(ctx, "ask", nil)
		check(err, "request")
		s, err := b.Subscribe(ctx, "inner", func(context.Context, *bus.Msg) error { return nil })
		check(err, "subscribe")
		r, err := b.Respond(ctx, "inner", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("in"), nil })
		check(err, "respond")
		got, err := b.Request(ctx, "inner", nil)
		check(err, "request what was just made")
		if err == nil && string(got.Data) != "in" {
			e.Report("the answer is %q", got.Data)
		}
		check(b.Flush(ctx), "flush")
		check(r.Drain(ctx), "drain what was just made")
		s.Stop()
		check(third.Drain(ctx), "drain another")
		b.Stats()
		b.Info()
		return nil
	})
	a.publish("x", "")
	e.Await(over.c, "the handler returns")
	other.wants("from within")
	e.Await(third.Done(), "the other one is drained")
}

func heldMutex(e *env) {
	p := e.process()
	n := suite.Scaled(5000)
	mu := make(chan struct{}, 1) // a mutex that fake time does not wait for
	in := &inbox{e: e}
	in.Sub = p.subscribe("x", func(ctx context.Context, m *bus.Msg) error {
		mu <- struct{}{}
		defer func() { <-mu }()
		return in.handle(ctx, m)
	}, roomFor(n))
	over := e.Async(func() {
		mu <- struct{}{}
		defer func() { <-mu }()
		for i := range n {
			p.publish("x", strconv.Itoa(i))
		}
		p.flush()
		p.listen("y").Stop()
	})
	e.Await(over, "the publisher is through")
	e.drain(in)
	e.Want(in.len() == n, "%d of %d were handled", in.len(), n)
}

func askEachOther(e *env) {
	a, b := e.pair()
	pass := func(p *process, to string) bus.Responder {
		return func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			if len(m.Data) == 0 {
				return []byte("end"), nil
			}
			got, err := p.Request(ctx, to, m.Data[1:])
			if err != nil {
				return nil, err
			}
			return got.Data, nil
		}
	}
	a.respond("ping", pass(a, "pong"))
	b.respond("pong", pass(b, "ping"))
	e.All(8, func(int) {
		for range suite.Scaled(10) {
			if got := a.request("ping", "12345"); got != "end" {
				e.Fail("the answer is %q", got)
			}
		}
	})
}

// closeWithin has two handlers close the process at once, while a third ends with
// its context, and then one while another hangs.
func closeWithin(e *env) {
	p := e.process()
	ready, ended := make(chan struct{}, 3), make(chan time.Duration, 2)
	g, returned := e.gate(), e.gate()
	for _, pattern := range []string{"x", "*"} {
		p.subscribe(pattern, func(context.Context, *bus.Msg) error {
			ready <- struct{}{}
			<-g.c
			before := time.Now()
			if err := p.Close(); err != nil {
				e.Report("Close within a handler: %w", err)
			}
			ended <- time.Since(before)
			return nil
		}, bus.Name("closes "+pattern))
	}
	p.subscribe(">", func(ctx context.Context, _ *bus.Msg) error {
		ready <- struct{}{}
		e.listen(ctx)
		returned.open()
		return nil
	})
	p.publish("x", "")
	for range 3 {
		receive(e, ready, "the handlers run")
	}
	g.open()
	for range 2 {
		took := receive(e, ended, "Close returns")
		e.Want(took < 200*time.Millisecond || !e.h.FakeTime && took < e.Units(5), "Close within a handler took %v", took)
		select {
		case <-returned.c:
		default:
			e.Report("Close within a handler has not waited for the other one")
		}
	}
	e.closeBesideOneThatHangs()
}

func (e *env) closeBesideOneThatHangs() {
	p := e.process()
	p.cut.Store(true) // its Close reports the hanging handler
	g := e.gate()
	running, ended := e.gate(), make(chan error, 1)
	hangs := p.subscribe("x", func(context.Context, *bus.Msg) error { running.open(); <-g.c; return nil }, bus.Name("hangs"))
	closes := p.subscribe("y", func(context.Context, *bus.Msg) error { ended <- p.Close(); return nil }, bus.Name("closes"))
	p.publish("x", "")
	e.Await(running.c, "one hangs")
	p.publish("y", "")
	err := receive(e, ended, "Close returns")
	left, ok := errors.AsType[*bus.UnfinishedError](err)
	e.Want(ok && len(left.Subs) == 1 && left.Subs[0].Name == "hangs", "Close inside a handler, beside one that hangs, returned %v", err)
	g.open()
	e.Await(hangs.Done(), "the one that hangs is over")
	e.Await(closes.Done(), "the one that closes is over")
}
