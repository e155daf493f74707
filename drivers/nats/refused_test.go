package nats_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/testkit/certificate"
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

// Events that the server has sent to the only member of a group in this process are
// counted, and reported once, if the member has stopped: no other member gets them.
func TestEventsOnTheirWayToAStoppedMemberAreCounted(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	b, told := observe(t, nats.Config{URL: proxy.URL()})
	other := open(t, nats.Config{URL: server.URL()})
	s, err := b.Subscribe(t.Context(), "a", func(context.Context, *bus.Msg) error { return nil }, bus.Group("g"))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hold(natstest.ToServer, natstest.ToClient)
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.Stop() }()
	<-s.Done()
	const n = 3
	for range n {
		publish(t, other, "a", "1")
	}
	if err := other.Flush(t.Context()); err != nil { // the server has sent them on
		t.Fatal(err)
	}
	proxy.Heal()
	<-stopped
	if own, all := s.Stats().Missed, b.Stats().Total.Missed; own != n || all != n {
		t.Errorf("the subscription has missed %d messages, and all of the bus %d, want %d", own, all, n)
	}
	await(t, func() bool { return len(of[bus.Missed](told)) > 0 })
	if events := of[bus.Missed](told); len(events) != 1 || events[0].Count != n || events[0].Pattern != "a" {
		t.Errorf("reported %+v", events)
	}
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

// A server of a list may be out of service. The reason of one that refuses this process
// is returned nevertheless, in any order.
func TestAServerThatDoesNotRunHidesNoRefusal(t *testing.T) {
	refusing := natstest.Start(t, natstest.Options{User: "u", Password: "p"})
	stopped := natstest.Start(t, natstest.Options{})
	stopped.Stop()
	const nowhere = "nats://host.invalid:4222"
	for _, servers := range [][]string{{refusing.URL(), stopped.URL()}, {stopped.URL(), refusing.URL()}, {refusing.URL(), nowhere}, {nowhere, refusing.URL()}} {
		url := strings.Join(servers, ",")
		_, err := nats.OpenBus(t.Context(), nats.Config{URL: url, Options: []natsgo.Option{natsgo.DontRandomize()}})
		if err == nil || !strings.Contains(err.Error(), "Authorization Violation") {
			t.Errorf("%s: got %v", url, err)
		}
	}
}

// A server of a list may be silent until the bus has to be open. The reason of one that
// refuses this process is returned nevertheless (L21).
func TestASilentServerHidesNoRefusal(t *testing.T) {
	t.Parallel()
	refusing, silent := natstest.Start(t, natstest.Options{User: "u", Password: "p"}), natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, silent.URL())
	proxy.Hold(natstest.ToClient)
	for _, url := range []string{refusing.URL() + "," + proxy.URL(), proxy.URL() + "," + refusing.URL()} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // less than the timeout of an attempt
		_, err := nats.OpenBus(ctx, nats.Config{URL: url, Options: []natsgo.Option{natsgo.DontRandomize()}})
		cancel()
		if err == nil || !strings.Contains(err.Error(), "Authorization Violation") {
			t.Errorf("%s: got %v", url, err)
		}
	}
}

// A server of a list may be silent. It does not use up the time in which the bus has to
// open: the next one gets its part.
func TestASilentServerLeavesTimeForTheNextOne(t *testing.T) {
	t.Parallel()
	server, silent := natstest.Start(t, natstest.Options{}), natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, silent.URL())
	proxy.Hold(natstest.ToClient)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // less than the timeout of an attempt
	defer cancel()
	b, err := nats.OpenBus(ctx, nats.Config{URL: proxy.URL() + "," + server.URL(), Options: []natsgo.Option{natsgo.DontRandomize()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// One address with the scheme tls requires TLS of every server of the list, also of those
// that are tried alone.
func TestAnAddressWithTLSRequiresItOfTheOthers(t *testing.T) {
	plain := natstest.Start(t, natstest.Options{})
	stopped := natstest.Start(t, natstest.Options{})
	stopped.Stop()
	for _, scheme := range []string{"tls://", "TLS://"} {
		_, err := nats.OpenBus(t.Context(), nats.Config{URL: strings.Replace(stopped.URL(), "nats://", scheme, 1) + ", " + plain.URL()})
		if !errors.Is(err, natsgo.ErrSecureConnWanted) {
			t.Errorf("%s: got %v", scheme, err)
		}
	}
}

// An option of the client finds what the configuration has set, and its servers replace
// those of the configuration, also where each server of a list is tried alone.
func TestOptionsOfTheClientHoldForAList(t *testing.T) {
	cert, key := certificate.Certificate{}.Write(t)
	server := natstest.Start(t, natstest.Options{Config: fmt.Sprintf("tls: {cert_file: %q, key_file: %q}", cert, key)})
	const nowhere = "nats://host.invalid:4222,nats://host2.invalid:4222"
	open(t, nats.Config{URL: nowhere, TLS: nats.TLS{CA: cert}, Options: []natsgo.Option{func(o *natsgo.Options) error {
		o.TLSConfig.MinVersion = tls.VersionTLS13
		o.Servers = []string{server.URL()}
		return nil
	}}})
}

func TestTheErrorOfAServerWithoutHeadersHasItsVersion(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Config: `no_header_support: true`})
	_, err := nats.OpenBus(t.Context(), nats.Config{URL: server.URL()})
	if want := "server " + natsserver.VERSION + " does not support headers"; !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	await(t, func() bool { return server.Clients() == 0 })
}

// The limits of an account come after the login. A server that says nothing after it is
// not used.
func TestAServerThatFallsSilentAfterTheLoginIsNotUsed(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	c := nats.Config{URL: proxy.URL(), Options: []natsgo.Option{natsgo.SetCustomDialer(muteAt(proxy, "PING", 2))}}
	b, err := nats.OpenBus(t.Context(), nats.Hasty(c, patience, 200*time.Millisecond))
	if err == nil {
		t.Error("the bus is open")
		_ = b.Close(t.Context())
	}
	proxy.Heal()
	await(t, func() bool { return server.Clients() == 0 })
}

// provider is a server inside this process that cannot be reached.
type provider struct{ err error }

func (p provider) InProcessConn() (net.Conn, error) { return nil, p.err }

func TestAnErrorOfAServerInsideTheProcessIsReturned(t *testing.T) {
	cause := errors.New("not started")
	_, err := nats.OpenBus(t.Context(), nats.Config{URL: "nats://localhost", Options: []natsgo.Option{natsgo.InProcessServer(provider{cause})}})
	if err == nil || !strings.Contains(err.Error(), cause.Error()) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

// After Close each call returns ErrClosed, also one that the front has begun before (S22).
func TestCallsOfAClosedDriverReturnErrClosed(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	d, err := nats.OpenBus(t.Context(), nats.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, subscribe := d.Subscribe(t.Context(), driver.Subscription{Pattern: "a", Sink: &taken{}})
	for call, err := range map[string]error{
		"Publish":   d.Publish(t.Context(), driver.Message{Subject: "a"}),
		"Request":   d.Request(t.Context(), driver.Message{Kind: driver.Request, Subject: "a", ID: 1, Deadline: time.Now().Add(patience)}),
		"Answer":    d.Answer(t.Context(), driver.Message{Return: "a"}, driver.Message{Kind: driver.Answer}),
		"Subscribe": subscribe,
	} {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s: %v", call, err)
		}
	}
}
