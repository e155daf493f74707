package bustest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var outageCases = []testCase{
	{rule: "S23", claim: "requests in flight fail at once, and so do those made while the backend is away", needs: []fault{"Down", "Up"}, run: outageFailsRequests},
	{rule: "S23", claim: "a request that waits for room fails with the connection", needs: []fault{"Pause", "Continue", "Down", "Up"}, run: outageFailsWaitingRequests},
	{rule: "S23", claim: "publishes during an outage arrive in order, after one gap mark per subscription", needs: []fault{"Down", "Up"}, run: outageBuffers},
	{rule: "S23", claim: "publishes during an outage are bounded in bytes, and wait for room in time", needs: []fault{"Down", "Up"}, run: outageIsBounded},
	{rule: "S24", claim: "an event that expires while the backend is away is not sent, and is counted", needs: []fault{"Down", "Up"}, run: expiresInOutage},
	{rule: "S23", claim: "the state is visible, and reported once", needs: []fault{"Down", "Up"}, run: outageIsVisible},
	{rule: "S23", claim: "subscriptions stopped during an outage do not come back", needs: []fault{"Down", "Up"}, run: outageStops},
	{rule: "S23", claim: "a subscription that is drained during an outage gets its gap mark", needs: []fault{"Down", "Up"}, run: outageDrains},
	{rule: "S23", claim: "a subscribe during an outage is an error, and leaves nothing behind", needs: []fault{"Down", "Up"}, run: outageSubscribe},
	{rule: "S23", claim: "over many outages under load nothing arrives twice or out of order, and each gap is reported", needs: []fault{"Down", "Up"}, run: outagesUnderLoad},
	{rule: "S23", claim: "a short interruption of the connection is reported too", needs: []fault{"Drop"}, run: dropped},
}

func (e *env) down() {
	e.Must(e.h.Faults.Down(), "take the backend away")
	e.away = true
	e.AtEnd(e.upAgain)
}

// upAgain brings back a backend that is away at the end of a case.
func (e *env) upAgain() {
	if e.away {
		_ = e.h.Faults.Up()
	}
}

func (e *env) up() {
	e.away = false
	e.Must(e.h.Faults.Up(), "bring the backend back")
}

func (e *env) isIn(p *process, want bus.State) {
	e.Soon("the state is "+string(want), func() bool { state, _ := p.State(); return state == want })
}

func (e *env) isDisconnected(ps ...*process) {
	for _, p := range ps {
		e.isIn(p, bus.StateDisconnected)
	}
}

func (e *env) isConnected(ps ...*process) {
	for _, p := range ps {
		e.isIn(p, bus.StateConnected)
	}
}

func outageFailsRequests(e *env) {
	a, b := e.pair()
	g, running := e.gate(), e.gate()
	b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { running.open(); g.pass(ctx); return nil, nil })
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	var over []<-chan struct{}
	for range 20 {
		over = append(over, e.Async(func() {
			_, err := a.Request(ctx, "x", nil)
			e.Is(err, bus.ErrDisconnected, "a request in flight")
		}))
	}
	over = append(over, e.Async(func() {
		data, errs := a.gathered(ctx)
		e.Want(len(data) == 0 && len(errs) == 1 && errors.Is(errs[0], bus.ErrDisconnected), "a request of many: %q, %v", data, errs)
	}))
	e.Await(running.c, "they are being answered")
	e.Soon("all are in flight", func() bool { return a.Stats().InFlight == 21 })
	e.down()
	for _, c := range over {
		e.Await(c, "the requests fail")
	}
	e.isDisconnected(a, b)
	before := time.Now()
	_, err := a.Request(ctx, "x", nil)
	e.Is(err, bus.ErrDisconnected, "a request while the backend is away")
	e.hasCode(err, "bus.disconnected")
	e.took(before, 0, 5, "to say so")
	g.open()
	e.up()
	e.isConnected(a, b)
	a.request("x", "")
}

func outageFailsWaitingRequests(e *env) {
	a := e.process()
	_, err := a.Request(e.Ctx, "x", nil)
	e.Is(err, bus.ErrNoResponders, "the first request")
	e.AtEnd(func() { _ = e.h.Faults.Continue() })
	e.Must(e.h.Faults.Pause(), "pause")
	e.fill(a)
	ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
	defer cancel()
	over := e.Async(func() {
		_, err := a.Request(ctx, "x", make([]byte, 1<<19))
		e.Is(err, bus.ErrDisconnected, "the request")
	})
	e.Soon("it is in flight", func() bool { return a.Stats().InFlight == 1 })
	e.Pass(0.1) // so that it waits
	e.down()
	e.Await(over, "the request fails")
	e.up()
	e.isConnected(a)
}

