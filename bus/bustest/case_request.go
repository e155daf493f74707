package bustest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var requestCases = []testCase{
	{rule: "S12", claim: "a request is answered, or fails at once without a responder", run: answeredOrNobody},
	{rule: "S12", claim: "a request without a deadline has the default, and the responder has the remaining time", run: budget},
	{rule: "S12", claim: "a slow responder causes a timeout, in time", run: timeout},
	{rule: "S12", claim: "a cancelled caller gets its context's error, with the cause", run: callerLeaves},
	{rule: "S12", claim: "a responder whose caller has left works until the deadline of the request, and no longer", run: askerHasLeft},
	{rule: "S24", claim: "a request whose time is over before its handler starts is dropped and counted", run: expiresInQueue},
	{rule: "S12", claim: "errors of the responder arrive with code and text, without a stack", run: remoteErrors},
	{rule: "S12", claim: "late and second answers are dropped and counted", run: lateAnswers},
	{rule: "S12", claim: "concurrent requests, half of them cancelled, never get another request's answer", run: noCrossTalk},
	{rule: "S12", claim: "typed calls transfer values and errors", run: typedCalls},
	{rule: "S12", claim: "a driver refuses a second Bus, and the first one keeps its answers", run: oneBus},
}

func oneBus(e *env) {
	p := e.process()
	_, err := bus.New(p.driver, bus.Config{})
	e.Is(err, bus.ErrInvalid, "a second Bus on the driver")
	e.works(p, p)
}

func answeredOrNobody(e *env) {
	a, b := e.pair()
	for i := range 5 {
		before := time.Now()
		_, err := a.Request(e.Ctx, "x.y", nil)
		e.Is(err, bus.ErrNoResponders, "without a responder")
		e.took(before, 0, 10, "to report a missing responder")
		s := b.echo("x.*")
		m, err := a.Request(e.Ctx, "x.y", []byte(fmt.Sprint(i)))
		e.Must(err, "request")
		e.Want(m.Subject == "x.y" && string(m.Data) == fmt.Sprint(i), "the answer is %q on %q", m.Data, m.Subject)
		e.Must(s.Drain(e.Ctx), "drain")
	}
	e.Want(a.Stats().NoResponders == 5, "%d are counted as without a responder", a.Stats().NoResponders)
}

func budget(e *env) {
	d := e.Units(50) // long, because the answers come at once
	p := e.process(func(c *bus.Config) { c.Timeout = d })
	left := make(chan time.Duration, 1)
	p.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		deadline, ok := ctx.Deadline()
		if !ok {
			e.Report("the responder's context has no deadline")
		}
		left <- time.Until(deadline)
		return nil, nil
	})
	p.request("x", "")
	if got := receive(e, left, "it is asked"); got > d+e.Units(0.1) || got < d-e.Units(20) {
		e.Fail("the responder has %v left of %v", got, d)
	}
	ctx, cancel := e.within(20)
	defer cancel()
	_, err := p.Request(ctx, "x", nil)
	e.Must(err, "request")
	if got := receive(e, left, "it is asked"); got > e.Units(20)+e.Units(0.1) {
		e.Fail("the responder has %v left of %v", got, e.Units(20))
	}
	_, err = p.Request(e.Ctx, "x", nil, bus.Expires(e.Units(10)))
	e.Must(err, "request")
	if got := receive(e, left, "it is asked"); got > e.Units(10)+e.Units(0.1) {
		e.Fail("the responder has %v left of a request that expires in %v", got, e.Units(10))
	}
}

func timeout(e *env) {
	p := e.process(func(c *bus.Config) { c.Timeout = e.Units(2) })
	q := p
	if e.remote() {
		q = e.process()
	}
	ended, hold := make(chan error, 3), e.gate()
	q.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		e.listen(ctx) // the budget's
		ended <- ctx.Err()
		<-hold.c
		return nil, nil
	})
	for units, ctx := range map[float64]func() (context.Context, context.CancelFunc){
		2: func() (context.Context, context.CancelFunc) { return e.Ctx, func() {} },
		1: func() (context.Context, context.CancelFunc) { return e.within(1) },
	} {
		before := time.Now()
		ctx, cancel := ctx()
		_, err := p.Request(ctx, "x", nil)
		e.Is(err, bus.ErrTimeout, "request")
		e.Is(err, context.DeadlineExceeded, "request")
		e.hasCode(err, "bus.timeout")
		e.took(before, e.Units(units), 5, "the request")
		e.Is(receive(e, ended, "the responder's context ends"), context.DeadlineExceeded, "the end of the responder's context")
		cancel()
	}
	e.Want(p.Stats().TimedOut == 2, "%d are counted", p.Stats().TimedOut)
}

