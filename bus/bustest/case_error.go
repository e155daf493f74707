package bustest

import (
	"context"
	"errors"

	"github.com/megaframework/mega/bus"
)

var errorCases = []testCase{
	{rule: "S25", claim: "each error has its code and names the operation", run: errorCodes},
	{rule: "S25", claim: "a chain of more than 32 hops is a cycle", run: cycle},
	{rule: "S25", claim: "options out of bounds are refused before the driver is called", run: badOptions},
}

// hasCode fails the case unless err has the code.
func (e *env) hasCode(err error, code string) {
	var coded interface{ Code() string }
	e.Want(errors.As(err, &coded) && coded.Code() == code, "%v: want the code %s", err, code)
}

func errorCodes(e *env) {
	p := e.process()
	for code, err := range map[string]error{
		"bus.bad_subject": bus.ErrBadSubject, "bus.bad_group": bus.ErrBadGroup, "bus.bad_header": bus.ErrBadHeader, "bus.invalid": bus.ErrInvalid,
		"bus.too_large": bus.ErrTooLarge, "bus.closed": bus.ErrClosed, "bus.draining": bus.ErrDraining, "bus.no_responders": bus.ErrNoResponders,
		"bus.timeout": bus.ErrTimeout, "bus.overloaded": bus.ErrOverloaded, "bus.disconnected": bus.ErrDisconnected, "bus.refused": bus.ErrRefused, "bus.terminated": bus.ErrTerminated,
		"bus.decode": bus.ErrDecode, "bus.cycle": bus.ErrCycle, "bus.unsupported": bus.ErrUnsupported,
	} {
		e.hasCode(err, code)
	}
	_, err := p.Request(e.Ctx, "stock.get", nil)
	e.hasCode(err, "bus.no_responders")
	e.Want(err.Error() == "request stock.get: bus: nobody responds", "the text is %q", err)
}

func cycle(e *env) {
	a, b := e.pair()
	ended := make(chan error, 1)
	var depth int
	b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		if depth++; depth > 320 {
			ended <- errors.New("the chain does not end")
			return nil
		}
		if err := b.Publish(ctx, "x", nil); err != nil {
			ended <- err
		}
		return nil
	})
	a.publish("x", "")
	err := receive(e, ended, "the chain ends")
	e.Is(err, bus.ErrCycle, "the end of the chain")
	e.hasCode(err, "bus.cycle")
	e.Want(depth == 33, "the chain has %d messages, want 33", depth)
	b.respond("ask", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		if len(m.Data) == 0 {
			return []byte("bottom"), nil
		}
		got, err := b.Request(ctx, "ask", m.Data[1:])
		if err != nil {
			return nil, err
		}
		return got.Data, nil
	}, bus.Concurrency(64))
	e.Want(a.request("ask", string(make([]byte, 31))) == "bottom", "another answer")
	_, err = a.Request(e.Ctx, "ask", make([]byte, 34))
	e.hasCode(err, "bus.cycle")
}

func badOptions(e *env) {
	p := e.process()
	before := p.calls.sum()
	h := func(context.Context, *bus.Msg) error { return nil }
	for name, o := range map[string]bus.SubOption{
		"Concurrency 0": bus.Concurrency(0), "Concurrency -1": bus.Concurrency(-1), "Concurrency 4097": bus.Concurrency(4097),
		"Buffer 0": bus.Buffer(0, 1), "Buffer 0 bytes": bus.Buffer(1, 0), "Buffer of ever": bus.Buffer(bus.MaxBuffer+1, 1),
		"OnFull -1": bus.OnFull(-1), "OnFull 3": bus.OnFull(3),
	} {
		_, err := p.Subscribe(e.Ctx, "x", h, o)
		e.Is(err, bus.ErrInvalid, "subscribe with %s", name)
	}
	_, err := p.Subscribe(e.Ctx, "x", nil)
	e.Is(err, bus.ErrInvalid, "subscribe without a handler")
	_, err = p.Respond(e.Ctx, "x", nil)
	e.Is(err, bus.ErrInvalid, "respond without a responder")
	for name, o := range map[string]bus.ManyOption{"Count 0": bus.Count(0), "Stall 0": bus.Stall(0)} {
		_, errs := p.gathered(e.Ctx, o)
		e.Want(len(errs) == 1 && errors.Is(errs[0], bus.ErrInvalid), "request many with %s: %v", name, errs)
	}
	e.Want(p.calls.sum() == before, "the driver was asked %d times", p.calls.sum()-before)
}
