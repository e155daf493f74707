package nats_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// A user that may not do what the bus needs would otherwise lose messages in a
// program that serves.
func TestMissingPermissionsAreKnownWhenTheBusOpens(t *testing.T) {
	const refused = "permissions violation: the permissions of the user do not include: publish to ev.> (events), subscribe to ev.> (events)"
	const ask = `"$SYS.REQ.USER.INFO"`
	for _, x := range []struct{ name, permissions, warns string }{
		{"all", ``, ""},
		{"prefixes", `publish: ["ev.>", "rpc.>", "_INBOX.>", ` + ask + `], subscribe: ["ev.>", "rpc.>", "_INBOX.>"]`, ""},
		{"least", `publish: ["ev.shop.*", "rpc.shop.buy", "_INBOX.>", ` + ask + `], subscribe: ["ev.*.sold", "rpc.shop.> workers", "_INBOX.>"]`, ""},
		{"some are not published", `publish: {deny: "ev.secret.>"}, subscribe: {deny: ["other.>", "ev.secret.> workers"]}`, ""},
		{"some are denied", `subscribe: {deny: ["ev.secret.>", "other.>", "rpc.*.pay"]}`, "deny it to receive: ev.secret.>;"},
		{"others are denied", `subscribe: {allow: ["ev.shop.>", "rpc.>", "_INBOX.>"], deny: ["ev.secret.>", "_INBOX.other.>"]}`, ""},
		{"no publish", `publish: {deny: ">"}`, "refuses to this NATS user: publish to ev.mega_boot (events), publish to rpc.mega_boot (requests)"},
		{"no publish but to ask", `publish: ` + ask, "do not include: publish to ev.> (events), publish to rpc.> (requests)"},
		{"no events", `publish: {deny: "ev.>"}`, "do not include: publish to ev.> (events)"},
		{"no answers", `publish: ["ev.>", "rpc.>", ` + ask + `], subscribe: ["ev.>", "rpc.>", "_INBOX.>"]`, "do not include: publish to _INBOX.> (answers)"},
		{"answers to each request", `publish: ["ev.>", "rpc.>", ` + ask + `], subscribe: ["ev.>", "rpc.>", "_INBOX.>"], allow_responses: true`, ""},
		{"no subscribe", `subscribe: {deny: ">"}`, "subscribe to _INBOX."},
		{"wrong prefix", `publish: ["shop.>", "_INBOX.>"], subscribe: ["shop.>", "_INBOX.>"]`, "publish to ev.mega_boot"},
		{"no requests", `publish: {deny: ["rpc.>", "_INBOX.>"]}, subscribe: {deny: "rpc.*.>"}`, "do not include: publish to rpc.> (requests)"},
		{"only answers", `publish: ` + ask + `, subscribe: "_INBOX.>"`, refused},
		{"only answers, by denials", `publish: ` + ask + `, subscribe: {allow: "_INBOX.>", deny: ["ev.>", "rpc.>"]}`, refused},
	} {
		t.Run(x.name, func(t *testing.T) {
			server := natstest.Start(t, natstest.Options{Config: `authorization: {users: [{user: u, password: p, permissions: {` + x.permissions + `}}]}`})
			c := nats.Config{URL: server.URL(), User: "u", Password: "p"}
			if x.warns == refused {
				if _, err := nats.OpenBus(t.Context(), c); err == nil || !strings.Contains(err.Error(), refused) {
					t.Errorf("got %v", err)
				}
				return
			}
			b := open(t, c)
			if got := strings.Join(b.Info().Warnings, "; "); (got == "") != (x.warns == "") || !strings.Contains(got, x.warns) {
				t.Errorf("warnings: %q, want %q", got, x.warns)
			}
			if n := b.Stats().Refused; n != 0 {
				t.Errorf("%d messages counted as refused", n)
			}
			if x.name == "all" || x.name == "no publish" { // a refusal of the start is not one of a message
				if err := b.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A server that falls silent while it describes the user delays OpenBus until the
// end of its context.
func TestOpenEndsWithItsContextWhileItAsksForPermissions(t *testing.T) {
	proxy := natstest.StartProxy(t, natstest.Start(t, natstest.Options{}).URL())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	b, err := nats.OpenBus(ctx, nats.Config{URL: proxy.URL(), Options: []natsgo.Option{natsgo.SetCustomDialer(muteAt(proxy, "$SYS.REQ.USER.INFO", 1))}})
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 3*time.Second {
		t.Errorf("got %v after %v", err, took)
	}
	if err == nil {
		_ = b.Close(ctx)
	}
}

// muted connects through a proxy that falls silent with a part of the protocol, once.
type muted struct {
	net.Conn
	proxy *natstest.Proxy
	part  string
	left  *atomic.Int32 // until the part that counts
}

// muteAt returns a dialer whose proxy falls silent with the nth write of part.
func muteAt(proxy *natstest.Proxy, part string, nth int32) muted {
	m := muted{proxy: proxy, part: part, left: &atomic.Int32{}}
	m.left.Store(nth)
	return m
}

func (m muted) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	m.Conn = conn
	return m, err
}

func (m muted) Write(data []byte) (int, error) {
	if bytes.Contains(data, []byte(m.part)) && m.left.Add(-1) == 0 {
		m.proxy.Hold(natstest.ToServer, natstest.ToClient)
	}
	return m.Conn.Write(data)
}

// A server that describes no users answers the question of the start with a report
// of its own, which ends no subscription.
func TestTheQuestionAboutPermissionsLeavesNoSubscription(t *testing.T) {
	for _, config := range []string{``, `no_sys_acc: true`} {
		server := natstest.Start(t, natstest.Options{Config: config})
		b := open(t, nats.Config{URL: server.URL()})
		if err := b.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := server.Subscriptions(); n != 0 {
			t.Errorf("%q: the server has %d subscriptions", config, n)
		}
	}
}
