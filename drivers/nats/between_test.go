package nats_test

import (
	"fmt"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// A server confirms a message before it has passed it to another server. Info().Lacks
// has this limit of NATS (S4).
func TestALossBetweenServersIsNotReported(t *testing.T) {
	t.Parallel()
	a, b, between := apart(t)
	publisher, subscriber := open(t, nats.Config{URL: a.URL()}), open(t, nats.Config{URL: b.URL()})
	if !strings.Contains(fmt.Sprint(publisher.Info().Lacks), "{S4 ") {
		t.Error("Info().Lacks does not have S4")
	}
	got := listen(t, subscriber, "x")
	arrives := func(data string) {
		t.Helper()
		await(t, func() bool {
			publish(t, publisher, "x", data)
			select {
			case m := <-got:
				return string(m.Data) == data && m.Missed == 0
			default:
				return false
			}
		})
	}
	arrives("before")
	between.Hold(natstest.ToServer, natstest.ToClient)
	publish(t, publisher, "x", "lost")
	if err := publisher.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	between.Cut()
	between.Heal()
	arrives("after")
	if s := publisher.Stats(); s.Lost != 0 {
		t.Errorf("the publisher counts %d lost messages", s.Lost)
	}
	if err := subscriber.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for len(got) > 0 {
		if m := <-got; m.Missed != 0 || string(m.Data) == "lost" {
			t.Errorf("got %q after a gap of %d", m.Data, m.Missed)
		}
	}
}

// A publisher that connects to another server may overtake its own messages that wait
// between the two. Info().Lacks has this limit of NATS (S5).
func TestAMessageBetweenServersMayArriveAfterALaterOne(t *testing.T) {
	t.Parallel()
	a, b, between := apart(t)
	front := natstest.StartProxy(t, a.URL())
	publisher := open(t, nats.Config{URL: front.URL() + "," + b.URL(), Options: []natsgo.Option{natsgo.DontRandomize()}})
	if lacks := fmt.Sprint(publisher.Info().Lacks); !strings.Contains(lacks, "{S5 ") || !strings.Contains(lacks, "between two servers of a cluster may arrive after") {
		t.Errorf("Info().Lacks does not have S5: %s", lacks)
	}
	got := listen(t, open(t, nats.Config{URL: b.URL()}), "x")
	await(t, func() bool { publish(t, publisher, "x", "first"); return len(got) > 0 })
	if err := publisher.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	between.Hold(natstest.ToServer, natstest.ToClient)
	publish(t, publisher, "x", "1")
	if err := publisher.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	front.Refuse(true)
	front.Cut()
	connected(t, publisher, 1)
	publish(t, publisher, "x", "2")
	want := []string{"2", "1"}
	for len(want) > 0 {
		m := next(t, got)
		if string(m.Data) == "first" {
			continue
		}
		if string(m.Data) != want[0] {
			t.Fatalf("got %q, want %q", m.Data, want[0])
		}
		want = want[1:]
		between.Heal()
	}
}

// apart starts two servers of a cluster, and a proxy between them.
func apart(t *testing.T) (a, b *natstest.Server, between *natstest.Proxy) {
	t.Helper()
	routes, err := redistest.FindAddr()
	if err != nil {
		t.Fatal(err)
	}
	const config = `cluster: {name: c, listen: %q, pool_size: -1, no_advertise: true, routes: [%s]}`
	a = natstest.Start(t, natstest.Options{Config: fmt.Sprintf(config, routes, "")})
	between = natstest.StartProxy(t, "nats://"+routes)
	b = natstest.Start(t, natstest.Options{Config: fmt.Sprintf(config, "127.0.0.1:-1", strings.Replace(between.URL(), "nats", "nats-route", 1))})
	return a, b, between
}

// Over a leaf node, a server passes the messages of a group to the other side only if no
// member is on its own. Info().Lacks has this limit of NATS (S11).
func TestAGroupOverALeafNodeIsServedOnThePublishersSide(t *testing.T) {
	leaves, err := redistest.FindAddr()
	if err != nil {
		t.Fatal(err)
	}
	hub := natstest.Start(t, natstest.Options{Config: fmt.Sprintf(`leafnodes: {listen: %q}`, leaves)})
	leaf := natstest.Start(t, natstest.Options{Config: fmt.Sprintf(`leafnodes: {remotes: [{url: "nats-leaf://%s"}]}`, leaves)})
	publisher, other := open(t, nats.Config{URL: leaf.URL()}), open(t, nats.Config{URL: hub.URL()})
	if !strings.Contains(fmt.Sprint(publisher.Info().Lacks), "{S11 ") {
		t.Error("Info().Lacks does not have S11")
	}
	far := listen(t, other, "x", bus.Group("g"))
	await(t, func() bool { publish(t, publisher, "x", "first"); return len(far) > 0 })
	near := listen(t, publisher, "x", bus.Group("g"))
	const n = 100
	for range n {
		publish(t, publisher, "x", "1")
	}
	for range n {
		if m := next(t, near); string(m.Data) != "1" {
			t.Errorf("got %s", m.Data)
		}
	}
}
