package nats_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// foreign is a client of another program.
func foreign(t *testing.T, url string, options ...natsgo.Option) *natsgo.Conn {
	t.Helper()
	conn, err := natsgo.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// refusing subscribes a service that answers with an error: its code under key, its text
// and its data.
func refusing(t *testing.T, nc *natsgo.Conn, subject, key, code, text, data string) *natsgo.Subscription {
	t.Helper()
	in, err := nc.Subscribe(subject, func(m *natsgo.Msg) {
		reply := natsgo.NewMsg(m.Reply)
		reply.Header.Set(key, code)
		reply.Header.Set("Nats-Service-Error", text)
		reply.Data = []byte(data)
		_ = m.RespondMsg(reply) // the test sees that nothing comes
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Errors of services cross in both directions.
func TestServiceErrorsAreUnderstood(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b, other := open(t, nats.Config{URL: server.URL()}), foreign(t, server.URL())
	refusing(t, other, "rpc.theirs", "Nats-Service-Error-Code", "404", "no such product", "")
	_, err := b.Request(t.Context(), "theirs", nil)
	var remote *bus.RemoteError
	if !errors.As(err, &remote) || remote.Reason != "404" || remote.Message != "no such product" {
		t.Errorf("their error came as %v", err)
	}
	_, err = b.Respond(t.Context(), "ours", func(context.Context, *bus.Msg) ([]byte, error) {
		return nil, &bus.RemoteError{Reason: "stock.gone", Message: "none left\nin any store"}
	})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := other.Request("rpc.ours", nil, patience)
	if err != nil || reply.Header.Get("Nats-Service-Error-Code") != "stock.gone" || reply.Header.Get("Nats-Service-Error") != "none left in any store" {
		t.Errorf("our error came as %v, %v", reply, err)
	}
	if string(reply.Data) != "none left\nin any store" {
		t.Errorf("its data is %q", reply.Data)
	}
	if _, err = b.Request(t.Context(), "ours", nil); !errors.As(err, &remote) || remote.Reason != "stock.gone" || remote.Message != "none left\nin any store" {
		t.Errorf("our error came back as %v", err)
	}
}

// The error of another program reaches logs and answers: its code has the form of a code,
// and its text is bounded, whatever its header is.
func TestAForeignErrorIsBounded(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b, other := open(t, nats.Config{URL: server.URL()}), foreign(t, server.URL())
	for _, key := range []string{"Bus-Error", "Nats-Service-Error-Code"} {
		long := strings.Repeat("x", 100_000)
		in := refusing(t, other, "rpc.theirs", key, "\x1b[2J no code", long, "\xff"+long)
		_, err := b.Request(t.Context(), "theirs", nil)
		remote, ok := errors.AsType[*bus.RemoteError](err)
		if !ok || remote.Reason != "error" || len(remote.Message) < 1000 || len(remote.Message) > 5000 || !utf8.ValidString(remote.Message) {
			t.Errorf("%s: got %.80q", key, err)
		}
		if err := in.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

// A request of a foreign client has no deadline: it gets the default.
func TestForeignRequestGetsTheDefaultDeadline(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b, other := open(t, nats.Config{URL: server.URL()}), foreign(t, server.URL())
	_, err := b.Respond(t.Context(), "x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left > 5*time.Second || left < -patience {
			t.Errorf("%v are left: %v", left, ok)
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Request("rpc.x", nil, patience); err != nil {
		t.Error(err)
	}
}

// The inbox has the prefix of the configuration, so that permissions can keep
// it private, and is subscribed by the first request.
func TestInboxIsPrivateAndLazy(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Deny: []string{"_INBOX.>"}})
	before := server.Subscriptions()
	b := open(t, nats.Config{URL: server.URL(), InboxPrefix: "private.shop"})
	if n := server.Subscriptions(); n != before {
		t.Errorf("before the first request there are %d subscriptions, want %d", n, before)
	}
	replies := make(chan string, 1)
	_, err := b.Respond(t.Context(), "x", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	tap := foreign(t, server.URL())
	if _, err := tap.Subscribe("rpc.x", func(m *natsgo.Msg) { replies <- m.Reply }); err != nil {
		t.Fatal(err)
	}
	if err := tap.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Request(t.Context(), "x", nil); err != nil {
		t.Fatal(err)
	}
	if reply := <-replies; !strings.HasPrefix(reply, "private.shop.") {
		t.Errorf("the inbox is %s", reply)
	}
}

// counting counts connections, and closes one after the other.
type counting struct{ opened atomic.Int64 }

func (c *counting) Dial(network, address string) (net.Conn, error) {
	c.opened.Add(1)
	return net.Dial(network, address)
}

// Options of the client, and a function that connects, are used for each
// connection.
func TestClientIsMadeAsTheUserAsksFor(t *testing.T) {
	server := natstest.Start(t, natstest.Options{User: "u", Password: "p"})
	dialed, heard := &counting{}, atomic.Int64{}
	options := []natsgo.Option{
		natsgo.UserInfo("u", "p"), natsgo.SetCustomDialer(dialed), natsgo.MaxReconnects(-1), natsgo.NoEcho(),
		natsgo.ClosedHandler(func(*natsgo.Conn) { heard.Add(1) }),
	}
	for name, c := range map[string]nats.Config{
		"options": {URL: server.URL(), Options: options},
		"connect": {Connect: func(more ...natsgo.Option) (*natsgo.Conn, error) {
			return natsgo.Connect(server.URL(), append(slices.Clip(options), more...)...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			opened, closed := dialed.opened.Load(), heard.Load()
			b := open(t, c)
			got := listen(t, b, "n")
			publish(t, b, "n", "1")
			next(t, got)
			if err := server.Drop(); err != nil {
				t.Fatal(err)
			}
			connected(t, b, 1)
			publish(t, b, "n", "2")
			if m := next(t, got); string(m.Data) != "2" {
				t.Errorf("got %q", m.Data)
			}
			if opened, closed = dialed.opened.Load()-opened, heard.Load()-closed; opened < 2 || closed < 1 {
				t.Errorf("%d connections were opened by the dialer, and %d reported as closed", opened, closed)
			}
		})
	}
}

// The older of the client's two options for a dialer is used, too.
func TestTheNetworkDialerOfTheUserIsUsed(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	var opened atomic.Int64
	count := func(string, string, syscall.RawConn) error { opened.Add(1); return nil }
	b := open(t, nats.Config{URL: server.URL(), Options: []natsgo.Option{natsgo.Dialer(&net.Dialer{Control: count})}})
	if err := b.Flush(t.Context()); err != nil || opened.Load() != 1 {
		t.Errorf("the dialer has opened %d connections, %v", opened.Load(), err)
	}
}

// Requests without a prefix meet those of foreign clients. What would meet
// events is refused.
func TestRequestsWithoutAPrefix(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b, other := open(t, nats.Config{URL: server.URL(), RawRequests: true}), foreign(t, server.URL())
	answer := func(_ context.Context, m *bus.Msg) ([]byte, error) { return []byte("re: " + m.Subject), nil }
	for _, pattern := range []string{">", "*.x", "ev.x", "ev.>"} {
		if _, err := b.Respond(t.Context(), pattern, answer); !errors.Is(err, bus.ErrBadSubject) {
			t.Errorf("respond to %s: %v", pattern, err)
		}
	}
	if _, err := b.Request(t.Context(), "ev.x", nil); !errors.Is(err, bus.ErrBadSubject) {
		t.Errorf("request: %v", err)
	}
	if _, err := b.Respond(t.Context(), "stock.*", answer); err != nil {
		t.Fatal(err)
	}
	if m, err := other.Request("stock.get", nil, patience); err != nil || string(m.Data) != "re: stock.get" {
		t.Errorf("got %v, %v", m, err)
	}
	_, err := nats.OpenBus(t.Context(), nats.Config{URL: server.URL(), Raw: true, RawRequests: true})
	if !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("neither with a prefix: %v", err)
	}
}

func TestConnectThatIgnoresItsOptionsIsAnError(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	_, err := nats.OpenBus(t.Context(), nats.Config{Connect: func(...natsgo.Option) (*natsgo.Conn, error) { return natsgo.Connect(server.URL()) }})
	if !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// A consumer of JetStream delivers messages under the subjects of their stream, which
// are those of no subscription of the bus.
func TestAMessageWithAForeignSubjectIsDelivered(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Config: `jetstream: {store_dir: ` + strconv.Quote(t.TempDir()) + `}`})
	b, other := open(t, nats.Config{URL: server.URL()}), foreign(t, server.URL())
	got := listen(t, b, "replay")
	js, err := other.JetStream()
	if err == nil {
		_, err = js.AddStream(&natsgo.StreamConfig{Name: "S", Subjects: []string{"a", "ev.sold.*"}})
	}
	if err == nil {
		_, err = js.AddConsumer("S", &natsgo.ConsumerConfig{Durable: "d", DeliverSubject: "ev.replay", AckPolicy: natsgo.AckNonePolicy})
	}
	if err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]string{"a": "a", "ev.sold.1": "sold.1"} {
		if _, err := js.Publish(subject, []byte("1")); err != nil {
			t.Fatal(err)
		}
		if m := next(t, got); m.Subject != want || string(m.Data) != "1" {
			t.Errorf("%s arrived as %q with %q, want %q", subject, m.Subject, m.Data, want)
		}
	}
}
