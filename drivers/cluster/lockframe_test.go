//go:build linux || darwin

package cluster

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// body is what a frame carries, as its receiver sees it.
func body(t testing.TB, f *protocol.Frame) (protocol.Type, []byte) {
	t.Helper()
	r, w := io.Pipe()
	defer r.Close()
	line := protocol.NewLine(pipeConn{w})
	defer line.Close()
	if err := line.Queue(f, 0); err != nil {
		t.Fatal(err)
	}
	line.FlushSoon()
	frame, err := readFrame(r)
	if err != nil {
		t.Fatal(err)
	}
	return protocol.Type(frame[4]), frame[5:]
}

func aRequest() driver.Request {
	return driver.Request{
		Key: "k", Token: "0123456789012345678901", TTL: time.Second, Wait: -1, Slots: 3, Fences: 17, NoRenew: true,
		Holder: driver.Holder{App: "web", Host: "h", PID: 7, Label: "l", Request: "r", Worker: 2, Since: time.Unix(1, 2)},
	}
}

func TestRequestsAndLeasesArriveAsTheyWereSent(t *testing.T) {
	r := aRequest()
	f := protocol.Begin(lockAsk)
	addRequest(f, &r)
	_, b := body(t, f)
	d := protocol.NewDecoder(b)
	if got, err := request(&d, &driver.Holder{}); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v, %v; want %+v", got, err, r)
	}
	c := readClock()
	g := driver.Grant{Key: "k", Token: r.Token, Fence: 9, Fences: 17, Slot: 2, TTL: time.Second, Deadline: driver.Now().Add(time.Second / 2)}
	f = protocol.Begin(lockHave)
	addLease(f, &g, &r, c)
	_, b = body(t, f)
	d = protocol.NewDecoder(b)
	l, err := readLease(&d, c, &driver.Holder{})
	if err != nil || l.Slots != 3 || !reflect.DeepEqual(l.Holder, r.Holder) || l.Expires.Sub(g.Deadline) != driver.Margin(g.TTL) {
		t.Errorf("got %+v, %v", l, err)
	}
	g.Deadline = time.Time{}
	if !reflect.DeepEqual(l.Grant, g) {
		t.Errorf("got %+v, want %+v", l.Grant, g)
	}
}

func TestErrorsArriveAsTheyWereSent(t *testing.T) {
	for _, want := range []error{
		&driver.NotAcquiredError{Key: "k", Position: 3, Full: true, Holders: []driver.Holding{{Holder: driver.Holder{PID: 1}}, {Holder: driver.Holder{App: "a", Worker: 4}, Slot: 2, Fence: 9, Left: time.Second}}},
		&driver.LostError{Key: "k", Cause: driver.Expired},
		&driver.LostError{Key: "k", Cause: driver.Forced, Reason: "deploy", By: driver.Holder{Host: "h", PID: 9}},
	} {
		_, b := body(t, addError(protocol.Begin(lockAnswer), want))
		d := protocol.NewDecoder(b)
		if got := readError(d.Byte(), &d, "k"); !reflect.DeepEqual(got, want) {
			t.Errorf("got %#v, want %#v", got, want)
		}
	}
	_, b := body(t, addError(protocol.Begin(lockAnswer), errors.New("out of order")))
	d := protocol.NewDecoder(b)
	if got := readError(d.Byte(), &d, "k"); !strings.Contains(got.Error(), "out of order") {
		t.Error(got)
	}
}

