package nats_test

import (
	"context"
	"errors"
	"testing"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// A request that the server has sent to a responder that has stopped is answered
// with an error, as those in the responder's queue are.
func TestARequestOnItsWayToAStoppedResponderIsRefused(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b := open(t, nats.Config{URL: proxy.URL()})
	other := open(t, nats.Config{URL: server.URL()})
	s, err := b.Respond(t.Context(), "a", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Request(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	proxy.Hold(natstest.ToServer, natstest.ToClient)
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.Stop() }()
	<-s.Done()
	asked := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := other.Request(ctx, "a", nil)
		asked <- err
	}()
	await(t, func() bool { return other.Stats().InFlight == 1 })
	if err := other.Flush(t.Context()); err != nil { // the server has sent the request on
		t.Fatal(err)
	}
	proxy.Heal()
	err = <-asked
	if remote, ok := errors.AsType[*bus.RemoteError](err); !ok || remote.Code() != bus.ErrTerminated.Code() || !remote.Retryable {
		t.Errorf("got %v", err)
	}
	<-stopped
}
