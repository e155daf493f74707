package nats_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// retiring is a server that announces its end long before it.
const retiring = `lame_duck_grace_period: "10m", lame_duck_duration: "20m"`

// A process leaves a server that has announced its end for another one. It loses no
// message that it publishes, and its subscription has one gap, at the place of the move
// (S10, S28).
func TestAServerThatAnnouncesItsEndIsLeftWithoutALoss(t *testing.T) {
	t.Parallel()
	servers := &cluster{t: t, options: natstest.Options{Config: retiring}}
	a, b := servers.start(), servers.start()
	named(t, a.URL(), []*natstest.Server{b})
	other := open(t, nats.Config{URL: b.URL()})
	handled := make(chan struct{}) // the handler of the user blocks until the end of the test
	moving, seen := observe(t, nats.Hasty(nats.Config{
		URL: a.URL(), Options: []natsgo.Option{natsgo.LameDuckModeHandler(func(*natsgo.Conn) { handled <- struct{}{} })},
	}, time.Second, patience))
	sent, received := listen(t, other, "sent"), listen(t, moving, "received")
	await(t, func() bool { publish(t, moving, "sent", "first"); return len(sent) > 0 }) // the servers know both subscriptions
	await(t, func() bool { publish(t, other, "received", "first"); return len(received) > 0 })
	n := 0
	exchange := func() bool {
		n++
		publish(t, moving, "sent", strconv.Itoa(n))
		publish(t, other, "received", strconv.Itoa(n))
		return moving.Stats().Cuts == 1
	}
	a.Retire()
	await(t, exchange)
	connected(t, moving, 1)
	exchange()
	arrived := map[string]bool{}
	for !arrived[strconv.Itoa(n)] || len(arrived) <= n { // those that a has passed on may come later than those from b
		arrived[string(next(t, sent).Data)] = true
	}
	if s := moving.Stats(); s.Lost != 0 || s.Cuts != 1 {
		t.Errorf("%d messages are counted as lost in %d cuts", s.Lost, s.Cuts)
	}
	last, gaps := 0, 0
	for last < n {
		m := next(t, received)
		if string(m.Data) == "first" {
			continue
		}
		i, err := strconv.Atoi(string(m.Data))
		if err != nil || i <= last || i > last+1 && m.Missed != -1 {
			t.Fatalf("%q came after %d with Missed %d", m.Data, last, m.Missed)
		}
		if m.Missed != 0 {
			gaps++
		}
		last = i
	}
	if gaps != 1 {
		t.Errorf("the subscription has %d gaps, want 1", gaps)
	}
	<-handled
	await(t, func() bool { return a.Clients() == 0 })
	cut := of[bus.Disconnected](seen)
	if len(cut) != 1 || !strings.Contains(cut[0].Err.Error(), "lame duck") {
		t.Errorf("the reports of the cut are %v", cut)
	}
}

// A server may join after the process has connected.
func TestAServerIsLeftForOneThatHasJoined(t *testing.T) {
	t.Parallel()
	servers := &cluster{t: t, options: natstest.Options{Config: retiring}}
	a := servers.start()
	moving := open(t, nats.Hasty(nats.Config{URL: a.URL()}, time.Second, patience))
	named(t, a.URL(), []*natstest.Server{servers.start()})
	a.Retire()
	connected(t, moving, 1)
}

// The limit that was learned on the connection to a server does not apply to the next
// connection (S17).
func TestALearnedLimitEndsWithTheMove(t *testing.T) {
	t.Parallel()
	servers := &cluster{t: t, options: natstest.Options{Config: retiring, MaxPayload: 1000}}
	a := servers.start()
	moving := open(t, nats.Hasty(nats.Config{URL: a.URL(), Options: []natsgo.Option{natsgo.SetCustomDialer(boaster{})}}, time.Second, patience))
	publish(t, moving, "n", strings.Repeat("x", 2000))
	connected(t, moving, 1)
	await(t, func() bool { return moving.Info().MaxPayload == 1999 })
	servers.options.MaxPayload = 0
	named(t, a.URL(), []*natstest.Server{servers.start()})
	a.Retire()
	connected(t, moving, 2)
	publish(t, moving, "n", strings.Repeat("x", 2000))
}

// The only server is used until it ends, whatever it has announced.
func TestTheOnlyServerIsUsedUntilItEnds(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{Config: retiring})
	proxy := natstest.StartProxy(t, server.URL())
	b := open(t, nats.Hasty(nats.Config{URL: proxy.URL()}, time.Second, patience))
	got := listen(t, b, "n")
	server.Retire()
	await(t, func() bool { return len(proxy.Attempts()) > 2 }) // it looks for another one
	publish(t, b, "n", "1")
	if m := next(t, got); string(m.Data) != "1" || m.Missed != 0 || b.Stats().Cuts != 0 {
		t.Errorf("got %q with Missed %d after %d cuts", m.Data, m.Missed, b.Stats().Cuts)
	}
}
