package main

import (
	"context"
	"os"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if child, ok := children()[os.Args[1]]; ok {
			if err := child(context.Background(), os.Stdin, os.Stdout); err != nil {
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}

func TestEveryCarrierHandlesItsEvents(t *testing.T) {
	carriers, err := openCarriers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{mega, megaTopic, megaTopicV2, channel, goChannel} {
		c, ok := carriers[name]
		if !ok {
			t.Errorf("%s does not take part", name)
			continue
		}
		if err := c.batch(1000); err != nil || c.handled.Load() != 1000 {
			t.Errorf("%s: %d of 1000 were handled, %v", name, c.handled.Load(), err)
		}
		if err := c.close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBothSidesPublishTheSame(t *testing.T) {
	l := &lab{quick: true}
	p, err := openPair(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	tap, err := p.replying.SubscribeSync("*.product.sold")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.replying.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, c := range append(p.publishers(t.Context()), p.publishersWithHeader(t.Context())...) {
		if err := c.do(1); err != nil {
			t.Fatal(err)
		}
		m, err := tap.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{mega: "ev.product.sold", natsGo: p.subject}[c.name]
		if m.Subject != want || len(m.Data) != eventSize || headed(m) != (i >= 2) {
			t.Errorf("%s sent %d bytes to %s with the header %v", c.name, len(m.Data), m.Subject, m.Header)
		}
	}
}

func headed(m *natsgo.Msg) bool { return len(m.Header) == 1 && m.Header.Get("Tenant") == "acme" }

func TestTheServerEndsWithItsInput(t *testing.T) {
	b, err := startBroker()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if conn, err := natsgo.Connect(b.url); err == nil {
		conn.Close()
		t.Error("the server is still there")
	}
}
