package bustest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var drainCases = []testCase{
	{rule: "S21", claim: "under load all accepted messages are handled, and handlers publish, request and reply to the end", run: drainUnderLoad},
	{rule: "S21", claim: "a stuck handler is named, and the drain ends at its bound", run: drainStuck},
	{rule: "S21", claim: "a drain refuses new subscriptions and still answers requests", run: drainRefuses},
	{rule: "S21", claim: "Drain may be called twice, concurrently, and after Close", run: drainTwice},
	{rule: "S21", claim: "Drain inside a handler returns", run: drainWithin},
	{rule: "S21", claim: "Drain sends all earlier publishes", run: drainFlushes},
	{rule: "S21", claim: "Drain is bounded while the backend is away", needs: []fault{"Down", "Up"}, run: drainWhileDown},
	{rule: "S21", claim: "Drain with nothing left to send does not wait for a backend that is away", needs: []fault{"Down", "Up"}, run: drainIdleWhileDown},
	{rule: "S21", claim: "the error of a drain while the backend is away has what was left and the number of messages that were not confirmed", needs: []fault{"Down", "Up"}, run: drainCountsWhileDown},
	{rule: "S21", claim: "the error of a drain on a stopped backend has what was left and the number of messages that were not confirmed", needs: []fault{"Pause", "Continue"}, run: drainCountsAtStandstill},
}

func drainUnderLoad(e *env) {
	a, b := e.pair()
	c := b // receives messages that b's handlers publish
	if e.remote() {
		c = a
	}
	n := suite.Scaled(500)
	var answered atomic.Int64
	echoed := c.listen("echo")
	b.respond("ask", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		time.Sleep(e.Unit / 1000)
		return m.Data, nil
	})
	in := &inbox{e: e}
	in.Sub = b.subscribe("x.*", func(ctx context.Context, m *bus.Msg) error {
		if err := b.Publish(ctx, "echo", m.Data); err != nil {
			e.Report("publish while draining: %w", err)
		}
		if got, err := b.Request(ctx, "ask", m.Data); err != nil || string(got.Data) != string(m.Data) {
			e.Report("request while draining: %w", err)
		} else {
			answered.Add(1)
		}
		return in.handle(ctx, m)
	}, bus.Concurrency(4))
	for i := range n {
		a.publish(fmt.Sprint("x.", i%5), fmt.Sprint(i))
	}
	a.flush()
	if e.remote() { // messages still on their way through a's connection
		e.arrives(in.Sub, n)
	}
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	e.Must(b.Drain(ctx), "drain")
	e.Want(in.len() == n && int(answered.Load()) == n, "of %d messages %d were handled, %d with an answer", n, in.len(), answered.Load())
	if e.remote() {
		echoed.waits(n)
	}
	e.Is(b.Publish(e.Ctx, "x.1", nil), bus.ErrClosed, "publish after the drain")
}

func drainStuck(e *env) {
	a, b := e.pair()
	s := e.stick(a, b, "x.*", "x.y", bus.Name("stuck one"))
	publishMany(a, "x.y", 1, 3)
	e.arrives(s.Sub, 4)
	fine := b.listen("fine")
	before := time.Now()
	ctx, cancel := e.within(2)
	defer cancel()
	err := b.Drain(ctx)
	e.took(before, e.Units(2), 30, "a drain of 2 units")
	e.Is(err, context.DeadlineExceeded, "drain")
	e.hasCode(err, "bus.unfinished")
	var left *bus.UnfinishedError
	e.Want(errors.As(err, &left) && len(left.Subs) == 1, "the drain returned %v", err)
	sub := left.Subs[0]
	e.Want(sub.Name == "stuck one" && sub.Pending == 3 && sub.Running == 1 && sub.Site != "", "the drain returned %+v", sub)
	e.Await(fine.Done(), "the other one is over")
	e.Await(s.Done(), "the context of the stuck handler has ended")
	e.Want(s.Stats().Discarded == 3, "the stats are %+v", s.Stats())
	e.Want(!strings.Contains(err.Error(), "not confirmed"), "nothing was published, and the drain returned %v", err)
}

