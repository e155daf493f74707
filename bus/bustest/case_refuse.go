package bustest

import (
	"context"
	"errors"
	"fmt"

	"github.com/megaframework/mega/bus"
)

var refuseCases = []testCase{
	{rule: "S27", claim: "denied subscriptions fail at once, beside allowed ones that do not, and work after permission is granted", needs: []fault{"Refuse", "Allow"}, run: deniedSubscribe},
	{rule: "S27", claim: "a revoked subscription ends, and no other does", needs: []fault{"Refuse", "Allow"}, run: revoked},
	{rule: "S27", claim: "a denied event is reported, counted, and an error of Flush", needs: []fault{"Refuse", "Allow"}, run: deniedPublish},
	{rule: "S27", claim: "a denied request fails at once", needs: []fault{"Refuse", "Allow"}, run: deniedRequest},
}

// refuse denies subjects until the end of the case.
func (e *env) refuse(subjects ...string) {
	e.Must(e.h.Faults.Refuse(subjects...), "refuse")
	e.AtEnd(func() { _ = e.h.Faults.Allow() })
}

func (e *env) allow() { e.Must(e.h.Faults.Allow(), "allow") }

// deniedSubscribe makes denied subscriptions beside allowed ones. The allowed patterns
// begin with the denied ones.
func deniedSubscribe(e *env) {
	a, b := e.pair()
	const n = 20
	var denied []string
	for i := range n {
		denied = append(denied, fmt.Sprint("x.", i))
	}
	e.refuse(denied...)
	allowed := make([]*inbox, n)
	e.All(2*n, func(i int) {
		pattern := denied[i/2]
		if i%2 == 0 {
			allowed[i/2] = b.listen(pattern + ".y")
			b.echo(pattern + ".y")
			return
		}
		_, err := b.Subscribe(e.Ctx, pattern, func(context.Context, *bus.Msg) error { return nil })
		e.Is(err, bus.ErrRefused, "subscribe")
		e.hasCode(err, "bus.refused")
		_, err = b.Respond(e.Ctx, pattern, func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
		e.Is(err, bus.ErrRefused, "respond")
	})
	e.Want(len(b.Stats().Subs) == 2*n, "there are %d subscriptions, want the %d that are allowed", len(b.Stats().Subs), 2*n)
	for i, in := range allowed {
		a.publish(denied[i]+".y", "e")
		in.wants("e")
		e.Want(a.request(denied[i]+".y", "q") == "q", "another answer")
	}
	e.Want(len(eventsOf[bus.Ended](b)) == 0, "allowed subscriptions have ended: %+v", eventsOf[bus.Ended](b))
	e.works(a, b)
	e.allow()
	in := b.listen("x.0")
	b.echo("x.0")
	a.publish("x.0", "1")
	in.wants("1")
	e.Want(a.request("x.0", "q") == "q", "another answer")
}

func revoked(e *env) {
	a, b := e.pair()
	in, stays := b.listen("x"), b.listen("y")
	e.refuse("x")
	e.Soon("the end is reported", func() bool { return len(eventsOf[bus.Ended](b)) == 1 })
	ended := eventsOf[bus.Ended](b)[0]
	e.Want(ended.Pattern == "x", "the subscription to %s has ended", ended.Pattern)
	e.Is(ended.Err, bus.ErrTerminated, "why it has ended")
	e.Await(in.Done(), "it is done")
	e.Is(in.Err(), bus.ErrTerminated, "its error")
	a.publish("y", "1")
	stays.wants("1")
	e.allow()
	again := b.listen("x")
	a.publish("x", "2")
	again.wants("2")
	in.has()
	e.Want(b.Stats().Cuts == 0 && stays.Stats().Gaps == 0, "%d cuts, %d gaps", b.Stats().Cuts, stays.Stats().Gaps)
}

func deniedPublish(e *env) {
	a, b := e.pair()
	in := b.listen("y")
	e.refuse("x")
	a.publish("x", "1")
	a.publish("x", "2")
	a.publish("y", "3")
	e.Is(a.Flush(e.Ctx), bus.ErrRefused, "flush")
	in.wants("3")
	e.Soon("both are reported", func() bool { return len(eventsOf[bus.PublishRefused](a)) == 2 })
	for _, r := range eventsOf[bus.PublishRefused](a) {
		e.Want(r.Subject == "x", "the refusal names %q", r.Subject)
		e.Is(r.Err, bus.ErrRefused, "the reports")
	}
	e.Want(a.Stats().Refused == 2 && a.Stats().Cuts == 0, "%d are counted in %d cuts", a.Stats().Refused, a.Stats().Cuts)
	e.allow()
	if err := a.Flush(e.Ctx); err != nil { // it may report the same refusals again
		e.Is(err, bus.ErrRefused, "flush")
	}
	other := b.listen("x")
	a.publish("x", "4")
	a.flush()
	other.wants("4")
}

func deniedRequest(e *env) {
	a, b := e.pair()
	b.echo("y")
	e.refuse("x")
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	e.All(10, func(int) {
		over := e.Async(func() {
			_, err := a.Request(ctx, "x", nil)
			e.Is(err, bus.ErrRefused, "request")
		})
		e.Await(over, "the request fails")
	})
	e.Want(a.request("y", "q") == "q", "another answer")
	e.Want(len(eventsOf[bus.PublishRefused](a)) == 0, "requests are reported as events")
	e.allow()
	_, err := a.Request(ctx, "x", nil)
	e.Want(errors.Is(err, bus.ErrNoResponders), "a request that is allowed: %v", err)
}
