//go:build linux || darwin

package cluster

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

func TestAClientThatOverstatesHurtsItselfAlone(t *testing.T) {
	h := newHub(t, HubConfig{})
	l := lockerOf(t, h)
	asking := func(change func(*driver.Request)) *protocol.Frame {
		r := driver.Request{Key: "k", Token: "0123456789012345678901", TTL: time.Second, Wait: -1, Slots: 3, Fences: 17}
		change(&r)
		f := protocol.Begin(protocol.LockAsk).Uint(1).Int(0)
		protocol.AddRequest(f, &r)
		return f
	}
	having := func(change func(*driver.Grant)) *protocol.Frame {
		r := driver.Request{Key: "k", Token: "0123456789012345678901", TTL: time.Second, Wait: -1, Slots: 3, Fences: 17}
		g := driver.Grant{Key: r.Key, Token: r.Token, Fence: 1, Fences: 1, TTL: time.Second, Deadline: driver.Now()}
		change(&g)
		f := protocol.Begin(protocol.LockHeld)
		protocol.AddLease(f, &g, &r, protocol.ReadClock())
		return f
	}
	forcing := func(f driver.Force) *protocol.Frame {
		return protocol.AddForce(protocol.Begin(protocol.LockForce).Uint(1).String("k"), &f)
	}
	long := strings.Repeat("x", 5000)
	for name, f := range map[string]*protocol.Frame{
		"no key":                    asking(func(r *driver.Request) { r.Key = "" }),
		"a long key":                asking(func(r *driver.Request) { r.Key = long }),
		"a long token":              asking(func(r *driver.Request) { r.Token = long }),
		"a long name":               protocol.Begin(protocol.LockForce).Uint(1).String("k").Bool(false).Uint(0).Bool(false).Uint(0).String("why").String(long).String("").Int(0).Int(0).String("").String("").Int(0),
		"no slot":                   asking(func(r *driver.Request) { r.Slots = 0 }),
		"too many slots":            asking(func(r *driver.Request) { r.Slots = 5000 }),
		"too many fences":           asking(func(r *driver.Request) { r.Fences = 1 << 40 }),
		"a lease without end":       asking(func(r *driver.Request) { r.TTL = 1 << 62 }),
		"a fence of the far future": having(func(g *driver.Grant) { g.Fence = 1 << 60 }),
		"a slot that no pool has":   having(func(g *driver.Grant) { g.Slot = 1 << 30 }),
		"to force such a slot":      forcing(driver.Force{BySlot: true, Slot: 1 << 30}),
		"a long reason":             forcing(driver.Force{Reason: long}),
		"to release a long key":     protocol.Begin(protocol.LockRelease).Uint(1).String(long).String("t"),
		"to renew for nothing":      protocol.Begin(protocol.LockRenew).Uint(1).Uint(1).String("k").String("t").Int(0).Bool(false).Uint(0),
	} {
		n, p := join(t, h, Config{})
		s, err := n.session()
		must(t, err)
		must(t, s.line.Send(f))
		select {
		case <-p.Done():
			if protocol.HasEnded(p.Err()) {
				t.Errorf("%s: the peer went with %v", name, p.Err())
			}
		case <-time.After(bound):
			t.Errorf("%s was taken", name)
		}
	}
	lease, err := l.Acquire(t.Context(), "k")
	must(t, err)
	must(t, lease.Release())
	if states, err := l.List(t.Context(), ""); err != nil || len(states) != 0 {
		t.Errorf("left: %+v, %v", states, err)
	}
}

// What a process says of itself may be of any length; its hub would cut it off.
func TestALongNameDoesNotCostTheConnection(t *testing.T) {
	n, peer := join(t, newHub(t, HubConfig{}), Config{})
	long := strings.Repeat("ä", 8<<10)
	by := driver.Holder{App: long, Host: long, Label: long, Request: long}
	r := driver.Request{Key: "k", Token: "t", TTL: time.Minute, Slots: 1, Holder: by}
	if _, err := n.Lock().Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s, err := n.Lock().Inspect(t.Context(), "k")
	if err != nil || len(s.Holders) != 1 || !strings.HasPrefix(s.Holders[0].App, "äää") || !utf8.ValidString(s.Holders[0].App) {
		t.Errorf("%+v, %v", s, err)
	}
	if n, err := n.Lock().ForceRelease(t.Context(), "k", driver.Force{Reason: "because", By: by}); n != 1 || err != nil {
		t.Error(n, err)
	}
	if err := peer.Err(); err != nil {
		t.Error(err)
	}
}
