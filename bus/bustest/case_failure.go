package bustest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var failureCases = []testCase{
	{rule: "S15", claim: "an error is reported with subject, pattern and message, and affects no other message", run: handlerError},
	{rule: "S15", claim: "a panic is reported with its stack, and the subscription continues", run: handlerPanic},
	{rule: "S15", claim: "each of many panics is reported, and all other messages are handled", run: manyPanics},
	{rule: "S15", claim: "a panic in middleware or in OrderBy affects only its message", run: panicsElsewhere},
	{rule: "S15", claim: "a handler that ends its goroutine does not end the subscription", run: goexit},
	{rule: "S15", claim: "data that cannot be decoded is reported, and the next message is handled", run: decodeFailure},
	{rule: "S15", claim: "a stuck handler is reported by name", run: watchdog},
}

func handlerError(e *env) {
	a, b := e.pair()
	failed := errors.New("the ledger is closed")
	b.subscribe("x.*", func(context.Context, *bus.Msg) error { return failed }, bus.Name("ledger"))
	healthy := b.listen("x.y")
	a.publish("x.y", "1")
	a.publish("x.y", "2")
	healthy.wants("1", "2")
	e.Soon("both errors are reported", func() bool { return len(eventsOf[bus.HandlerFailed](b)) == 2 })
	for i, f := range eventsOf[bus.HandlerFailed](b) {
		e.Want(f.Name == "ledger" && f.Pattern == "x.*" && f.Site != "" && f.Msg.Subject == "x.y" && string(f.Msg.Data) == fmt.Sprint(i+1), "reported %+v", f)
		e.Is(f.Err, failed, "the reports")
	}
}

func handlerPanic(e *env) {
	a, b := e.pair()
	in := &inbox{e: e}
	in.Sub = b.subscribe("x", func(ctx context.Context, m *bus.Msg) error {
		if string(m.Data) == "bad" {
			panic(errors.New("boom"))
		}
		return in.handle(ctx, m)
	})
	for _, data := range []string{"1", "bad", "2", "bad", "3"} {
		a.publish("x", data)
	}
	in.wants("1", "2", "3")
	e.Soon("both panics are reported", func() bool { return len(eventsOf[bus.HandlerFailed](b)) == 2 })
	for _, f := range eventsOf[bus.HandlerFailed](b) {
		var p *bus.PanicError
		e.Want(errors.As(f.Err, &p) && fmt.Sprint(p.Value) == "boom" && strings.Contains(string(p.Stack), "handlerPanic"), "reported %v", f.Err)
		e.hasCode(f.Err, "bus.panic")
	}
	e.Want(in.Stats().Panicked == 2 && in.Stats().Failed == 2, "the stats are %+v", in.Stats())
}

func manyPanics(e *env) {
	a, b := e.pair()
	n := suite.Scaled(10_000)
	for _, opts := range [][]bus.SubOption{{}, {bus.Concurrency(8)}, {bus.Concurrency(8), bus.OrderBy(func(m *bus.Msg) string { return string(m.Data[:1]) })}} {
		s := b.subscribe("x", func(_ context.Context, m *bus.Msg) error {
			if i, _ := strconv.Atoi(string(m.Data)); i%100 == 0 {
				panic(i)
			}
			return nil
		}, append(opts, roomFor(n))...)
		publishMany(a, "x", 1, n)
		a.flush()
		e.Must(s.Drain(e.Ctx), "drain")
		st := s.Stats()
		e.Want(st.Handled == uint64(n) && st.Panicked == uint64(n/100), "the stats are %+v", st)
	}
	e.Soon("each is reported", func() bool { return len(eventsOf[bus.HandlerFailed](b)) == 3*(n/100) })
}

func panicsElsewhere(e *env) {
	a, b := e.pair()
	bad := func(m *bus.Msg) bool { return string(m.Data) == "bad" }
	wrapped, ordered := &inbox{e: e}, &inbox{e: e}
	wrapped.Sub = b.subscribe("x", wrapped.handle, bus.Use(func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Msg) error {
			if bad(m) {
				panic("middleware")
			}
			return next(ctx, m)
		}
	}))
	ordered.Sub = b.subscribe("x", ordered.handle, bus.Concurrency(3), bus.OrderBy(func(m *bus.Msg) string {
		if bad(m) {
			panic("key")
		}
		return "one"
	}))
	for _, data := range []string{"1", "bad", "2", "bad", "3"} {
		a.publish("x", data)
	}
	a.flush()
	e.drain(wrapped, ordered)
	wrapped.has("1", "2", "3")
	ordered.has("1", "2", "3")
	e.Soon("all are reported", func() bool { return len(eventsOf[bus.HandlerFailed](b)) == 4 })
}

func goexit(e *env) {
	a, b := e.pair()
	in := &inbox{e: e}
	in.Sub = b.subscribe("x", func(ctx context.Context, m *bus.Msg) error {
		if string(m.Data) == "bad" {
			runtime.Goexit()
		}
		return in.handle(ctx, m)
	})
	b.respond("x", func(context.Context, *bus.Msg) ([]byte, error) { runtime.Goexit(); return nil, nil })
	for _, data := range []string{"1", "bad", "2", "bad", "3"} {
		a.publish("x", data)
	}
	a.flush()
	e.drain(in)
	in.has("1", "2", "3")
	_, err := a.Request(e.Ctx, "x", nil)
	e.hasCode(err, "panic")
}

func decodeFailure(e *env) {
	a, b := e.pair()
	got := make(chan int, 10)
	_, err := bus.Topic[int]("x.*").Subscribe(e.Ctx, b.Bus, func(_ context.Context, n int) error { got <- n; return nil })
	e.Must(err, "subscribe")
	e.Must(bus.Topic[int]("x.y").Publish(e.Ctx, a.Bus, 1), "publish")
	a.publish("x.y", "{not a number")
	a.publish("x.y", "7", bus.Header(bus.KeyContentType, "application/unknown"))
	e.Must(bus.Topic[int]("x.y").Publish(e.Ctx, a.Bus, 2), "publish")
	e.Soon("the good ones are handled", func() bool { return len(got) == 2 })
	e.Want(<-got == 1 && <-got == 2, "others were handled")
	e.Soon("the bad ones are reported", func() bool { return len(eventsOf[bus.HandlerFailed](b)) == 2 })
	for _, f := range eventsOf[bus.HandlerFailed](b) {
		e.Is(f.Err, bus.ErrDecode, "the reports")
		e.hasCode(f.Err, "bus.decode")
	}
}

func watchdog(e *env) {
	p := e.process(func(c *bus.Config) { c.StuckAfter = e.Units(1) })
	s := e.stick(p, p, "x.*", "x.y", bus.Name("sleeper"))
	e.Soon("repeated reports", func() bool { return len(eventsOf[bus.Stuck](p)) >= 2 })
	reported := eventsOf[bus.Stuck](p)[0]
	e.Want(reported.Name == "sleeper" && reported.Pattern == "x.*" && reported.Subject == "x.y" && reported.For >= e.Units(1) && strings.Contains(reported.Site, "bustest"), "reported %+v", reported)
	s.open()
}
