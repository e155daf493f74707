package bustest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var routeCases = []testCase{
	{rule: "S3", claim: "an event reaches no responder, and a request no subscription", run: kindsNeverMeet},
	{rule: "S3", claim: "a subscription to everything does not hide a missing responder", run: tapHidesNothing},
	{rule: "S4", claim: "three overlapping patterns are three deliveries, and two after one is stopped", run: overlap},
	{rule: "S4", claim: "each message is handled once, with any number of publishers", run: handledOnce},
	{rule: "S7", claim: "messages published after Subscribe are delivered", run: subscribeIsActive},
	{rule: "S7", claim: "a responder is active when Respond has returned", run: respondIsActive},
	{rule: "S7", claim: "added and removed subscriptions do not disturb others", run: churn},
	{rule: "S19", claim: "a publisher receives its own messages", run: selfDelivery},
}

func kindsNeverMeet(e *env) {
	a, b := e.pair()
	var answered atomic.Int64
	b.respond("x.>", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		answered.Add(1)
		return nil, nil
	})
	events := b.listen(">")
	a.publish("x.y", "event")
	a.request("x.y", "request")
	a.flush()
	e.drain(events)
	events.has("event")
	e.Want(answered.Load() == 1, "the responder was asked %d times, want once", answered.Load())
}

func tapHidesNothing(e *env) {
	a, b := e.pair()
	taps := []*inbox{b.listen(">"), b.listen("x.y"), a.listen("x.*"), b.listen("x.y", bus.Group("g"))}
	b.echo("x.z")
	for range 20 {
		before := time.Now()
		_, err := a.Request(e.Ctx, "x.y", nil)
		e.Is(err, bus.ErrNoResponders, "a request that is only listened to")
		e.took(before, 0, 10, "to report a missing responder")
	}
	e.drain(taps...)
	for _, in := range taps {
		in.has()
	}
}

func overlap(e *env) {
	a, b := e.pair()
	boxes := []*inbox{b.listen("x.y"), b.listen("x.*"), b.listen(">")}
	a.publish("x.y", "1")
	for _, in := range boxes {
		in.wants("1")
	}
	e.drain(boxes[1])
	a.publish("x.y", "2")
	a.flush()
	e.drain(boxes...)
	boxes[0].has("1", "2")
	boxes[1].has("1")
	boxes[2].has("1", "2")
}

func handledOnce(e *env) {
	a, b := e.pair()
	n := suite.Scaled(500)
	boxes := []*inbox{a.listen("x.>"), b.listen("x.>"), b.listen("x.*"), b.listen(">"), a.listen("x.*", bus.Concurrency(8)), b.listen("x.>", bus.Group("g"))}
	e.All(8, func(i int) {
		p := []*process{a, b}[i%2]
		for j := range n {
			p.publish(fmt.Sprint("x.", i), fmt.Sprint(i, ":", j))
		}
	})
	a.flush()
	b.flush()
	e.drain(boxes...)
	for _, in := range boxes {
		seen := map[string]int{}
		for _, data := range in.data() {
			seen[data]++
			e.Want(seen[data] == 1, "%s: %s arrived %d times", in.Name(), data, seen[data])
		}
		e.Want(len(seen) == 8*n, "%s: %d of %d arrived", in.Name(), len(seen), 8*n)
	}
}

func subscribeIsActive(e *env) {
	p := e.process()
	for i := range suite.Scaled(500) {
		subject := fmt.Sprint("x.", i%7)
		in := p.listen([]string{subject, "x.*", ">"}[i%3])
		p.publish(subject, "1")
		e.drain(in)
		in.has("1")
	}
}

func respondIsActive(e *env) {
	a, b := e.pair()
	for i := range suite.Scaled(200) {
		s := b.echo("x.*")
		e.Want(a.request("x.y", fmt.Sprint(i)) == fmt.Sprint(i), "another answer")
		s.Stop()
	}
}

func churn(e *env) {
	a, b := e.pair()
	n := suite.Scaled(2000)
	steady := []*inbox{b.listen("x.y"), b.listen("x.*"), b.listen(">", bus.Group("g"))}
	over := e.Async(func() {
		for range n {
			a.publish("x.y", "")
		}
	})
	for changing := true; changing; {
		for _, pattern := range []string{"x.y", "x.*", ">", "x.z"} {
			b.listen(pattern).Stop()
		}
		select {
		case <-over:
			changing = false
		default:
		}
	}
	a.flush()
	e.drain(steady...)
	for _, in := range steady {
		e.Want(in.len() == n, "%s has %d of %d messages", in.Name(), in.len(), n)
	}
}

func selfDelivery(e *env) {
	p := e.process()
	in, one := p.listen("x"), p.listen("x", bus.Group("g"))
	p.echo("x")
	p.publish("x", "1")
	in.wants("1")
	one.wants("1")
	e.Want(p.request("x", "2") == "2", "another answer")
}
