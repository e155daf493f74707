package nats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

func ignore(context.Context, *bus.Msg) error { return nil }

// subscribeAll subscribes to as many subjects at once, and returns the errors.
func subscribeAll(t *testing.T, b *bus.Bus, prefix string, n int) []error {
	t.Helper()
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { _, errs[i] = b.Subscribe(t.Context(), fmt.Sprint(prefix, i), ignore) })
	}
	running.Wait()
	return errs
}

// The server refuses subscriptions beyond its limit without naming them. Those
// and no others are refused, and there is room again when one is stopped.
func TestSubscriptionsBeyondTheServersLimitAreRefused(t *testing.T) {
	const limit, n = 10, 50
	server := natstest.Start(t, natstest.Options{MaxSubs: limit})
	b := open(t, nats.Config{URL: server.URL()})
	for round := range 3 {
		stood := 0
		for _, err := range subscribeAll(t, b, "n.", n) {
			switch {
			case err == nil:
				stood++
			case !errors.Is(err, bus.ErrRefused) || !strings.Contains(err.Error(), "maximum subscriptions exceeded"):
				t.Fatal(err)
			}
		}
		if stood != limit {
			t.Fatalf("round %d: %d subscriptions stand, want %d", round, stood, limit)
		}
		_, err := b.Respond(t.Context(), "one.more", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
		if !errors.Is(err, bus.ErrRefused) {
			t.Fatalf("a responder beyond the limit: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = open(t, nats.Config{URL: server.URL()})
	}
	sub, err := b.Subscribe(t.Context(), "first", ignore)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range subscribeAll(t, b, "n.", limit-1) {
		if err != nil {
			t.Fatalf("subscription %d: %v", i, err)
		}
	}
	if _, err := b.Subscribe(t.Context(), "more", ignore); !errors.Is(err, bus.ErrRefused) {
		t.Fatalf("beyond the limit: %v", err)
	}
	sub.Stop() // the server is told later
	got := make(chan *bus.Msg, 1)
	await(t, func() bool {
		_, err := b.Subscribe(t.Context(), "more", func(_ context.Context, m *bus.Msg) error { got <- m; return nil })
		return err == nil
	})
	publish(t, b, "more", "1")
	next(t, got)
}

func TestManyDeniedSubscriptionsAreAllRefused(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Deny: []string{"ev.secret.>"}})
	b := open(t, nats.Config{URL: server.URL()})
	for i, err := range subscribeAll(t, b, "secret.", 50) {
		if !errors.Is(err, bus.ErrRefused) || !strings.Contains(err.Error(), "Permissions Violation") {
			t.Errorf("subscription %d: %v", i, err)
		}
	}
	for i, err := range subscribeAll(t, b, "open.", 5) {
		if err != nil {
			t.Errorf("subscription %d: %v", i, err)
		}
	}
	if n := len(b.Stats().Subs); n != 5 {
		t.Errorf("%d subscriptions stand, want 5", n)
	}
}

// The server's error about a pattern with too many tokens omits the group.
func TestPatternWithTooManyTokensIsRefusedInAnyGroup(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Config: `max_subscription_tokens: 4`})
	b := open(t, nats.Config{URL: server.URL()})
	respond := func(pattern string) error {
		_, err := b.Respond(t.Context(), pattern, func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
		return err
	}
	subscribe := func(pattern string, opts ...bus.SubOption) error {
		_, err := b.Subscribe(t.Context(), pattern, ignore, opts...)
		return err
	}
	if err := errors.Join(subscribe("a.b.c"), subscribe("a.b.c", bus.Group("g")), respond("a.b.c")); err != nil {
		t.Fatal(err)
	}
	for i, err := range []error{subscribe("a.b.c.d"), subscribe("a.b.c.d", bus.Group("g")), respond("a.b.c.d")} {
		if !errors.Is(err, bus.ErrRefused) || !strings.Contains(err.Error(), "too many tokens") {
			t.Errorf("%d: %v", i, err)
		}
	}
	if n := len(b.Stats().Subs); n != 3 {
		t.Errorf("%d subscriptions stand, want 3", n)
	}
}

