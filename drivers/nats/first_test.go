package nats_test

import (
	"errors"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// The first request subscribes to the inbox. It ends at its deadline and with
// the connection, also while the server does not confirm that.
func TestTheFirstRequestIsBounded(t *testing.T) {
	const bound = 300 * time.Millisecond
	ask := func(t *testing.T, c bus.Config) (proxy *natstest.Proxy, outcome <-chan error) {
		t.Helper()
		server := natstest.Start(t, natstest.Options{})
		proxy = natstest.StartProxy(t, server.URL())
		d, err := nats.OpenBus(t.Context(), nats.Config{URL: proxy.URL()})
		if err != nil {
			t.Fatal(err)
		}
		b, err := bus.New(d, c)
		if err != nil {
			t.Fatal(err)
		}
		proxy.Hold(natstest.ToServer, natstest.ToClient)
		got := make(chan error, 1)
		go func() {
			_, err := b.Request(t.Context(), "anything", nil)
			got <- err
		}()
		t.Cleanup(func() {
			proxy.Refuse(false)
			proxy.Heal()
			_ = b.Close()
		})
		return proxy, got
	}
	want := func(t *testing.T, got <-chan error, want error) {
		t.Helper()
		select {
		case err := <-got:
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		case <-time.After(patience / 2):
			t.Error("the request has not ended")
		}
	}
	t.Run("deadline", func(t *testing.T) {
		_, got := ask(t, bus.Config{Timeout: bound})
		want(t, got, bus.ErrTimeout)
	})
	t.Run("connection", func(t *testing.T) {
		proxy, got := ask(t, bus.Config{Timeout: time.Hour})
		proxy.Refuse(true)
		select {
		case err := <-got:
			t.Fatalf("it has ended early: %v", err)
		case <-time.After(bound):
		}
		proxy.Cut()
		want(t, got, bus.ErrDisconnected)
	})
}