func callerLeaves(e *env) {
	a, b := e.pair()
	g, running := e.gate(), make(chan struct{}, 1)
	b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		running <- struct{}{}
		g.pass(ctx)
		return nil, nil
	})
	cause := errors.New("the user has left")
	ctx, cancel := context.WithCancelCause(e.Ctx)
	over := e.Async(func() {
		_, err := a.Request(ctx, "x", nil)
		e.Is(err, context.Canceled, "request")
		e.Is(err, cause, "request")
		e.Want(!errors.Is(err, bus.ErrTimeout), "a cancelled caller got a timeout: %v", err)
	})
	receive(e, running, "it is asked")
	cancel(cause)
	e.Await(over, "the call returns")
	g.open()
}

// askerHasLeft cancels right after its request. No driver notifies the
// responder: its context ends with the time budget of the request.
func askerHasLeft(e *env) {
	a, b := e.pair()
	running, ended := make(chan time.Time, 1), make(chan error, 1)
	b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		deadline, _ := ctx.Deadline()
		running <- deadline
		e.listen(ctx)
		ended <- ctx.Err()
		return nil, nil
	})
	ctx, leave := e.within(3)
	over := e.Async(func() {
		_, err := a.Request(ctx, "x", nil)
		e.Is(err, context.Canceled, "request")
	})
	deadline := receive(e, running, "it is asked")
	leave()
	e.Await(over, "the call returns")
	e.Is(receive(e, ended, "the responder's context ends"), context.DeadlineExceeded, "the end of the responder's context")
	e.took(deadline, 0, 5, "after the deadline it")
	e.Soon("the answer is late", func() bool { return a.Stats().Late == 1 })
}

// expiresInQueue asks a responder that is busy until the time of the request is over.
func expiresInQueue(e *env) {
	a, b := e.pair()
	in := &inbox{e: e}
	g, running := e.gate(), e.gate()
	in.Sub = b.respond("x", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		running.open()
		g.pass(ctx)
		return nil, in.handle(ctx, m)
	}, bus.Concurrency(1))
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	first := e.Async(func() {
		_, err := a.Request(ctx, "x", []byte("first"))
		e.Must(err, "request")
	})
	e.Await(running.c, "the responder is busy")
	inner, leave := e.within(2)
	defer leave()
	_, err := a.Request(inner, "x", []byte("short"))
	e.Is(err, bus.ErrTimeout, "a request whose time is over")
	arrived := in.Stats().Received == 2 // on a busy machine it may expire before it is sent
	e.Want(arrived || !e.h.FakeTime, "the request has not arrived")
	e.Pass(3) // the responder's time begins when the request arrives
	g.open()
	e.Await(first, "the first is answered")
	_, err = a.Request(ctx, "x", []byte("last"))
	e.Must(err, "request")
	if arrived {
		in.has("first", "last")
		e.Want(in.Stats().Expired == 1, "%d are counted as expired", in.Stats().Expired)
	}
}

type codedError struct{}

func (codedError) Error() string { return "no such product" }
func (codedError) Code() string  { return "stock.unknown" }

func remoteErrors(e *env) {
	a, b := e.pair()
	b.respond("x.*", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		switch m.Subject {
		case "x.plain":
			return nil, errors.New("it failed")
		case "x.coded":
			return nil, fmt.Errorf("find: %w", codedError{})
		case "x.own":
			return []byte("ignored"), &bus.RemoteError{Reason: "a.b-c_1", Message: "with\nlines \x01 ü", Retryable: true}
		case "x.panic":
			panic("secret in " + strings.Repeat("x", 10))
		case "x.long":
			return nil, errors.New(strings.Repeat("long ", 1<<16))
		case "x.odd":
			return nil, &bus.RemoteError{Reason: "not a code\r\nx: y", Message: ""}
		}
		return nil, nil
	})
	for subject, want := range map[string]bus.RemoteError{
		"x.plain": {Reason: "error", Message: "it failed"},
		"x.coded": {Reason: "stock.unknown", Message: "find: no such product"},
		"x.own":   {Reason: "a.b-c_1", Message: "with\nlines \x01 ü", Retryable: true},
		"x.panic": {Reason: "panic", Message: "the responder panicked"},
		"x.long":  {Reason: "error", Message: strings.Repeat("long ", 1<<16)[:4<<10]},
		"x.odd":   {Reason: "error"},
	} {
		m, err := a.Request(e.Ctx, subject, nil)
		var got *bus.RemoteError
		e.Want(errors.As(err, &got) && m == nil, "%s: %v, %v", subject, m, err)
		e.Want(*got == want, "%s: got %.300s, want %.300s", subject, got, want.Error())
		e.hasCode(err, want.Reason)
	}
	e.Soon("the panic is reported with its place", func() bool {
		for _, f := range eventsOf[bus.HandlerFailed](b) {
			var p *bus.PanicError
			if errors.As(f.Err, &p) && strings.Contains(string(p.Stack), "remoteErrors") {
				return true
			}
		}
		return false
	})
	m, err := a.Request(e.Ctx, "x.fine", nil)
	e.Want(err == nil && len(m.Data) == 0, "got %v, %v", m, err)
}