// A server closes the connection because of a pattern that is longer than it allows.
// That pattern is refused, and the others are active again.
func TestPatternThatIsTooLongForTheServerIsRefused(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Config: `max_control_line: 256`})
	b := open(t, nats.Config{URL: server.URL()})
	got := listen(t, b, "n")
	_, err := b.Subscribe(t.Context(), strings.Repeat("x", 150), ignore, bus.Group("g"))
	if !errors.Is(err, bus.ErrRefused) || !strings.Contains(strings.ToLower(err.Error()), "maximum control line") {
		t.Errorf("got %v", err)
	}
	connected(t, b, 1)
	publish(t, b, "n", "1")
	if m := next(t, got); m.Missed != -1 {
		t.Errorf("%d missed, want -1", m.Missed)
	}
}

// permissions change while the connection stands.
func TestPermissionThatIsGrantedOrRevokedLater(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Deny: []string{"ev.x"}})
	b, told := observe(t, nats.Config{URL: server.URL()})
	other := open(t, nats.Config{URL: server.URL()})
	if _, err := b.Subscribe(t.Context(), "x", ignore, bus.Group("g")); !errors.Is(err, bus.ErrRefused) {
		t.Fatalf("denied: %v", err)
	}
	if err := server.Reload(func(o *natstest.Options) { o.Deny = []string{} }); err != nil {
		t.Fatal(err)
	}
	got, group := listen(t, b, "x"), listen(t, b, "x", bus.Group("g"))
	stays := listen(t, b, "y")
	publish(t, other, "x", "1")
	next(t, got)
	next(t, group)

	if err := server.Reload(func(o *natstest.Options) { o.Deny = []string{"ev.x"} }); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return len(of[bus.Ended](told)) == 2 })
	for _, e := range of[bus.Ended](told) {
		if !errors.Is(e.Err, bus.ErrTerminated) || !strings.Contains(e.Err.Error(), "Permissions Violation") {
			t.Errorf("%s ended with %v", e.Pattern, e.Err)
		}
	}
	publish(t, other, "y", "2")
	if m := next(t, stays); m.Missed != 0 || b.Stats().Cuts != 0 {
		t.Errorf("the other subscription: %d missed, %d cuts", m.Missed, b.Stats().Cuts)
	}
}

// The permission that stays is for one group of the subject alone.
func TestRevocationWithoutAGroupLeavesAGroup(t *testing.T) {
	allow := func(subjects string) string {
		return fmt.Sprintf(`no_auth_user: u, authorization: {users: [{user: u, password: x, permissions: {subscribe: [%s, "_INBOX.>"]}}]}`, subjects)
	}
	server := natstest.Start(t, natstest.Options{Config: allow(`"ev.x", "ev.x g:x"`)})
	b, told := observe(t, nats.Config{URL: server.URL()})
	other := open(t, nats.Config{URL: server.URL()})
	listen(t, b, "x")
	group := listen(t, b, "x", bus.Group("g"))
	if err := server.Reload(func(o *natstest.Options) { o.Config = allow(`"ev.x g:x"`) }); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return len(of[bus.Ended](told)) > 0 })
	publish(t, other, "x", "1")
	next(t, group)
	if ended := of[bus.Ended](told); len(ended) != 1 || ended[0].Group != "" {
		t.Errorf("ended: %v", ended)
	}
}

