package nats_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// patience is how long a test waits for what is about to happen.
const patience = 10 * time.Second

func open(t *testing.T, c nats.Config) *bus.Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d, err := nats.OpenBus(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bus.New(d, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func TestADriverBelongsToOneBus(t *testing.T) {
	d, err := nats.OpenBus(t.Context(), nats.Config{URL: natstest.Start(t, natstest.Options{}).URL()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := bus.New(d, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := bus.New(d, bus.Config{}); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("a second Bus over the driver: %v", err)
	}
	if _, err := b.Request(t.Context(), "nobody", nil); !errors.Is(err, bus.ErrNoResponders) { // it reaches its front
		t.Errorf("a request of the first Bus: %v", err)
	}
}

// listen collects what a subscription gets.
func listen(t *testing.T, b *bus.Bus, pattern string, opts ...bus.SubOption) <-chan *bus.Msg {
	t.Helper()
	got := make(chan *bus.Msg, 100_000)
	_, err := b.Subscribe(t.Context(), pattern, func(_ context.Context, m *bus.Msg) error {
		got <- m
		return nil
	}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func publish(t *testing.T, b *bus.Bus, subject, data string) {
	t.Helper()
	if err := b.Publish(t.Context(), subject, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func next(t *testing.T, from <-chan *bus.Msg) *bus.Msg {
	t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(patience):
		t.Fatal("nothing arrived")
		return nil
	}
}

func TestEventsReachOtherProcesses(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	a, b := open(t, nats.Config{URL: server.URL()}), open(t, nats.Config{URL: server.URL()})
	got, own := listen(t, b, "orders.*"), listen(t, a, "orders.>")
	publish(t, a, "orders.created", "1")
	for _, from := range []<-chan *bus.Msg{got, own} {
		if m := next(t, from); string(m.Data) != "1" || m.Subject != "orders.created" {
			t.Errorf("got %q on %q", m.Data, m.Subject)
		}
	}
}

func TestRequestsAreAnsweredElsewhere(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	a, b := open(t, nats.Config{URL: server.URL()}), open(t, nats.Config{URL: server.URL()})
	if _, err := a.Request(t.Context(), "stock.get", nil); !errors.Is(err, bus.ErrNoResponders) {
		t.Errorf("without a responder: %v", err)
	}
	_, err := b.Respond(t.Context(), "stock.*", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		if string(m.Data) == "bad" {
			return nil, &bus.RemoteError{Reason: "stock.unknown", Message: "no such product"}
		}
		return append([]byte("re: "), m.Data...), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.Request(t.Context(), "stock.get", []byte("lamp"))
	if err != nil || string(m.Data) != "re: lamp" {
		t.Errorf("got %v, %v", m, err)
	}
	var remote *bus.RemoteError
	if _, err := a.Request(t.Context(), "stock.get", []byte("bad")); !errors.As(err, &remote) || remote.Reason != "stock.unknown" {
		t.Errorf("the responder's error came back as %v", err)
	}
}

// A pattern and a name are a group; the same name under another pattern is
// another one, which NATS alone would not know.
func TestGroupIsPatternAndName(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	a, b := open(t, nats.Config{URL: server.URL()}), open(t, nats.Config{URL: server.URL()})
	var exact, wide atomic.Int64
	count := func(n *atomic.Int64) bus.Handler {
		return func(context.Context, *bus.Msg) error { n.Add(1); return nil }
	}
	for _, on := range []*bus.Bus{a, b} {
		for pattern, n := range map[string]*atomic.Int64{"jobs.mail": &exact, "jobs.*": &wide} {
			if _, err := on.Subscribe(t.Context(), pattern, count(n), bus.Group("workers")); err != nil {
				t.Fatal(err)
			}
		}
	}
	const n = 100
	for i := range n {
		publish(t, a, "jobs.mail", fmt.Sprint(i))
	}
	await(t, func() bool { return exact.Load() == n && wide.Load() == n })
	if err := errors.Join(a.Drain(t.Context()), b.Drain(t.Context())); err != nil {
		t.Error(err)
	}
	if exact.Load() != n || wide.Load() != n {
		t.Errorf("the groups got %d and %d, want %d each", exact.Load(), wide.Load(), n)
	}
}

// Two groups stay apart if their names and patterns make up the same text.
func TestGroupsWithColonsAreApart(t *testing.T) {
	b := open(t, nats.Config{URL: natstest.Start(t, natstest.Options{}).URL()})
	groups := []<-chan *bus.Msg{listen(t, b, "a.x:a.>", bus.Group("g")), listen(t, b, "a.>", bus.Group("g:a.x")), listen(t, b, "a.>", bus.Group("g%3Aa.x"))}
	const n = 20
	for i := range n {
		publish(t, b, "a.x:a.b", fmt.Sprint(i))
	}
	for _, got := range groups {
		for i := range n {
			if m := next(t, got); string(m.Data) != fmt.Sprint(i) {
				t.Fatalf("got %s, want %d", m.Data, i)
			}
		}
	}
}

func await(t *testing.T, seen func() bool) {
	t.Helper()
	for began := time.Now(); !seen(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("it does not happen")
		}
	}
}

// Subscriptions come back before what was published meanwhile is sent, and each
// is told once that there may be a gap.
func TestOutageIsReportedOnceAndSubscriptionsComeBack(t *testing.T) {
	server := natstest.StartProcess(t)
	b := open(t, nats.Config{URL: server.URL()})
	all, quiet := listen(t, b, "n.>"), listen(t, b, "quiet")
	publish(t, b, "n.1", "1")
	next(t, all)

	server.Kill()
	await(t, func() bool { state, _ := b.State(); return state != bus.StateConnected })
	if _, err := b.Request(t.Context(), "anything", nil); !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("a request without a connection: %v", err)
	}
	publish(t, b, "n.2", "2")
	publish(t, b, "n.3", "3")
	server.Start()

	if m := next(t, all); string(m.Data) != "2" || m.Missed != -1 {
		t.Errorf("after the outage came %q with %d missed, want 2 with -1", m.Data, m.Missed)
	}
	if m := next(t, all); string(m.Data) != "3" || m.Missed != 0 {
		t.Errorf("then came %q with %d missed, want 3 with none", m.Data, m.Missed)
	}
	publish(t, b, "quiet", "q")
	if m := next(t, quiet); m.Missed != -1 {
		t.Errorf("a subscription that was silent is told of %d missed, want -1", m.Missed)
	}
}

func TestRequestInFlightFailsWithTheConnection(t *testing.T) {
	server := natstest.StartProcess(t)
	b := open(t, nats.Config{URL: server.URL()})
	asked, over := make(chan struct{}), make(chan struct{})
	_, err := b.Respond(t.Context(), "slow", func(context.Context, *bus.Msg) ([]byte, error) {
		close(asked)
		<-over
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		_, err := b.Request(ctx, "slow", nil)
		failed <- err
	}()
	<-asked
	server.Kill()
	select {
	case err := <-failed:
		if !errors.Is(err, bus.ErrDisconnected) {
			t.Errorf("the request ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the request waits for an answer that cannot come")
	}
	close(over)
	server.Start() // for the answer
	connected(t, b, 1)
}

// A server that takes nothing does not hold up who publishes beyond what they
// are willing to wait.
func TestPublishGivesUpOnAServerThatStandsStill(t *testing.T) {
	server := natstest.StartProcess(t)
	b := open(t, nats.Config{URL: server.URL(), Buffer: 1 << 20})
	server.Pause()
	defer server.Continue()
	payload := strings.Repeat("x", 1<<16)
	for began := time.Now(); time.Since(began) < patience; {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := b.Publish(ctx, "x", []byte(payload))
		cancel()
		if err == nil || !errors.Is(err, bus.ErrOverloaded) && errors.Is(err, context.DeadlineExceeded) { // a busy machine was late itself
			continue
		}
		if !errors.Is(err, bus.ErrOverloaded) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("publish ended with %v", err)
		}
		return
	}
	t.Error("nothing is refused, however much waits")
}

func TestOpenReturnsTheReason(t *testing.T) {
	server := natstest.Start(t, natstest.Options{User: "u", Password: "secret"})
	for name, x := range map[string]struct {
		config  nats.Config
		invalid bool
		says    string
	}{
		"no server":     {nats.Config{URL: "nats://127.0.0.1:1"}, false, "no servers available"},
		"a wrong login": {nats.Config{URL: server.URL(), User: "u", Password: "other"}, false, "Authorization Violation"},
		"no address":    {nats.Config{}, true, "not one of NATS"},
		"not NATS":      {nats.Config{URL: "redis://localhost"}, true, "not one of NATS"},
		"a prefix":      {nats.Config{URL: server.URL(), Prefix: "a b"}, true, `prefix "a b"`},
		"nested events": {nats.Config{URL: server.URL(), EventPrefix: "x.rpc.ev.", RequestPrefix: "x.rpc."}, true, "begins with"},
		"nested":        {nats.Config{URL: server.URL(), EventPrefix: "x.", RequestPrefix: "x.rpc."}, true, "begins with"},
		"one prefix":    {nats.Config{URL: server.URL(), EventPrefix: "x.", RequestPrefix: "x."}, true, "same prefix"},
		"event answers": {nats.Config{URL: server.URL(), Prefix: "x.", InboxPrefix: "x.ev.inbox"}, true, "answers"},
		"rpc answers":   {nats.Config{URL: server.URL(), InboxPrefix: "rpc"}, true, "answers"},
		"raw answers":   {nats.Config{URL: server.URL(), Prefix: "x.", Raw: true, InboxPrefix: "x._INBOX"}, false, "Authorization Violation"},
		"no such creds": {nats.Config{URL: server.URL(), CredsFile: "missing.creds"}, true, "missing.creds"},
		"no creds":      {nats.Config{URL: server.URL(), CredsFile: "bus_test.go"}, true, "no nkey seed found"},
		"no seed":       {nats.Config{URL: server.URL(), NKeyFile: "bus_test.go"}, true, "no nkey seed found"},
		"no such CA":    {nats.Config{URL: server.URL(), TLS: nats.TLS{CA: "missing.pem"}}, true, "missing.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nats.OpenBus(t.Context(), x.config)
			if err == nil || errors.Is(err, bus.ErrInvalid) != x.invalid || !strings.Contains(err.Error(), x.says) {
				t.Errorf("got %v, want %q", err, x.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

func TestATokenAndAnNKeyAreAccepted(t *testing.T) {
	seed := filepath.Join(t.TempDir(), "seed") // from the documentation, as its public key
	if err := os.WriteFile(seed, []byte("SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"), 0o600); err != nil {
		t.Fatal(err)
	}
	nkey := natstest.Options{Config: "authorization: {users: [{nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4}]}"}
	open(t, nats.Config{URL: natstest.Start(t, nkey).URL(), NKeyFile: seed})
	open(t, nats.Config{URL: natstest.Start(t, natstest.Options{Token: "secret"}).URL(), Token: "secret"})
}

func TestForbiddenSubscriptionIsRefused(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Deny: []string{"ev.secret.>"}})
	b := open(t, nats.Config{URL: server.URL()})
	_, err := b.Subscribe(t.Context(), "secret.plans", func(context.Context, *bus.Msg) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "Permissions Violation") {
		t.Errorf("got %v", err)
	}
	listen(t, b, "open")
}

// A pattern that matches subjects below the prefix of the other kind is refused,
// also if the prefix has several tokens.
func TestRawPatternsNeverMatchTheOtherKind(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	handle := func(context.Context, *bus.Msg) error { return nil }
	raw := open(t, nats.Config{URL: server.URL(), Raw: true, RequestPrefix: "shop.rpc."})
	requests := open(t, nats.Config{URL: server.URL(), RawRequests: true, EventPrefix: "shop.ev."})
	for pattern, want := range map[string]error{
		"shop.>": bus.ErrBadSubject, "shop.*.x": bus.ErrBadSubject, "shop.*.>": bus.ErrBadSubject, "shop.rpc.*": bus.ErrBadSubject, "*.rpc.x": bus.ErrBadSubject,
		"shop.*": nil, "shop.orders.>": nil, "shops.>": nil,
	} {
		if _, err := raw.Subscribe(t.Context(), pattern, handle); !errors.Is(err, want) {
			t.Errorf("subscribe to %s: %v, want %v", pattern, err, want)
		}
		pattern = strings.ReplaceAll(pattern, "rpc", "ev")
		if _, err := requests.Respond(t.Context(), pattern, func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil }); !errors.Is(err, want) {
			t.Errorf("respond to %s: %v, want %v", pattern, err, want)
		}
	}
}

// Without their prefix, events and requests below the prefix of answers would be answers,
// and a subscription to them would receive answers.
func TestRawSubjectsAreNeverThoseOfAnswers(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	for name, c := range map[string]nats.Config{
		"raw events":          {Raw: true, InboxPrefix: "answers.shop"},
		"raw requests":        {RawRequests: true, InboxPrefix: "answers.shop"},
		"raw below a prefix":  {Raw: true, Prefix: "fleet.", InboxPrefix: "fleet.answers.shop"},
		"raw outside of them": {Raw: true, Prefix: "fleet.", InboxPrefix: "_INBOX.shop"},
	} {
		t.Run(name, func(t *testing.T) {
			c.URL = server.URL()
			b := open(t, c)
			var want error
			if c.InboxPrefix[0] != '_' {
				want = bus.ErrBadSubject
			}
			for _, pattern := range []string{"answers.shop.x.1", "answers.shop.>", "answers.>", "answers.*.x.1"} {
				_, err := b.Subscribe(t.Context(), pattern, func(context.Context, *bus.Msg) error { return nil })
				if c.RawRequests {
					_, err = b.Respond(t.Context(), pattern, func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
				}
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", pattern, err, want)
				}
			}
			err := b.Publish(t.Context(), "answers.shop.x.1", nil)
			if c.RawRequests {
				_, err = b.Request(t.Context(), "answers.shop.x.1", nil)
			}
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

func TestRawEventsReachOtherClientsAndRefuseForeignSubjects(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	raw := open(t, nats.Config{URL: server.URL(), Raw: true})
	for _, pattern := range []string{">", "*.created", "rpc.x", "rpc.>"} {
		if _, err := raw.Subscribe(t.Context(), pattern, func(context.Context, *bus.Msg) error { return nil }); !errors.Is(err, bus.ErrBadSubject) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	if err := raw.Publish(t.Context(), "rpc.x", nil); !errors.Is(err, bus.ErrBadSubject) {
		t.Errorf("publish: %v", err)
	}
	prefixed := open(t, nats.Config{URL: server.URL()})
	got := listen(t, raw, "ev.>")
	publish(t, prefixed, "orders", "1")
	if m := next(t, got); m.Subject != "ev.orders" {
		t.Errorf("raw events see %q, want ev.orders", m.Subject)
	}
}
