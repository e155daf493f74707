package bustest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

// changeCases are about subscriptions that begin while the connection ends.
var changeCases = []testCase{
	{rule: "S7", claim: "a subscription that is made in an outage is active, or an error", needs: []fault{"Down", "Up"}, run: subscribeInOutage},
	{rule: "S10", claim: "a subscription that begins in a cut has a gap for what it loses after its first message", needs: []fault{"Cut"}, run: beginInCut},
}

// subscribeInOutage makes subscriptions and responders from before an outage until its
// end. An event that is published when Subscribe has returned may be lost with the
// connection, and is counted then.
func subscribeInOutage(e *env) {
	p := e.process()
	for round := range max(suite.Scaled(3), 1) {
		m := makers{e: e, p: p}
		outage, over := context.WithCancel(e.Ctx)
		ended := e.Async(func() { e.All(3, func(i int) { m.work(outage, fmt.Sprintf("x.%d.%d", round, i)) }) })
		e.Soon("subscriptions are made", func() bool { return len(m.all()) >= 3 })
		e.down()
		e.isDisconnected(p)
		e.Pass(0.2)
		e.up()
		e.isConnected(p)
		had := len(m.all())
		e.Soon("subscriptions are made again", func() bool { return len(m.all()) >= had+3 })
		over()
		e.Await(ended, "the last one is made")
		p.flushAgain()
		for _, in := range m.all() {
			p.publish(in.Pattern(), "2")
			e.Want(p.request(in.Pattern(), "q") == "q", "another answer")
			e.Soon(in.Pattern()+": the event arrives", func() bool { all := in.data(); return len(all) > 0 && all[len(all)-1] == "2" })
			e.Want(in.len() == 2 || in.Stats().Gaps > 0 || p.Stats().Lost > 0, "%s: got %q, and no loss is counted", in.Pattern(), in.data())
			in.Stop()
		}
	}
}

// makers make subscriptions in several goroutines.
type makers struct {
	e *env
	p *process

	mu   sync.Mutex // guards made
	made []*inbox
}

func (m *makers) all() []*inbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.made)
}

// work makes subscriptions to subjects of its own until ctx ends, and publishes an event
// to each.
func (m *makers) work(ctx context.Context, prefix string) {
	for i := 0; ctx.Err() == nil; i++ {
		in := &inbox{e: m.e}
		subject := fmt.Sprint(prefix, ".", i)
		var err error
		if in.Sub, err = m.p.Subscribe(m.e.Ctx, subject, in.handle); err == nil {
			m.p.publish(subject, "1")
			_, err = m.p.Respond(m.e.Ctx, subject, func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil })
		}
		if err != nil {
			m.e.Is(err, bus.ErrDisconnected, "subscribe in an outage")
			m.e.Sleep(m.e.Unit / 50)
			continue
		}
		m.mu.Lock()
		m.made = append(m.made, in)
		m.mu.Unlock()
		m.e.Sleep(m.e.Unit / 50)
	}
}

// beginInCut breaks the connection while Subscribe waits for the backend, or when it has
// just returned, and events arrive, from another process or its own.
func beginInCut(e *env) {
	a, b := e.pair()
	e.beginInCuts(a, b)
	e.beginInCuts(b, b)
}

func (e *env) beginInCuts(a, b *process) {
	publishing, stop := context.WithCancel(e.Ctx)
	published := e.Async(func() {
		for i := 1; publishing.Err() == nil; i++ {
			a.publish("x", strconv.Itoa(i))
			e.Sleep(e.Unit / 500)
		}
	})
	for range max(suite.Scaled(10), 3) {
		in, cuts := &inbox{e: e}, b.Stats().Cuts
		subscribed := e.Async(func() {
			var err error
			in.Sub, err = b.Subscribe(e.Ctx, "x", in.handle)
			e.Must(err, "subscribe")
		})
		e.Soon("events arrive", func() bool { return in.len() > 0 })
		e.Must(e.h.Faults.Cut(b.driver), "cut")
		e.Await(subscribed, "Subscribe returns")
		e.Soon("the cut is reported", func() bool { return b.Stats().Cuts > cuts })
		e.isConnected(b)
		had := in.len()
		e.Soon("events arrive again", func() bool { return in.len() > had })
		in.Stop()
		e.Await(in.Done(), "it is over")
		in.marksItsJumps()
	}
	stop()
	e.Await(published, "the publisher ends")
}

// marksItsJumps wants numbers in order, and a gap at each jump of them.
func (in *inbox) marksItsJumps() {
	last := 0
	for _, m := range in.all() {
		i, _ := strconv.Atoi(string(m.Data))
		in.e.Want(i > last, "%d was handled after %d", i, last)
		in.e.Want(i == last+1 || last == 0 || m.Missed != 0, "%d arrived after %d, and no gap was reported", i, last)
		last = i
	}
}