func TestALongListArrivesInParts(t *testing.T) {
	want := make([]driver.State, 200)
	for i := range want {
		want[i] = driver.State{Key: fmt.Sprint("key-", i), Slots: 2}
		for j := range i {
			want[i].Waiters = append(want[i].Waiters, driver.Holder{App: "web", PID: j})
		}
		want[i].Holders = []driver.Holding{{Holder: driver.Holder{PID: i}, Slot: 1, Fence: 5, Left: time.Minute}}
	}
	frames := addStates(1, want, 4096)
	if len(frames) < 10 {
		t.Errorf("it has %d parts", len(frames))
	}
	var got []driver.State
	for i, f := range frames {
		if f.Len() > 5000 {
			t.Errorf("a part has %d bytes", f.Len())
		}
		_, b := body(t, f)
		d := protocol.NewDecoder(b)
		if _, v := d.Uint(), d.Byte(); (v == verdictDone) != (i == len(frames)-1) {
			t.Errorf("part %d of %d begins with %d", i, len(frames), v)
		}
		if got = readStates(&d, got); d.Err() != nil {
			t.Fatal(d.Err())
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("what has arrived is something else")
	}
}

func TestAnInstantIsToldToOthers(t *testing.T) {
	here, there := readClock(), readClock()
	want := driver.Now().Add(time.Second)
	if got := there.heard(here.told(want)); got.Sub(want).Abs() > time.Millisecond {
		t.Errorf("it has become %v later", got.Sub(want))
	}
}

// Whatever a peer says, it neither breaks the hub nor leaves anything when it
// goes.
func FuzzFramesToTheHub(f *testing.F) {
	r := aRequest()
	ask, have := protocol.Begin(lockAsk).Uint(1).Uint(0), protocol.Begin(lockHave)
	addRequest(ask, &r)
	addLease(have, &driver.Grant{Key: "k", Token: "t", Fence: 1, Fences: 1, TTL: time.Second, Deadline: driver.Now()}, &r, readClock())
	for _, frame := range []*protocol.Frame{
		ask, have, protocol.Begin(lockTold),
		protocol.Begin(lockLeave).Uint(1).String("k").String(r.Token),
		protocol.Begin(lockRelease).Uint(1).String("k").String(r.Token),
		protocol.Begin(lockRenew).Uint(1).Uint(1).String("k").String(r.Token).Int(1e9).Bool(false).Uint(1),
		protocol.Begin(lockForce).Uint(1).String("k").String("why").String("").String("").Int(0).Int(0).String("").String("").Int(0),
		protocol.Begin(lockInspect).Uint(1).String("k"),
		protocol.Begin(lockList).Uint(1).String(""),
	} {
		t, b := body(f, frame)
		f.Add(byte(t), b, byte(lockAsk), []byte{})
	}
	f.Fuzz(func(t *testing.T, first byte, a []byte, second byte, b []byte) {
		h := NewHub(HubConfig{})
		here, there := pipe(t)
		go func() { _, _ = io.Copy(io.Discard, there) }()
		p := newPeer(h, here, "fuzz")
		p.greeted = true
		defer there.Close()
		defer p.line.Close()
		for _, f := range []struct {
			t    byte
			body []byte
		}{{first, a}, {second, b}, {first, a}} {
			kind := typeLocks + protocol.Type(f.t)%(typeBus-typeLocks)
			if p.handle(kind, f.body) != nil {
				break
			}
		}
		h.locks.leave(p, true)
		if keys, _, _ := h.locks.table.Size(); keys != 0 {
			t.Errorf("it has left %d keys", keys)
		}
	})
}

// Whatever a hub says does not break a node.
func FuzzFramesOfTheHub(f *testing.F) {
	g := driver.Grant{Fence: 1, Slot: 1, Deadline: driver.Now()}
	answer, granted := protocol.Begin(lockAnswer).Uint(1).Byte(verdictDone), protocol.Begin(lockGranted).String("t")
	addGrant(answer, &g, readClock())
	addGrant(granted, &g, readClock())
	for _, frame := range append(addStates(4, []driver.State{{Key: "k", Waiters: make([]driver.Holder, 2)}}, 10),
		answer, granted,
		protocol.Begin(lockAnswer).Uint(1).Byte(verdictQueued).Uint(7),
		protocol.Begin(lockAnswer).Uint(3).Byte(verdictDone).Uint(7),
		addError(protocol.Begin(lockRefused).String("t"), &driver.NotAcquiredError{}),
		addError(protocol.Begin(lockLost).String("t"), &driver.LostError{}),
	) {
		t, b := body(f, frame)
		f.Add(byte(t), b, byte(lockAnswer), []byte{})
	}
	f.Fuzz(func(t *testing.T, first byte, a []byte, second byte, b []byte) {
		x := newLock(nil)
		c, err := x.add(&driver.Request{Key: "k", Token: "t", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		renewals := make([]driver.Renewal, 2)
		x.asked[1] = &question{answered: make(chan error, 1), claim: c}
		x.asked[2] = &question{answered: make(chan error, 1), grants: make([]driver.Grant, 2), renewals: renewals}
		x.asked[3] = &question{answered: make(chan error, 1)}
		x.asked[4] = &question{answered: make(chan error, 1)}
		for _, f := range []struct {
			t    byte
			body []byte
		}{{first, a}, {second, b}, {first, a}} {
			d := protocol.NewDecoder(f.body)
			_ = x.handle(typeLocks+protocol.Type(f.t)%(typeBus-typeLocks), &d)
		}
		x.ended(errHubGone)
	})
}

func TestAPeerThatOverstatesHurtsItselfAlone(t *testing.T) {
	h := newHub(t, HubConfig{})
	l := lockerOf(t, h)
	asking := func(change func(*driver.Request)) *protocol.Frame {
		r := aRequest()
		change(&r)
		f := protocol.Begin(lockAsk).Uint(1).Int(0)
		addRequest(f, &r)
		return f
	}
	having := func(change func(*driver.Grant)) *protocol.Frame {
		r := aRequest()
		g := driver.Grant{Key: r.Key, Token: r.Token, Fence: 1, Fences: 1, TTL: time.Second, Deadline: driver.Now()}
		change(&g)
		f := protocol.Begin(lockHave)
		addLease(f, &g, &r, readClock())
		return f
	}
	long := strings.Repeat("x", 5000)
	for name, f := range map[string]*protocol.Frame{
		"no key":                    asking(func(r *driver.Request) { r.Key = "" }),
		"a long key":                asking(func(r *driver.Request) { r.Key = long }),
		"a long token":              asking(func(r *driver.Request) { r.Token = long }),
		"a long name":               protocol.Begin(lockForce).Uint(1).String("k").String("why").String(long).String("").Int(0).Int(0).String("").String("").Int(0),
		"no slot":                   asking(func(r *driver.Request) { r.Slots = 0 }),
		"too many slots":            asking(func(r *driver.Request) { r.Slots = 5000 }),
		"too many fences":           asking(func(r *driver.Request) { r.Fences = 1 << 40 }),
		"a lease without end":       asking(func(r *driver.Request) { r.TTL = 1 << 62 }),
		"a fence of the far future": having(func(g *driver.Grant) { g.Fence = 1 << 60 }),
		"a slot that no pool has":   having(func(g *driver.Grant) { g.Slot = 1 << 30 }),
		"a long reason":             protocol.Begin(lockForce).Uint(1).String("k").String(long).String("").String("").Int(0).Int(0).String("").String("").Int(0),
		"to release a long key":     protocol.Begin(lockRelease).Uint(1).String(long).String("t"),
		"to renew for nothing":      protocol.Begin(lockRenew).Uint(1).Uint(1).String("k").String("t").Int(0).Bool(false).Uint(0),
	} {
		n, p := join(t, h, Config{})
		s, err := n.session()
		must(t, err)
		must(t, s.line.Send(f))
		select {
		case <-p.Done():
			if hasEnded(p.Err()) {
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
	long := strings.Repeat("ä", maxHolder)
	by := driver.Holder{App: long, Host: long, Label: long, Request: long}
	r := driver.Request{Key: "k", Token: "t", TTL: time.Minute, Slots: 1, Holder: by}
	if _, err := n.Lock().Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s, err := n.Lock().Inspect(t.Context(), "k")
	if err != nil || len(s.Holders) != 1 || !strings.HasPrefix(s.Holders[0].App, "äää") || !utf8.ValidString(s.Holders[0].App) {
		t.Errorf("%+v, %v", s, err)
	}
	if n, err := n.Lock().ForceRelease(t.Context(), "k", "because", by); n != 1 || err != nil {
		t.Error(n, err)
	}
	if err := peer.Err(); err != nil {
		t.Error(err)
	}
}
