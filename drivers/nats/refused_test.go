package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
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

// A server that no longer accepts the credentials closes the connection after its
// reason. The report of the loss has that reason (S23).
func TestTheLossOfRevokedCredentialsNamesThem(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{User: "u", Password: "p"})
	b, told := observe(t, nats.Config{URL: server.URL(), User: "u", Password: "p"})
	for round := range uint64(2) {
		if err := server.Reload(func(o *natstest.Options) { o.Password = "other" }); err != nil {
			t.Fatal(err)
		}
		await(t, func() bool { return len(of[bus.Disconnected](told)) > int(round) })
		if err := of[bus.Disconnected](told)[round].Err; !errors.Is(err, bus.ErrDisconnected) || !strings.Contains(strings.ToLower(err.Error()), "authorization violation") {
			t.Errorf("got %v", err)
		}
		if err := server.Reload(func(o *natstest.Options) { o.Password = "p" }); err != nil {
			t.Fatal(err)
		}
		connected(t, b, round+1)
	}
}

func TestTheErrorOfAServerWithoutHeadersHasItsVersion(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Config: `no_header_support: true`})
	_, err := nats.OpenBus(t.Context(), nats.Config{URL: server.URL()})
	if want := "server " + natsserver.VERSION + " does not support headers"; !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
