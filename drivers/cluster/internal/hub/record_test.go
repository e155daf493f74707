package hub

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// ledger is a hub with the bounds that it has recorded for the next hub, and a client
// whose connection nobody reads.
type ledger struct {
	t       *testing.T
	hub     *Hub
	client  *Client
	refuses bool // nothing can be recorded
	expires time.Time
	fence   uint64
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{t: t, hub: New(Config{})}
	t.Cleanup(func() { _ = l.hub.Close(context.Background()) })
	here, there := net.Pipe()
	l.client = newClient(l.hub, here, "client")
	t.Cleanup(func() { l.client.line.Close(); _ = there.Close() })
	l.hub.locks.ahead = func(expires time.Time, fence uint64) bool {
		if l.refuses {
			return false
		}
		l.expires, l.fence = expires, fence
		return true
	}
	return l
}

// handle has the hub handle a frame of the client, and reports whether it has sent
// anything.
func (l *ledger) handle(f *protocol.Frame) (sent bool) {
	l.t.Helper()
	d := protocol.NewDecoder(f.Body())
	typ := f.Type()
	before := l.client.line.Backlog()
	if err := l.hub.locks.handle(l.client, typ, &d); err != nil {
		l.t.Fatal(err)
	}
	return l.client.line.Backlog() > before
}

func (l *ledger) ask(number uint64, token string) (sent bool) {
	l.t.Helper()
	r := driver.Request{Key: "k", Token: token, TTL: time.Minute, Slots: 1, Fences: 10, Wait: -1}
	f := protocol.Begin(protocol.LockAsk).Uint(number).Int(0)
	protocol.AddRequest(f, &r)
	return l.handle(f)
}

// The next hub knows the end and the fences of a lease before the client can use it,
// whichever way it comes to the client. L1, L2
func TestLeaseIsRecordedBeforeItsClientKnowsIt(t *testing.T) {
	release := func(token string) *protocol.Frame {
		return protocol.Begin(protocol.LockRelease).Uint(0).String("k").String(token)
	}
	for name, x := range map[string]struct {
		prepare func(l *ledger)
		grant   func(l *ledger) (sent bool)
		life    time.Duration
		silent  bool // the client needs no answer
	}{
		"the answer to a request": {
			func(*ledger) {}, func(l *ledger) bool { return l.ask(1, "a") }, time.Minute, false,
		},
		"a renewal": {
			func(l *ledger) { l.ask(1, "a"); l.expires = time.Time{} },
			func(l *ledger) bool {
				f := protocol.Begin(protocol.LockRenew).Uint(2).Uint(1)
				return l.handle(f.String("k").String("a").Int(int64(time.Hour)).Bool(false).Uint(1))
			}, time.Hour, false,
		},
		"the turn of a waiter": {
			func(l *ledger) { l.ask(1, "a"); l.ask(2, "b") },
			func(l *ledger) bool { return l.handle(release("a")) }, grantWindow, false,
		},
		"the turn of a waiter that gives up": {
			func(l *ledger) {
				l.ask(1, "a")
				l.ask(2, "b")
				l.refuses = true // the turn is not reported
				l.handle(release("a"))
			},
			func(l *ledger) bool {
				return l.handle(protocol.Begin(protocol.LockLeave).Uint(3).String("k").String("b"))
			}, 0, false,
		},
		"a request that is repeated": {
			func(*ledger) {}, func(l *ledger) bool { return l.ask(0, "a") }, time.Minute, false,
		},
		"a lease of an earlier hub": {
			func(l *ledger) { l.hub.locks.succeed(0); l.expires = time.Time{} },
			func(l *ledger) bool {
				r := driver.Request{Key: "k", Token: "a", Slots: 1}
				g := driver.Grant{Key: "k", Token: "a", Fence: 7, Fences: 10, TTL: time.Minute, Deadline: driver.Deadline(driver.Now(), time.Minute)}
				f := protocol.Begin(protocol.LockHeld)
				protocol.AddLease(f, &g, &r, l.hub.locks.clock)
				return l.handle(f)
			}, time.Minute - time.Second, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			x.prepare(l)
			l.refuses = false
			begun := driver.Now()
			if sent := x.grant(l); sent == x.silent {
				t.Errorf("the client has an answer: %v", sent)
			}
			if l.expires.Before(begun.Add(x.life)) && x.life > 0 {
				t.Errorf("the recorded end is %v after the grant, want %v", l.expires.Sub(begun), x.life)
			}
			if highest := l.hub.locks.table.HighestFence(); l.fence < highest || highest == 0 {
				t.Errorf("the recorded fence is %d, the highest one %d", l.fence, highest)
			}
			l = newLedger(t)
			x.prepare(l)
			l.refuses = true
			if x.grant(l) {
				t.Error("the client learns of a lease that is not recorded")
			}
		})
	}
}

// A client learns at once that a claim which it reports is not valid at this hub: it
// would only find out at its next renewal, or wait for nothing. L4
func TestReportOfAClaimThatIsOverIsAnswered(t *testing.T) {
	l := newLedger(t)
	r := driver.Request{Key: "k", Token: "held", Slots: 1}
	g := driver.Grant{Key: "k", Token: "held", Fence: 7, Fences: 1, TTL: time.Minute, Deadline: driver.Deadline(driver.Now(), time.Minute)}
	f := protocol.Begin(protocol.LockHeld)
	protocol.AddLease(f, &g, &r, l.hub.locks.clock)
	if !l.handle(f) { // the table is open
		t.Error("a lease is refused, and the client does not learn of it")
	}
	l.handle(protocol.Begin(protocol.LockRelease).Uint(0).String("k").String("asked")) // bars the token
	if !l.ask(0, "asked") {
		t.Error("a request is refused, and the client does not learn of it")
	}
}

// A client that does not read its answers costs the hub a bounded number of bytes. The
// copies for the next hub do not count: it did not ask for them.
func TestClientThatDoesNotReadItsAnswersIsDisconnected(t *testing.T) {
	l := newLedger(t)
	l.hub.config.Backlog = 1 << 20
	send := func(send func(*Client, *protocol.Frame), bytes int) {
		text := make([]byte, 1<<20)
		for range bytes / len(text) {
			send(l.client, protocol.Begin(protocol.LockAnswer).Uint(1).Rest(text[:len(text)-16]))
		}
	}
	send(l.client.batch.sendCopy, 4<<20)
	send(l.client.batch.send, maxAnswers)
	if err := l.client.line.Err(); err != nil {
		t.Fatalf("within the bounds: %v", err)
	}
	send(l.client.batch.send, 3<<20)
	if err := l.client.line.Err(); !errors.Is(err, errUnread) {
		t.Errorf("beyond the bounds: %v", err)
	}
}
