package bustest

import (
	"context"
	"strconv"
	"strings"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var linkCases = []testCase{
	{rule: "S17", claim: "a message above a limit that was not announced costs one reconnect, and is reported as lost", needs: []fault{"Shrink"}, run: shrunk},
	{rule: "S23", claim: "a cut is reported in the affected process, and in no other", needs: []fault{"Cut"}, run: oneSideCut},
	{rule: "S28", claim: "messages lost in a cut are counted and an error of Flush, and queued ones are sent once", needs: []fault{"Cut"}, run: cutIsReported},
	{rule: "S12", claim: "a request is not sent after its caller has returned", needs: []fault{"Slow"}, run: unsentRequest},
	{rule: "S29", claim: "a slow link is not cut, and loses nothing", needs: []fault{"Slow"}, run: slowLink},
}

func shrunk(e *env) {
	a, b := e.pair()
	in := a.listen("x")
	e.Must(e.h.Faults.Shrink(1000), "shrink")
	e.AtEnd(func() { _ = e.h.Faults.Shrink(0) })
	large := strings.Repeat("x", 2000)
	a.publish("y", large)
	e.Is(a.Flush(e.Ctx), bus.ErrDisconnected, "the flush of a message that is lost")
	e.Soon("the loss is reported", func() bool { return len(eventsOf[bus.PublishLost](a)) == 1 })
	lost := eventsOf[bus.PublishLost](a)[0]
	e.Want(lost.Messages == 1 && lost.Bytes >= len(large), "reported %+v", lost)
	e.Soon("the bus is back", func() bool { state, _ := a.State(); return a.Stats().Cuts == 1 && state == bus.StateConnected })
	e.Soon("the disconnect is reported", func() bool { return len(eventsOf[bus.Disconnected](a)) > 0 })
	e.Want(len(eventsOf[bus.Disconnected](a)) == 1, "%d disconnects are reported", len(eventsOf[bus.Disconnected](a)))
	err := a.Publish(e.Ctx, "y", []byte(large))
	e.Is(err, bus.ErrTooLarge, "the next message as large")
	b.publish("x", "1")
	in.wants("1")
	e.Want(in.missed()[0] == -1, "the message has Missed %v", in.missed())
	a.publish("x", "2")
	a.flushAgain()
	in.wants("1", "2")
	e.Want(a.Stats().Cuts == 1 && a.Stats().Lost == 1, "%d cuts and %d lost", a.Stats().Cuts, a.Stats().Lost)
}

func oneSideCut(e *env) {
	a, b := e.pair()
	own, others := a.listen("x"), b.listen("x")
	g, running := e.gate(), e.gate()
	b.respond("ask", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { running.open(); g.pass(ctx); return nil, nil })
	over := e.Async(func() {
		_, err := a.Request(e.Ctx, "ask", nil)
		e.Is(err, bus.ErrDisconnected, "a request in flight")
	})
	e.Await(running.c, "it is being answered")
	e.Must(e.h.Faults.Cut(a.driver), "cut")
	e.Await(over, "the request fails")
	g.open()
	e.Soon("it is reported", func() bool { return len(eventsOf[bus.Connected](a)) == 1 })
	e.isConnected(a, b)
	b.publish("x", "1")
	own.wants("1")
	others.wants("1")
	e.Want(own.missed()[0] == -1 && others.missed()[0] == 0, "the messages have Missed %v and %v", own.missed(), others.missed())
	e.Want(a.Stats().Cuts == 1 && b.Stats().Cuts == 0, "%d and %d cuts", a.Stats().Cuts, b.Stats().Cuts)
	e.works(a, b)
}

// cutIsReported breaks the publisher's connection again and again under load.
func cutIsReported(e *env) {
	a, b := e.pair()
	in := b.listen("x", roomFor(100_000))
	n := 0
	publish := func(count int) {
		for range count {
			n++
			a.publish("x", strconv.Itoa(n))
		}
	}
	for round := range max(suite.Scaled(6), 2) {
		publish(100)
		before := a.Stats().Lost
		over := e.Async(func() { publish(100) })
		e.Must(e.h.Faults.Cut(a.driver), "cut")
		e.Await(over, "publishing goes on")
		e.Soon("the cut is reported", func() bool { return a.Stats().Cuts == uint64(round+1) })
		e.isConnected(a)
		a.flushes(before)
	}
	a.publish("x", "0")
	a.flush()
	e.Soon("the last one arrives", func() bool { all := in.data(); return len(all) > 0 && all[len(all)-1] == "0" })
	e.drain(in)
	last, arrived := 0, in.data()
	arrived = arrived[:len(arrived)-1]
	for _, data := range arrived {
		i, _ := strconv.Atoi(data)
		e.Want(i > last, "%d was handled after %d", i, last)
		last = i
	}
	missing, lost := n-len(arrived), a.Stats().Lost
	e.Soon("each cut is reported", func() bool { return len(eventsOf[bus.Connected](a)) == int(a.Stats().Cuts) }) // and the losses before
	e.Want(missing <= int(lost), "%d of %d messages are missing, and %d are counted as lost", missing, n, lost)
	var messages, bytes int
	for _, l := range eventsOf[bus.PublishLost](a) {
		messages, bytes = messages+l.Messages, bytes+l.Bytes
	}
	e.Want(messages == int(lost) && bytes == int(a.Stats().LostBytes) && bytes >= messages, "%d messages and %d bytes are counted as lost, and %d and %d reported", lost, a.Stats().LostBytes, messages, bytes)
	e.Want(in.Stats().Gaps == 0 && b.Stats().Cuts == 0, "the other process: %d gaps, %d cuts", in.Stats().Gaps, b.Stats().Cuts)
}

// flushes flushes: that is an error if more was lost than before, and only
// then.
func (p *process) flushes(before uint64) {
	if err := p.Flush(p.e.Ctx); err == nil {
		p.e.Want(p.Stats().Lost == before, "%d messages were lost, and Flush returned nil", p.Stats().Lost-before)
		return
	}
	p.e.Soon("the loss is counted", func() bool { return p.Stats().Lost > before })
	p.flush()
}

func slowLink(e *env) {
	a, b := e.pair()
	const rate, size, n = 256 << 10, 8 << 10, 50
	in := b.listen("x")
	e.Must(e.h.Faults.Slow(rate), "slow down")
	e.AtEnd(func() { _ = e.h.Faults.Slow(0) })
	data := strings.Repeat("x", size)
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	for i := range n {
		e.Must(a.Publish(ctx, "x", []byte(strconv.Itoa(i)+" "+data)), "publish")
	}
	e.Must(a.Flush(ctx), "flush")
	in.waits(n)
	for i, m := range in.all() {
		e.Want(strings.HasPrefix(string(m.Data), strconv.Itoa(i)+" ") && m.Missed == 0, "message %d is %.10q, with %d missed", i, m.Data, m.Missed)
	}
	for _, p := range []*process{a, b} {
		e.Want(p.Stats().Cuts == 0 && p.Stats().Lost == 0, "%d cuts, %d lost", p.Stats().Cuts, p.Stats().Lost)
	}
}

// unsentRequest queues a request behind more than the link carries until its
// caller leaves.
func unsentRequest(e *env) {
	a, b := e.pair()
	s, events := b.echo("ask"), b.listen("x")
	e.Must(e.h.Faults.Slow(64<<10), "slow down")
	e.AtEnd(func() { _ = e.h.Faults.Slow(0) })
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	// A driver may pass 256 KiB ahead of a slow connection, and the kernel takes
	// as much again: the request has to wait behind more than both.
	const n = 200
	published := e.Async(func() {
		for range n {
			e.Must(a.Publish(ctx, "x", make([]byte, 8<<10)), "publish")
		}
	})
	e.Pass(2)
	inner, leave := context.WithTimeout(ctx, e.Units(3))
	defer leave()
	asked := e.Async(func() {
		_, err := a.Request(inner, "ask", nil)
		e.Is(err, context.DeadlineExceeded, "the request")
	})
	e.Await(asked, "the caller leaves")
	e.Must(e.h.Faults.Slow(0), "at full speed")
	e.Await(published, "all is published")
	e.Must(a.Flush(ctx), "flush")
	events.waits(n)
	e.Want(a.request("ask", "next") == "next", "another answer")
	e.Want(s.Stats().Received == 1, "the responder was given %d requests, and the caller of one had left", s.Stats().Received)
}
