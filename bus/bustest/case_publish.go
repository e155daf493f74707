package bustest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var publishCases = []testCase{
	{rule: "S6", claim: "data may be reused as soon as Publish has returned", run: scribble},
	{rule: "S6", claim: "Publish does not wait for a handler", run: publishDoesNotWait},
	{rule: "S6", claim: "Publish with an ended context sends nothing and returns its error", run: endedContext},
	{rule: "S6", claim: "Publish on a stopped backend returns when its context ends", needs: []fault{"Pause", "Continue"}, run: publishToStandstill},
}

func scribble(e *env) {
	a, b := e.pair()
	boxes := []*inbox{a.listen("x"), b.listen("x"), b.listen("x", bus.Group("g"))}
	b.respond("x", func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil })
	data := make([]byte, 1000)
	for i := range 50 {
		fill(data, byte(i))
		e.Must(a.Publish(e.Ctx, "x", data), "publish")
		fill(data, 0xff)
	}
	a.flush()
	e.drain(boxes...)
	for _, in := range boxes {
		for i, m := range in.all() {
			e.Want(bytes.Count(m.Data, []byte{byte(i)}) == 1000, "%s: message %d has changed to %x…", in.Name(), i, m.Data[:4])
		}
	}
	answered := e.reusedAnswer(a, b)
	e.Want(answered == "first", "a responder that uses its buffer again has answered %q", answered)
}

// reusedAnswer asks a responder that changes its answer after it has returned.
func (e *env) reusedAnswer(a, b *process) string {
	buffer := []byte("first")
	b.respond("reused", func(context.Context, *bus.Msg) ([]byte, error) {
		buffer := buffer[:5:5]
		return buffer, nil
	}, bus.Concurrency(1))
	m, err := a.Request(e.Ctx, "reused", nil)
	e.Must(err, "request")
	copy(buffer, "XXXXX")
	return string(m.Data)
}

func fill(data []byte, b byte) {
	for i := range data {
		data[i] = b
	}
}

func publishDoesNotWait(e *env) {
	a, b := e.pair()
	g := e.gate()
	b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error { g.pass(ctx); return nil })
	a.subscribe("x", func(ctx context.Context, _ *bus.Msg) error { g.pass(ctx); return nil }, bus.Buffer(1, 1))
	before := time.Now()
	for range suite.Scaled(1000) {
		a.publish("x", "")
	}
	e.took(before, 0, 50, "publishing to handlers that are stuck")
	g.open()
}

func endedContext(e *env) {
	a, b := e.pair()
	in := b.listen("x")
	s := b.echo("x")
	cause := errors.New("the user has left")
	ctx, cancel := context.WithCancelCause(e.Ctx)
	cancel(cause)
	past, cancelPast := context.WithDeadline(e.Ctx, time.Now().Add(-time.Second))
	defer cancelPast()
	before := a.calls.sum()
	for _, x := range []struct {
		ctx  context.Context
		want []error
	}{{ctx, []error{context.Canceled, cause}}, {past, []error{context.DeadlineExceeded}}} {
		_, err := a.Request(x.ctx, "x", nil)
		for _, want := range x.want {
			e.Is(a.Publish(x.ctx, "x", nil), want, "publish")
			e.Is(err, want, "request")
		}
	}
	e.Want(a.calls.sum() == before, "the driver was asked %d times", a.calls.sum()-before)
	a.flush()
	e.drain(in)
	in.has()
	e.Want(s.Stats().Received == 0, "the responder got %d requests", s.Stats().Received)
}

func publishToStandstill(e *env) {
	a := e.process()
	in := a.listen("works.x")
	e.Must(e.h.Faults.Pause(), "pause")
	e.AtEnd(func() { _ = e.h.Faults.Continue() })
	e.fill(a)
	e.Must(e.h.Faults.Continue(), "continue")
	e.Soon("there is room again", func() bool { return a.Publish(e.Ctx, "works.x", []byte("after")) == nil })
	in.waits(1)
	e.works(a, a)
}

// fill publishes until nothing more has room while the backend takes nothing.
func (e *env) fill(p *process) {
	data := make([]byte, 1<<19)
	for end := time.Now().Add(e.Patience()); ; {
		e.Want(time.Now().Before(end), "however much waits, nothing is refused")
		ctx, cancel := e.within(0.5)
		began := time.Now()
		err := p.Publish(ctx, "x", data)
		cancel()
		e.Want(time.Since(began) < e.Units(20), "publish took %v", time.Since(began))
		late := errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, bus.ErrOverloaded)
		if err == nil || late { // on a busy machine ctx may end before the call
			continue
		}
		e.Is(err, bus.ErrOverloaded, "publish")
		e.Is(err, context.DeadlineExceeded, "publish")
		break
	}
}