func outageBuffers(e *env) {
	a, b := e.pair()
	boxes := []*inbox{a.listen("x.>"), a.listen("x.*"), a.listen(">", bus.Group("g"))}
	quiet, responder := b.listen("quiet"), b.echo("quiet")
	a.publish("x.0", "0")
	for _, in := range boxes {
		in.wants("0")
	}
	a.flush() // nothing is unconfirmed when the connection ends
	e.down()
	e.isDisconnected(a, b)
	for i := 1; i <= 100; i++ {
		a.publish(fmt.Sprint("x.", i), strconv.Itoa(i))
	}
	e.up()
	e.isConnected(a, b)
	for i := 101; i <= 110; i++ {
		a.publish("x.y", strconv.Itoa(i))
	}
	b.publish("quiet", "q1")
	b.publish("quiet", "q2")
	a.flush()
	b.flush()
	e.drain(append(boxes, quiet)...)
	want := make([]int, 111)
	want[1] = -1
	for _, in := range boxes[:2] {
		in.has(numbers(0, 110)...)
		e.Want(slices.Equal(in.missed(), want), "%s: the messages have Missed %v", in.Name(), in.missed())
		e.Want(in.Stats().Gaps == 1, "%d gaps are counted", in.Stats().Gaps)
	}
	quiet.has("q1", "q2")
	e.Want(slices.Equal(quiet.missed(), []int{-1, 0}), "the messages have Missed %v", quiet.missed())
	e.Want(responder.Stats().Gaps == 1, "%d gaps of a responder are counted", responder.Stats().Gaps)
}

func outageIsBounded(e *env) {
	a := e.process()
	in := a.listen("x")
	e.down()
	e.isDisconnected(a)
	data := make([]byte, 1<<19)
	accepted := 0
	for end := time.Now().Add(e.Patience()); ; accepted++ {
		e.Want(time.Now().Before(end) && accepted < 1000, "however much waits, nothing is refused")
		ctx, cancel := e.within(0.5)
		err := a.Publish(ctx, "x", data)
		cancel()
		if err != nil {
			e.Is(err, bus.ErrOverloaded, "publish")
			e.Is(err, context.DeadlineExceeded, "publish until its context ends")
			e.hasCode(err, "bus.overloaded")
			break
		}
	}
	before := time.Now()
	err := a.Publish(e.Ctx, "x", data)
	e.Is(err, bus.ErrOverloaded, "publish without a deadline")
	e.Is(err, context.DeadlineExceeded, "publish without a deadline")
	e.took(before, 5*time.Second, 20, "publishing without a deadline")
	e.Want(accepted > 0, "nothing was accepted")
	e.up()
	e.isConnected(a)
	a.flush()
	e.drain(in)
	e.Want(in.len() == accepted, "%d of %d that were accepted have arrived", in.len(), accepted)
}

func expiresInOutage(e *env) {
	a, b := e.pair()
	in := a.listen("x") // b may be back later than a, and misses what a sends until then
	e.down()
	e.isDisconnected(a, b)
	a.publish("x", "expires", bus.Expires(e.Units(1)))
	a.publish("x", "stays", bus.Expires(10*e.Patience()))
	e.Pass(2)
	e.up()
	e.isConnected(a, b)
	a.flush()
	e.drain(in)
	in.has("stays")
	e.Want(a.Stats().Expired == 1, "%d are counted as expired before they were sent", a.Stats().Expired)
}

func outageIsVisible(e *env) {
	p := e.process()
	p.listen("x", bus.Name("listener"))
	for i := range 2 {
		e.isConnected(p)
		e.down()
		e.isDisconnected(p)
		_, err := p.State()
		e.Is(err, bus.ErrDisconnected, "why it is disconnected")
		e.Pass(0.1)
		e.up()
		e.isConnected(p)
		e.Soon("it is reported", func() bool { return len(eventsOf[bus.Connected](p)) == i+1 })
		e.Soon("the gap is reported", func() bool { return len(eventsOf[bus.Missed](p)) == i+1 })
	}
	cuts, back, missed := eventsOf[bus.Disconnected](p), eventsOf[bus.Connected](p), eventsOf[bus.Missed](p)
	e.Want(len(cuts) == 2 && len(back) == 2 && back[0].After > 0 && p.Stats().Cuts == 2, "reported %v and %v, counted %d", cuts, back, p.Stats().Cuts)
	e.Want(len(missed) == 2 && missed[0].Name == "listener" && missed[0].Count == -1, "reported %+v", missed)
}

func outageStops(e *env) {
	a, b := e.pair()
	stopped, drained, s := b.listen("x"), b.listen("x"), b.echo("x")
	stays := b.listen("x")
	e.down()
	e.isDisconnected(a, b)
	stopped.Stop()
	s.Stop()
	e.drain(drained)
	e.up()
	e.isConnected(a, b)
	a.publish("x", "1")
	a.flush()
	e.drain(stays)
	stays.has("1")
	stopped.has()
	drained.has()
	_, err := a.Request(e.Ctx, "x", nil)
	e.Is(err, bus.ErrNoResponders, "the responder was stopped")
}