func drainRefuses(e *env) {
	a, b := e.pair()
	s := e.stick(a, b, "x", "x")
	b.echo("ask")
	over := e.Async(func() { e.Must(b.Drain(e.Ctx), "drain") })
	e.Soon("it is draining", func() bool { state, _ := b.State(); return state == bus.StateDraining })
	_, err := b.Subscribe(e.Ctx, "y", func(context.Context, *bus.Msg) error { return nil })
	e.Is(err, bus.ErrDraining, "subscribe")
	e.hasCode(err, "bus.draining")
	_, err = b.Respond(e.Ctx, "y", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
	e.Is(err, bus.ErrDraining, "respond")
	e.Want(a.request("ask", "1") == "1", "another answer")
	// Not to x: it ends after the state has changed, and may still get a message.
	e.Must(b.Publish(e.Ctx, "z", []byte("2")), "publish")
	s.open()
	e.Await(over, "the drain ends")
	s.has("first")
}

func drainTwice(e *env) {
	b := e.process()
	s := e.stick(b, b, "x", "x")
	publishMany(b, "x", 1, 10)
	e.arrives(s.Sub, 11)
	var over []<-chan struct{}
	for range 5 {
		over = append(over, e.Async(func() { e.Must(b.Drain(e.Ctx), "drain") }))
	}
	e.Pass(1)
	s.open()
	for _, c := range over {
		e.Await(c, "the drains end")
	}
	s.has(append([]string{"first"}, numbers(1, 10)...)...)
	e.Must(b.Drain(e.Ctx), "drain again")
	for range suite.Scaled(10) {
		idle := e.process()
		idle.listen("x")
		e.All(5, func(int) { e.Must(idle.Drain(e.Ctx), "drain at once") })
	}
	e.Must(b.Close(), "close")
	c := e.process()
	e.Must(c.Close(), "close")
	e.Is(c.Drain(e.Ctx), bus.ErrClosed, "drain after close")
}

func drainWithin(e *env) {
	b := e.process()
	over := e.gate()
	b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		if err := b.Drain(ctx); err != nil {
			e.Report("drain: %w", err)
		}
		over.open()
		return nil
	})
	b.publish("x", "")
	e.Await(over.c, "the drain ends")
	e.Soon("its handler has returned", func() bool { return b.Stats().Total.Running == 0 })
	e.Must(b.Close(), "close")
}

func drainFlushes(e *env) {
	if !e.remote() {
		drainTwice(e)
		return
	}
	for range suite.Scaled(10) {
		a, b := e.process(), e.process()
		in := b.listen("x")
		publishMany(a, "x", 1, 100)
		e.Must(a.Drain(e.Ctx), "drain")
		e.drain(in)
		in.has(numbers(1, 100)...)
	}
}

func drainWhileDown(e *env) {
	b := e.process()
	b.cut.Store(true) // nor is the end of the bus confirmed
	s := e.stick(b, b, "x", "x")
	publishMany(b, "x", 1, 5)
	e.arrives(s.Sub, 6)
	e.down()
	e.isDisconnected(b)
	b.publish("y", "unsent")
	over := e.Async(func() {
		ctx, cancel := e.within(10)
		defer cancel()
		before := time.Now()
		e.Is(b.Drain(ctx), bus.ErrDisconnected, "drain")
		e.Want(time.Since(before) < e.Units(40), "it took %v", time.Since(before))
	})
	s.open()
	e.Await(over, "the drain ends")
	s.has(append([]string{"first"}, numbers(1, 5)...)...)
	e.up()
}

func drainIdleWhileDown(e *env) {
	b := e.process()
	in := b.listen("x")
	b.publish("x", "1")
	in.wants("1")
	b.flush()
	e.down()
	e.isDisconnected(b)
	ctx, cancel := e.within(40)
	defer cancel()
	before := time.Now()
	e.Must(b.Drain(ctx), "drain")
	e.Want(time.Since(before) < e.Units(20), "it took %v", time.Since(before))
	e.up()
}

func drainCountsWhileDown(e *env) {
	b := e.process()
	e.drainCounts(b, func() { e.down(); e.isDisconnected(b) })
	e.up()
}

func drainCountsAtStandstill(e *env) {
	e.AtEnd(func() { _ = e.h.Faults.Continue() })
	e.drainCounts(e.process(), func() { e.Must(e.h.Faults.Pause(), "pause") })
	e.Must(e.h.Faults.Continue(), "continue")
}

// drainCounts drains a bus that has a stuck handler, with two messages behind it, and
// three messages that the backend does not confirm.
func (e *env) drainCounts(b *process, leave func()) {
	b.cut.Store(true) // the backend does not confirm the end of the bus
	s := e.stick(b, b, "x", "x", bus.Name("stuck one"))
	publishMany(b, "x", 1, 2)
	e.arrives(s.Sub, 3)
	b.flush()
	leave()
	publishMany(b, "y", 1, 3)
	ctx, cancel := e.within(2)
	defer cancel()
	err := b.Drain(ctx)
	e.Is(err, context.DeadlineExceeded, "drain")
	e.hasCode(err, "bus.unfinished")
	var left *bus.UnfinishedError
	e.Want(errors.As(err, &left) && len(left.Subs) == 1 && left.Subs[0].Pending == 2 && left.Subs[0].Running == 1, "the drain returned %v", err)
	e.Want(strings.Contains(err.Error(), "3 accepted messages not confirmed"), "the drain does not report 3 messages: %v", err)
}
