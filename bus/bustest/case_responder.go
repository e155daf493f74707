package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var responderCases = []testCase{
	{rule: "S12", claim: "the death of the responder is reported", needs: []fault{"Crash"}, lackable: true, run: responderDies},
	{rule: "S12", claim: "the death of a responder that has a request for two groups is reported", needs: []fault{"Crash"}, lackable: true, run: responderOfTwoDies},
	{rule: "S12", claim: "a responder that requests from itself while busy ends in time, and recovers", run: asksItself},
	{rule: "S12", claim: "requests that are discarded are refused", run: discardedRequests},
	{rule: "S12", claim: "a request that one process has for two groups is answered once", run: twoGroupsOfOne},
	{rule: "S12", claim: "a request for groups whose members leave ends at once", run: groupsLeave},
	{rule: "S13", claim: "exactly one responder answers a request", run: oneResponder},
	{rule: "S13", claim: "a responder handles 64 requests concurrently, a subscription one message", run: defaultConcurrency},
	{rule: "S13", claim: "a responder whose every handler waits for itself is reported before the deadline", run: blockedByItself},
	{rule: "S13", claim: "subscriptions without a group get every message", run: noGroup},
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

// responderOfTwoDies has a process die with a request for two groups. Where the backend
// can be halted, the process may have it for one of them in place of another process,
// which left while the request was on its way.
func responderOfTwoDies(e *env) {
	a, b := e.process(), e.process()
	g, rounds := e.gate(), 1
	halts := e.h.Faults.has("Pause") && e.h.Faults.has("Continue")
	if halts {
		rounds = 12 // which process is chosen is not known
	}
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	for range rounds {
		c := e.process()
		var asked atomic.Int64
		hang := func(ctx context.Context, _ *bus.Msg) ([]byte, error) { asked.Add(1); g.pass(ctx); return nil, nil }
		leaves := b.respond("x.*", func(context.Context, *bus.Msg) ([]byte, error) { asked.Add(1); return []byte("b"), nil })
		c.respond("x.*", hang)
		c.respond("x.>", hang)
		if halts {
			e.Must(e.h.Faults.Pause(), "pause")
		} else {
			leaves.Stop()
		}
		sent := a.calls.request.Load()
		over := e.Async(func() {
			m, err := a.Request(ctx, "x.y", nil)
			if err != nil || string(m.Data) != "b" { // on a slow machine it may leave too late
				e.Is(err, bus.ErrDisconnected, "a request whose responder has died")
			}
		})
		e.Soon("the request is on its way", func() bool { return a.calls.request.Load() > sent })
		if halts {
			stopped := e.Async(leaves.Stop)
			e.Pass(0.02)
			e.Must(e.h.Faults.Continue(), "continue")
			e.Await(stopped, "the other one stops")
		}
		e.Soon("both groups have the request", func() bool { return asked.Load() == 2 })
		e.crash(c)
		e.Await(over, "the caller is reported")
	}
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

// twoGroupsOfOne has a process answer for two groups, and then discard what both have
// in their queues.
func twoGroupsOfOne(e *env) {
	a, b := e.pair()
	const n = 20
	var answered [2]atomic.Int64
	patterns := []string{"x.*", "x.>"}
	subs := make([]*bus.Sub, len(patterns))
	for i, pattern := range patterns {
		subs[i] = b.respond(pattern, func(_ context.Context, m *bus.Msg) ([]byte, error) { answered[i].Add(1); return m.Data, nil })
	}
	for i := range n {
		e.Want(a.request("x.y", fmt.Sprint(i)) == fmt.Sprint(i), "another answer")
	}
	e.Soon("the second answers are counted", func() bool { return a.Stats().Late == n })
	e.Want(answered[0].Load() == n && answered[1].Load() == n, "%d requests were answered by %d and %d", n, answered[0].Load(), answered[1].Load())
	for _, s := range subs {
		e.Must(s.Drain(e.Ctx), "drain")
	}

	g := e.gate()
	for i, pattern := range patterns {
		subs[i] = b.respond(pattern, func(ctx context.Context, m *bus.Msg) ([]byte, error) { g.pass(ctx); return m.Data, nil },
			bus.Concurrency(2), bus.OrderBy(func(*bus.Msg) string { return "" }))
	}
	first := e.Async(func() { e.Want(a.request("x.y", "first") == "first", "another answer") })
	for _, s := range subs {
		e.arrives(s, 1)
	}
	queued := e.Async(func() {
		_, err := a.Request(e.Ctx, "x.y", nil)
		e.hasCode(err, "bus.terminated")
	})
	for _, s := range subs {
		e.arrives(s, 2)
		s.Stop()
	}
	e.Await(queued, "a request in the queues of both is refused")
	g.open()
	e.Await(first, "a request in progress is answered")
	e.Soon("no answer is awaited", func() bool { return a.Stats().InFlight == 0 })
}

// groupsLeave ends the members of two groups while requests are on their way to
// them. A member of one group may get a request in place of another one that has just
// left, beside the same request for its own group.
func groupsLeave(e *env) {
	a, b := e.pair()
	c := b
	if e.remote() {
		c = e.process()
	}
	answer := func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil }
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	for range suite.Scaled(20) {
		first, second, third := b.respond("x.*", answer), c.respond("x.>", answer), c.respond("x.*", answer)
		var asked atomic.Int64
		over := make([]<-chan struct{}, 8)
		leaving := e.gate()
		for i := range over {
			over[i] = e.Async(func() {
				for {
					_, err := a.Request(ctx, "x.y", nil)
					var remote *bus.RemoteError
					gone := errors.As(err, &remote) && remote.Reason == "bus.terminated" || errors.Is(err, bus.ErrNoResponders)
					if err != nil && !gone {
						e.Fail("a request whose responders leave: %w", err)
					}
					asked.Add(1)
					select {
					case <-leaving.c:
						return
					default:
						e.breathe()
					}
				}
			})
		}
		e.Soon("requests are answered", func() bool { return asked.Load() >= 50 })
		for _, s := range []*bus.Sub{first, second, third} {
			s.Stop()
		}
		leaving.open()
		for _, o := range over {
			e.Await(o, "a request whose responders have left ends")
		}
	}
}

func oneResponder(e *env) {
	a, b := e.pair()
	var answered [3]atomic.Int64
	for i, p := range []*process{a, b, b} {
		p.respond("x.*", func(context.Context, *bus.Msg) ([]byte, error) { answered[i].Add(1); return nil, nil })
	}
	n, sent := max(suite.Scaled(300), 60), 0
	shares := func() (least int64) {
		return min(answered[0].Load(), answered[1].Load(), answered[2].Load())
	}
	// A responder that still finishes the request before is passed over. On a
	// busy machine this may affect the same responder for a while.
	for ; sent < n || sent < 20*n && shares() < int64(n/60); sent++ {
		a.request("x.y", "")
	}
	got := []int64{answered[0].Load(), answered[1].Load(), answered[2].Load()}
	e.Want(got[0]+got[1]+got[2] == int64(sent), "%d requests were handled %v times", sent, got)
	e.Want(shares() >= int64(n/60), "the shares of three responders are %v", got)
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
