package nats_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// What nobody wants any more leaves the queue unsent: requests whose caller has
// gone, and events that have expired. The latter are counted.
func TestExpiredMessagesAreNotSent(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b, other := open(t, nats.Config{URL: proxy.URL()}), open(t, nats.Config{URL: server.URL()})
	var asked atomic.Int64
	_, err := other.Respond(t.Context(), "ask", func(context.Context, *bus.Msg) ([]byte, error) { asked.Add(1); return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	got := listen(t, other, "n.>")
	if _, err := b.Request(t.Context(), "ask", nil); err != nil {
		t.Fatal(err)
	}

	proxy.Hold(natstest.ToServer)
	for range 20 { // more than may be unconfirmed
		publish(t, b, "n.first", strings.Repeat("x", 10_000))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Request(ctx, "ask", nil); !errors.Is(err, bus.ErrTimeout) {
		t.Errorf("a request behind others: %v", err)
	}
	const expired = 3
	for range expired {
		if err := b.Publish(t.Context(), "n.expired", nil, bus.Expires(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, b, "n.last", "1")
	time.Sleep(5 * time.Millisecond) // until they have expired
	proxy.Heal()
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for m := next(t, got); m.Subject != "n.last"; m = next(t, got) {
		if m.Subject == "n.expired" {
			t.Error("an event was sent that had expired")
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the responder was asked %d times, want once", n)
	}
	if s := b.Stats(); s.Expired != expired || s.Lost != 0 {
		t.Errorf("%d expired, %d lost", s.Expired, s.Lost)
	}
}
