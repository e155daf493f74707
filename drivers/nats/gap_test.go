package nats_test

import (
	"context"
	"testing"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// The server has sent a message to a subscription, and has already ended the
// subscription when the message is lost with the connection: OnGap is called (S4, S10).
func TestSubscriptionThatEndsInACutReportsItsLoss(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b, other := open(t, nats.Config{URL: proxy.URL()}), open(t, nats.Config{URL: server.URL()})
	gaps := make(chan int, 10)
	s, err := b.Subscribe(t.Context(), "n", func(context.Context, *bus.Msg) error { return nil },
		bus.OnGap(func(_ context.Context, missed int) error { gaps <- missed; return nil }))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hold(natstest.ToClient)
	publish(t, other, "n", "lost")
	if err := other.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	await(t, func() bool { return server.Subscriptions() == 0 })
	proxy.Cut()
	proxy.Heal()
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if len(gaps) != 1 || <-gaps != -1 || s.Stats().Gaps != 1 {
		t.Errorf("OnGap was called %d times, and %d gaps are counted", len(gaps), s.Stats().Gaps)
	}
}