func lateAnswers(e *env) {
	a, b := e.pair()
	g := e.gate()
	var first atomic.Bool
	b.respond("x", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		if !first.Swap(true) {
			<-g.c // whatever its deadline
			return []byte("late"), nil
		}
		return m.Data, nil
	})
	ctx, cancel := e.within(1)
	defer cancel()
	_, err := a.Request(ctx, "x", nil)
	e.Is(err, bus.ErrTimeout, "request")
	g.open()
	for i := range 20 {
		e.Want(a.request("x", fmt.Sprint(i)) == fmt.Sprint(i), "a later request got another's answer")
	}
	e.Soon("the late answer is counted", func() bool { return a.Stats().Late == 1 })
	b.respond("twice", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		if err := m.Reply(ctx, []byte("first")); err != nil {
			e.Report("reply: %w", err)
		}
		return []byte("second"), nil
	})
	for range 20 {
		e.Want(a.request("twice", "") == "first", "it is not the first answer that counts")
	}
	e.Soon("the second answers are counted", func() bool { return a.Stats().Late == 21 })
	e.Want(a.Stats().InFlight == 0, "%d requests are in flight", a.Stats().InFlight)
}

func noCrossTalk(e *env) {
	a, b := e.pair()
	b.respond("x.*", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		if d := rand.IntN(4); d > 0 {
			time.Sleep(time.Duration(d) * e.Unit / 200)
		}
		return m.Data, nil
	}, bus.Concurrency(256))
	e.All(100, func(i int) {
		p := []*process{a, b}[i%2]
		for j := range suite.Scaled(30) {
			ctx, cancel := context.WithCancel(e.Ctx)
			if j%2 == 0 {
				e.cancelAfter(rand.IntN(4), cancel)
			}
			want := fmt.Sprint(i, ":", j)
			m, err := p.Request(ctx, fmt.Sprint("x.", i), []byte(want))
			cancel()
			if err != nil {
				e.Is(err, context.Canceled, "request")
			} else {
				e.Want(string(m.Data) == want, "%s got the answer to %s", want, m.Data)
			}
		}
	})
	e.Want(a.Stats().InFlight+b.Stats().InFlight == 0, "requests are in flight")
}

// cancelAfter cancels after n two-hundredths of a unit. None is a goroutine and not
// a timer that is due: in a bubble, goroutines that start such timers at once
// corrupt the race detector (Go 1.26: they share its context of the bubble's
// timers), which aborts later with "CHECK failed: tsan_rtl.cpp:346 … kEpochLast".
func (e *env) cancelAfter(n int, cancel context.CancelFunc) {
	if n == 0 {
		e.Async(cancel)
		return
	}
	time.AfterFunc(time.Duration(n)*e.Unit/200, cancel)
}

type stockQuery struct{ Product string }
type stockReply struct{ Quantity int }

func typedCalls(e *env) {
	a, b := e.pair()
	_, err := bus.Answer(e.Ctx, b.Bus, "stock", func(_ context.Context, q stockQuery) (stockReply, error) {
		if q.Product == "" {
			return stockReply{}, codedError{}
		}
		return stockReply{len(q.Product)}, nil
	})
	e.Must(err, "answer")
	got, err := bus.Call[stockQuery, stockReply](e.Ctx, a.Bus, "stock", stockQuery{"lamp"})
	e.Want(err == nil && got.Quantity == 4, "got %v, %v", got, err)
	_, err = bus.Call[stockQuery, stockReply](e.Ctx, a.Bus, "stock", stockQuery{})
	e.hasCode(err, "stock.unknown")
	_, err = bus.Call[stockQuery, int](e.Ctx, a.Bus, "stock", stockQuery{"lamp"})
	e.Is(err, bus.ErrDecode, "an answer of another type")
	_, err = bus.Call[int, stockReply](e.Ctx, a.Bus, "stock", 1)
	e.hasCode(err, "bus.decode")
}