// outageDrains drains subscriptions during an outage: messages on the way to them
// are lost.
func outageDrains(e *env) {
	p := e.process()
	called := 0
	drained := []*inbox{
		p.listen("x", bus.OnGap(func(context.Context, int) error { called++; return nil })),
		p.listen("x", bus.Group("g")), p.listen("x", bus.Group("g")),
	}
	e.down()
	e.isDisconnected(p)
	e.drain(drained...)
	e.up()
	e.isConnected(p)
	for _, in := range drained {
		e.Want(in.Stats().Gaps == 1, "%d gaps are counted", in.Stats().Gaps)
	}
	e.Want(called == 1, "OnGap was called %d times", called)
}

func outageSubscribe(e *env) {
	p := e.process()
	e.down()
	e.isDisconnected(p)
	ctx, cancel := e.within(2)
	defer cancel()
	before := time.Now()
	_, err := p.Subscribe(ctx, "x", func(context.Context, *bus.Msg) error { return nil })
	e.Want(errors.Is(err, bus.ErrDisconnected) || errors.Is(err, context.DeadlineExceeded), "subscribe returned %v", err)
	_, err = p.Respond(ctx, "x", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
	e.Want(errors.Is(err, bus.ErrDisconnected) || errors.Is(err, context.DeadlineExceeded), "respond returned %v", err)
	e.Want(time.Since(before) < e.Units(20), "it took %v", time.Since(before))
	e.Want(len(p.Stats().Subs) == 0, "%d subscriptions are left", len(p.Stats().Subs))
	e.up()
	e.isConnected(p)
	_, err = p.Request(e.Ctx, "x", nil)
	e.Is(err, bus.ErrNoResponders, "the responder that could not be made")
	e.works(p, p)
}

// outagesUnderLoad takes the backend away again and again while everybody is at
// work.
func outagesUnderLoad(e *env) {
	a, b := e.pair()
	rounds := outages()
	in := b.listen("x.*")
	quiet := b.listen("quiet")
	b.echo("ask")
	load, stop := context.WithCancel(e.Ctx)
	n := 0
	publisher := e.Async(func() {
		for load.Err() == nil {
			n++
			ctx, cancel := e.within(5)
			err := a.Publish(ctx, fmt.Sprint("x.", n%3), []byte(strconv.Itoa(n)))
			cancel()
			if err != nil {
				e.Is(err, bus.ErrOverloaded, "publish")
			}
			e.Sleep(e.Unit / 200)
		}
	})
	asker := e.Async(func() {
		for load.Err() == nil {
			ctx, cancel := e.within(3)
			m, err := a.Request(ctx, "ask", []byte("question"))
			cancel()
			switch {
			case err == nil:
				e.Want(string(m.Data) == "question", "the answer is %q", m.Data)
			case !errors.Is(err, bus.ErrDisconnected) && !errors.Is(err, bus.ErrNoResponders) && !errors.Is(err, bus.ErrTimeout):
				e.Fail("request: %w", err)
			}
			e.Sleep(e.Unit / 200)
		}
	})
	for range rounds {
		had := in.len()
		e.Soon("messages come", func() bool { return in.len() > had })
		e.down()
		e.isDisconnected(a, b)
		e.up()
		e.isConnected(a, b)
		e.Soon("requests are answered", func() bool { _, err := a.Request(e.Ctx, "ask", nil); return err == nil })
	}
	stop()
	e.Await(publisher, "the publisher ends")
	e.Await(asker, "the asker ends")
	a.flushAgain()
	e.drain(in)
	e.inOrderWithGaps(in, rounds)
	b.publish("quiet", "")
	quiet.wants("")
	e.Want(quiet.missed()[0] == -1 && quiet.Stats().Gaps == uint64(rounds), "after %d outages the idle subscription has %d gap marks, with Missed %v", rounds, quiet.Stats().Gaps, quiet.missed())
}

// inOrderWithGaps wants no message twice and none out of order, and a report
// for every jump of the numbers.
func (e *env) inOrderWithGaps(in *inbox, outages int) {
	last := 0
	for _, m := range in.all() {
		i, _ := strconv.Atoi(string(m.Data))
		e.Want(i > last, "%d was handled after %d", i, last)
		e.Want(i == last+1 || m.Missed != 0, "%d arrived after %d, and no gap was reported", i, last)
		last = i
	}
	e.Want(in.Stats().Gaps == uint64(outages), "%d gaps were reported in %d outages", in.Stats().Gaps, outages)
}

func dropped(e *env) {
	a, b := e.pair()
	in := b.listen("x")
	for i := range max(suite.Scaled(3), 2) {
		a.publish("x", strconv.Itoa(2*i))
		in.waits(2*i + 1)
		e.Must(e.h.Faults.Drop(), "drop")
		e.Soon("it is reported", func() bool { return in.Stats().Gaps == uint64(i+1) })
		e.isConnected(a, b)
		e.works(a, b)
		a.publish("x", strconv.Itoa(2*i+1))
		in.waits(2*i + 2)
		e.Want(in.missed()[2*i+1] == -1 && in.missed()[2*i] == 0, "the messages have Missed %v", in.missed())
	}
}