func TestDeniedPublishIsReported(t *testing.T) {
	server := natstest.Start(t, natstest.Options{DenyPublish: []string{"ev.x.>"}})
	b, told := observe(t, nats.Config{URL: server.URL()})
	publish(t, b, "x.1", "1")
	publish(t, b, "x.2", "2")
	publish(t, b, "y", "3")
	if err := b.Flush(t.Context()); !errors.Is(err, bus.ErrRefused) || !strings.Contains(err.Error(), "Permissions Violation") {
		t.Errorf("flush: %v", err)
	}
	await(t, func() bool { return len(of[bus.PublishRefused](told)) == 2 })
	for i, e := range of[bus.PublishRefused](told) {
		if want := fmt.Sprint("x.", i+1); e.Subject != want || !errors.Is(e.Err, bus.ErrRefused) {
			t.Errorf("refused %q: %v", e.Subject, e.Err)
		}
	}
	if s := b.Stats(); s.Refused != 2 || s.Lost != 0 || s.Cuts != 0 {
		t.Errorf("%d refused, %d lost, %d cuts", s.Refused, s.Lost, s.Cuts)
	}
	_ = b.Flush(t.Context()) // may report them again
	publish(t, b, "y", "4")
	if err := b.Flush(t.Context()); err != nil {
		t.Errorf("flush, with everything reported: %v", err)
	}
}

// A subject may look like the reserved reply subjects that the driver provokes refusals
// with.
func TestRefusedSubjectLikeAReservedOneIsReported(t *testing.T) {
	secret := []string{"ev.secret.>"}
	server := natstest.Start(t, natstest.Options{Deny: secret, DenyPublish: secret})
	b := open(t, nats.Config{URL: server.URL()})
	for _, subject := range []string{"secret._R_.mega", "secret._R_.mark"} {
		publish(t, b, subject, "1")
		if err := b.Flush(t.Context()); !errors.Is(err, bus.ErrRefused) {
			t.Errorf("publish to %s: %v", subject, err)
		}
		if _, err := b.Subscribe(t.Context(), subject, ignore); !errors.Is(err, bus.ErrRefused) {
			t.Errorf("subscribe to %s: %v", subject, err)
		}
	}
}

// A request that is denied fails at once, and so does one whose answer is.
func TestDeniedRequestFailsAtOnce(t *testing.T) {
	for name, o := range map[string]natstest.Options{
		"the request": {DenyPublish: []string{"rpc.>"}},
		"the inbox":   {Deny: []string{"_INBOX.>"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := natstest.Start(t, o)
			b, told := observe(t, nats.Config{URL: server.URL()})
			began := time.Now()
			var running sync.WaitGroup
			for range 20 {
				running.Go(func() {
					if _, err := b.Request(t.Context(), "x", []byte("?")); !errors.Is(err, bus.ErrRefused) {
						t.Errorf("request: %v", err)
					}
				})
			}
			running.Wait()
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("it took %v", took)
			}
			if refused := of[bus.PublishRefused](told); len(refused) != 0 {
				t.Errorf("requests are reported as events: %v", refused)
			}
			_ = b.Flush(t.Context()) // the server's words on all of the requests have come
			// What is granted later works without a restart.
			if err := server.Reload(func(o *natstest.Options) { o.Deny, o.DenyPublish = []string{}, []string{} }); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Request(t.Context(), "x", []byte("?")); !errors.Is(err, bus.ErrNoResponders) {
				t.Errorf("a request that is allowed: %v", err)
			}
		})
	}
}

// A permission is revoked or granted between two requests that the server has not
// confirmed: the denied one fails, and the other one gets its answer.
func TestTheDeniedOfTwoRequestsFails(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{DenyPublish: []string{}})
	proxy := natstest.StartProxy(t, server.URL())
	b, other := open(t, nats.Config{URL: proxy.URL()}), open(t, nats.Config{URL: server.URL()})
	answer := make(chan struct{})
	if _, err := other.Respond(t.Context(), "x", func(context.Context, *bus.Msg) ([]byte, error) {
		<-answer
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	request := func() <-chan error { // returns when the server has the request
		before, done := server.Received(), make(chan error, 1)
		go func() {
			_, err := b.Request(t.Context(), "x", nil)
			done <- err
		}()
		await(t, func() bool { return server.Received() > before })
		return done
	}
	deny := func(subjects ...string) {
		t.Helper()
		if err := server.Reload(func(o *natstest.Options) { o.DenyPublish = append([]string{}, subjects...) }); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, bus.ErrRefused) {
			t.Errorf("the denied request: %v", err)
		}
	}
	answered := func(request <-chan error) {
		t.Helper()
		answer <- struct{}{}
		if err := <-request; err != nil {
			t.Errorf("the allowed request: %v", err)
		}
	}
	answered(request()) // subscribes to the inbox
	for range 5 {
		_ = b.Flush(t.Context()) // the server has confirmed what was allowed before
		proxy.Hold(natstest.ToClient)
		good := request()
		deny("rpc.x")
		bad := request()
		proxy.Heal()
		refused(<-bad)
		answered(good)

		refused(<-request())
		_ = b.Flush(t.Context()) // and what was denied
		proxy.Hold(natstest.ToClient)
		bad = request()
		deny()
		good = request()
		proxy.Heal()
		refused(<-bad)
		answered(good)
	}
}

