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
	{rule: "S12", claim: "errors of the responder arrive with code and text, without a stack", run: remoteErrors},
	{rule: "S12", claim: "late and second answers are dropped and counted", run: lateAnswers},
	{rule: "S12", claim: "concurrent requests, half of them cancelled, never get another request's answer", run: noCrossTalk},
	{rule: "S12", claim: "the death of the responder is reported", needs: []fault{"Crash"}, lackable: true, run: responderDies},
	{rule: "S12", claim: "a responder that requests from itself while busy ends in time, and recovers", run: asksItself},
	{rule: "S12", claim: "requests that are discarded are refused", run: discardedRequests},
	{rule: "S12", claim: "typed calls transfer values and errors", run: typedCalls},
	{rule: "S13", claim: "exactly one responder answers a request", run: oneResponder},
	{rule: "S13", claim: "a responder handles 64 requests concurrently, a subscription one message", run: defaultConcurrency},
	{rule: "S13", claim: "a responder whose every handler waits for itself is reported before the deadline", run: blockedByItself},
	{rule: "S13", claim: "subscriptions without a group get every message", run: noGroup},
}

func answeredOrNobody(e *env) {
	a, b := e.pair()
	for i := range 5 {
		before := time.Now()
		_, err := a.Request(e.Ctx, "x.y", nil)
		e.Is(err, bus.ErrNoResponders, "without a responder")
		e.took(before, 0, 10, "to report a missing responder")
		s := b.echo("x.*")
		e.Want(a.request("x.y", fmt.Sprint(i)) == fmt.Sprint(i), "another answer")
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
		ctx, cancel := ctx()
		before := time.Now()
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

func responderDies(e *env) {
	a, b := e.process(), e.process()
	g, running := e.gate(), e.gate()
	b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { running.open(); g.pass(ctx); return nil, nil })
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	over := e.Async(func() {
		_, err := a.Request(ctx, "x", nil)
		e.Is(err, bus.ErrDisconnected, "a request whose responder has died")
	})
	e.Await(running.c, "it is asked")
	e.crash(b)
	e.Await(over, "the caller is reported")
	_, err := a.Request(e.Ctx, "x", nil)
	e.Is(err, bus.ErrNoResponders, "the next request")
}

func asksItself(e *env) {
	a, b := e.pair()
	b.respond("x", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		if string(m.Data) != "outer" {
			return m.Data, nil
		}
		inner, cancel := context.WithTimeout(ctx, e.Units(1))
		defer cancel()
		_, err := b.Request(inner, "x", []byte("inner"))
		return []byte(fmt.Sprint(errors.Is(err, bus.ErrTimeout))), nil
	}, bus.Concurrency(1))
	e.Want(a.request("x", "outer") == "true", "the inner request has not timed out")
	e.Want(a.request("x", "after") == "after", "another answer")
}

// blockedByItself has a responder of four handlers request its own subject:
// three times at once nothing is wrong, and then four times.
func blockedByItself(e *env) {
	a, b := e.pair()
	over, end := context.WithCancel(e.Ctx)
	defer end()
	var running atomic.Int32
	g := e.gate() // so that all handlers are taken before one of them asks
	b.respond("ask.*", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		switch m.Subject {
		case "ask.deep":
			return nil, nil
		case "ask.first":
			running.Add(1)
			g.pass(ctx)
		}
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(over, cancel)()
		_, err := b.Request(inner, "ask."+string(m.Data), []byte("deep"))
		return nil, err
	}, bus.Concurrency(4), bus.Name("recursive"))
	for range 3 {
		a.request("ask.shallow", "deep")
	}
	e.Want(len(eventsOf[bus.Blocked](b)) == 0, "reported %+v although nothing is blocked", eventsOf[bus.Blocked](b))
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	var asked []<-chan struct{}
	for range 4 {
		asked = append(asked, e.Async(func() { _, _ = a.Request(ctx, "ask.first", []byte("again")) }))
	}
	e.Soon("all handlers run", func() bool { return running.Load() == 4 })
	g.open()
	e.Soon("it is reported", func() bool { return len(eventsOf[bus.Blocked](b)) == 1 })
	reported := eventsOf[bus.Blocked](b)[0]
	e.Want(reported.Name == "recursive" && reported.Subject == "ask.again" && reported.Handlers == 4, "reported %+v", reported)
	end()
	for _, c := range asked {
		e.Await(c, "the requests end")
	}
}

func discardedRequests(e *env) {
	a, b := e.pair()
	g, running := e.gate(), e.gate()
	s := b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { running.open(); g.pass(ctx); return nil, nil }, bus.Concurrency(2), bus.OrderBy(func(*bus.Msg) string { return "" }))
	first := e.Async(func() { a.request("x", "") })
	e.Await(running.c, "the first is being answered")
	queued := e.Async(func() {
		_, err := a.Request(e.Ctx, "x", nil)
		e.hasCode(err, "bus.terminated")
	})
	e.arrives(s, 2)
	s.Stop()
	e.Await(queued, "a request in the queue of a stopped responder is refused")
	g.open()
	e.Await(first, "a request in progress is answered")
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

func oneResponder(e *env) {
	a, b := e.pair()
	var answered [3]atomic.Int64
	for i, p := range []*process{a, b, b} {
		p.respond("x.*", func(context.Context, *bus.Msg) ([]byte, error) { answered[i].Add(1); return nil, nil })
	}
	n := max(suite.Scaled(300), 60)
	for range n {
		a.request("x.y", "")
	}
	got := []int64{answered[0].Load(), answered[1].Load(), answered[2].Load()}
	e.Want(got[0]+got[1]+got[2] == int64(n), "%d requests were handled %v times", n, got)
	// A responder that still finishes the request before is passed over. On a
	// busy machine this may affect the same responder for a while.
	e.Want(min(got[0], got[1], got[2]) >= int64(n/60), "the shares of three responders are %v", got)
}

// crowd counts who is inside at once.
type crowd struct{ in, most atomic.Int64 }

func (c *crowd) enter() {
	n := c.in.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
}

func defaultConcurrency(e *env) {
	a, b := e.pair()
	g := e.gate()
	var askers, readers crowd
	s := b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		askers.enter()
		defer askers.in.Add(-1)
		g.pass(ctx)
		return nil, nil
	})
	in := b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		readers.enter()
		defer readers.in.Add(-1)
		g.pass(ctx)
		return nil
	})
	var over []<-chan struct{}
	for range 70 {
		over = append(over, e.Async(func() { a.request("x", "") }))
		a.publish("x", "")
	}
	e.arrives(s, 70)
	e.arrives(in, 70)
	e.Soon("64 are at work", func() bool { return askers.in.Load() == 64 })
	g.open()
	for _, c := range over {
		e.Await(c, "all are answered")
	}
	e.Must(in.Drain(e.Ctx), "drain")
	e.Want(askers.most.Load() == 64 && readers.most.Load() == 1, "a responder worked on %d at once, want 64; a subscription on %d, want 1", askers.most.Load(), readers.most.Load())
}

func noGroup(e *env) {
	a, b := e.pair()
	boxes := []*inbox{a.listen("x"), b.listen("x"), b.listen("x"), b.listen("x", bus.Group(""))}
	a.publish("x", "1")
	a.flush()
	e.drain(boxes...)
	for _, in := range boxes {
		in.has("1")
	}
}