// Requests in flight fail when answers are no longer allowed, and those that were
// not sent stay unsent.
func TestRequestsInFlightFailWithTheirInbox(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{Deny: []string{}})
	proxy := natstest.StartProxy(t, server.URL())
	b, other := open(t, nats.Config{URL: proxy.URL()}), open(t, nats.Config{URL: server.URL()})
	asked := make(chan string, 10)
	if _, err := other.Respond(t.Context(), "x", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		asked <- string(m.Data)
		if string(m.Data) != "last" {
			<-ctx.Done()
		}
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request := func(data string) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := b.Request(ctx, "x", []byte(data))
			done <- err
		}()
		return done
	}
	sent := request("sent")
	<-asked
	if err := b.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	proxy.Hold(natstest.ToServer)
	for range 16 { // fills the window of unconfirmed data
		if err := b.Publish(ctx, "filler", make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
	}
	unsent := request("unsent")
	await(t, func() bool { return b.Stats().InFlight == 2 })
	if err := server.Reload(func(o *natstest.Options) { o.Deny = []string{"_INBOX.>"} }); err != nil {
		t.Fatal(err)
	}
	for _, request := range []<-chan error{sent, unsent} {
		if err := <-request; !errors.Is(err, bus.ErrRefused) || !strings.Contains(err.Error(), "Permissions Violation") {
			t.Errorf("got %v", err)
		}
	}
	proxy.Heal()
	if err := server.Reload(func(o *natstest.Options) { o.Deny = []string{} }); err != nil {
		t.Fatal(err)
	}
	if err := <-request("last"); err != nil {
		t.Fatalf("with the permission again: %v", err)
	}
	if data := <-asked; data != "last" {
		t.Errorf("the responder has received the request %q, which has failed", data)
	}
}

// The client has one error for every message whose header it cannot decode, so that a
// refusal between two of them is easy to miss.
func TestARefusalAmongUndecodableMessagesIsReported(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Deny: []string{"ev.secret.>"}})
	room := make(chan struct{}, 100) // for messages that the client has not reported
	b := open(t, nats.Config{URL: server.URL(), Options: []natsgo.Option{natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
		if errors.Is(err, natsgo.ErrBadHeaderMsg) {
			<-room
		}
	})}})
	if _, err := b.Subscribe(t.Context(), "bad", ignore); err != nil {
		t.Fatal(err)
	}
	other, err := net.Dial("tcp", strings.TrimPrefix(server.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	var flood sync.WaitGroup
	defer flood.Wait()
	ended := make(chan struct{})
	defer close(ended)
	defer func() { _ = other.Close() }()
	if _, err := io.WriteString(other, "CONNECT {\"verbose\":false,\"headers\":true}\r\n"); err != nil {
		t.Fatal(err)
	}
	flood.Go(func() {
		const header = "NATS/1.0\r\nno colon\r\n\r\n"
		for message := fmt.Appendf(nil, "HPUB ev.bad %d %[1]d\r\n%s\r\n", len(header), header); err == nil; {
			select {
			case room <- struct{}{}:
				_, err = other.Write(message)
			case <-ended:
				return
			}
		}
	})
	for i := range 500 {
		if _, err := b.Subscribe(t.Context(), fmt.Sprint("secret.", i), ignore); !errors.Is(err, bus.ErrRefused) {
			t.Fatalf("subscription %d: %v", i, err)
		}
	}
}
