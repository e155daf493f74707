package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// begin opens a bus at a server.
func begin(t *testing.T) *Bus {
	t.Helper()
	b, err := OpenBus(t.Context(), Config{URL: natstest.Start(t, natstest.Options{}).URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

// calls is a front that counts reports.
type calls struct {
	driver.Front
	failed map[uint64]error
	lost   int
}

func (c *calls) Fail(id uint64, err error)     { c.failed[id] = err }
func (c *calls) Lost(messages, _ int, _ error) { c.lost += messages }
func (*calls) Disconnected(error)              {}
func (*calls) Expired(int)                     {}

// Bytes in either direction show that a link moves (S29).
func TestASocketCountsBytesInBothDirections(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	var moved atomic.Int64
	s := &socket{Conn: near, moved: &moved}
	defer func() { _ = s.Close() }()
	go func() { _, _ = far.Write([]byte("12345")) }()
	if n, err := s.Read(make([]byte, 10)); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if n := moved.Load(); n != 5 {
		t.Errorf("%d bytes have moved after a read of 5", n)
	}
	go func() { _, _ = far.Read(make([]byte, 10)) }()
	if n, err := s.Write([]byte("123")); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if n := moved.Load(); n != 8 {
		t.Errorf("%d bytes have moved after a read of 5 and a write of 3", n)
	}
}

// The server has not confirmed the end of a subscription that meets the end of the
// connection (S4).
func TestTheEndOfASubscriptionIsNotConfirmedByAClosedConnection(t *testing.T) {
	b := begin(t)
	l := b.link.Load()
	e := &ending{sub: &nats.Subscription{}, done: make(chan struct{})}
	l.conn.Close()
	if err := l.unsubscribe([]*ending{e}); err == nil || !e.lost.Load() {
		t.Errorf("got %v, lost %v", err, e.lost.Load())
	}
	<-e.done
}

// A refusal that names no subject may be the last message of a connection. It refuses
// nothing on the next one (S27).
func TestARefusalWithoutASubjectIsForgottenWithItsAttempt(t *testing.T) {
	b := begin(t)
	b.refuseNameless(nats.ErrMaxSubscriptionsExceeded)
	if _, err := b.Subscribe(t.Context(), driver.Subscription{Pattern: "a", Sink: &one{}}); err != nil {
		t.Error(err)
	}
}

// A message that the connection has not taken stays in the queue for the next one (S28).
func TestAMessageThatAClosedConnectionRefusesIsNotHandedOver(t *testing.T) {
	b := begin(t)
	l := b.link.Load()
	l.conn.Close()
	w := &writer{bus: b, link: l, header: nats.Header{}}
	if done, exact := w.handAll([]item{{subject: "a", size: 1, data: []byte("1")}}); done != 0 || exact {
		t.Errorf("%d messages were handed over, exactly: %v", done, exact)
	}
}

// A request must not be sent after its connection, its inbox, its call or its deadline
// has ended (S12), and an event not after its deadline (S24).
func TestMessagesThatAreOver(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	if err := b.Attach(&calls{}); err != nil {
		t.Fatal(err)
	}
	w := &writer{bus: b, link: b.newLink()}
	now := time.Now()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused := &topic{}
	refused.refused.Store(true)
	request := func(change func(*special)) item {
		s := &special{m: driver.Message{Deadline: now.Add(time.Second)}, ctx: t.Context(), link: w.link, inbox: &topic{}}
		change(s)
		return item{kind: driver.Request, special: s}
	}
	for name, x := range map[string]struct {
		it   item
		over bool
	}{
		"plain event":                  {item{}, false},
		"event":                        {item{special: &special{m: driver.Message{Deadline: now.Add(1)}}}, false},
		"event without a deadline":     {item{special: &special{}}, false},
		"event at its deadline":        {item{special: &special{m: driver.Message{Deadline: now}}}, true},
		"answer":                       {item{kind: driver.Answer, special: &special{m: driver.Message{Deadline: now}}}, false},
		"request":                      {request(func(*special) {}), false},
		"request at its deadline":      {request(func(s *special) { s.m.Deadline = now }), true},
		"request of an earlier link":   {request(func(s *special) { s.link = &link{} }), true},
		"request of a refused inbox":   {request(func(s *special) { s.inbox = refused }), true},
		"request whose call has ended": {request(func(s *special) { s.ctx = ended }), true},
	} {
		if over := w.isOver(&x.it, now); over != x.over {
			t.Errorf("%s: over is %v", name, over)
		}
	}
}

// A message that a connection cannot carry fails its call, or is a reported loss (S17).
func TestAMessageThatIsDiscardedIsReported(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	c := &calls{failed: map[uint64]error{}}
	if err := b.Attach(c); err != nil {
		t.Fatal(err)
	}
	w := &writer{bus: b, link: b.newLink()}
	cause := errors.New("too large")
	asked, event := item{kind: driver.Request, special: &special{m: driver.Message{ID: 7}}}, item{size: 3}
	w.discard(&asked, cause)
	if !asked.skip || !errors.Is(c.failed[7], cause) || c.lost != 0 || b.ledger.trouble.messages != 0 {
		t.Errorf("a request: skipped %v, failed %v, %d lost", asked.skip, c.failed, c.lost)
	}
	w.discard(&event, cause)
	if !event.skip || len(c.failed) != 1 || c.lost != 1 || b.ledger.trouble != (trouble{messages: 1, bytes: 3, err: cause}) {
		t.Errorf("an event: skipped %v, failed %v, %d lost", event.skip, c.failed, c.lost)
	}
}

// A message has no key of the header before it (S16).
func TestAHeaderHasItsOwnKeysOnly(t *testing.T) {
	w := &writer{header: nats.Header{}}
	for _, want := range []string{"A", "B", "B", "A"} {
		got := w.wire(&item{header: []pair{{want, []string{"1"}}}})
		if len(got) != 1 || got[want] == nil {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

// A Subscribe that has given up meanwhile has no subscription that the server confirms.
func TestAConfirmationForNobodyActivatesNothing(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	m, err := b.join(driver.Subscription{Pattern: "a", Sink: &one{}})
	if err != nil {
		t.Fatal(err)
	}
	_ = m.leave(false)
	if undone, _ := b.conclude(b.newLink(), []*topic{m.topic}, []*nats.Subscription{{}}); len(undone) != 1 || m.topic.active {
		t.Error("a topic without members is active")
	}
}

// The goroutine that delivers messages refuses a request without waiting for room.
func TestARefusalOfARequestDoesNotWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(Config{Buffer: 1}.withDefaults())
		defer b.end()
		b.limit.Store(1 << 20)
		if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b.refuseRequest(driver.Message{Return: "inbox"})
		if took := time.Since(began); took != 0 || b.out.count() != 1 {
			t.Errorf("it has waited %v, and %d messages are accepted", took, b.out.count())
		}
	})
}

// The servers of a cluster name each other. One whose address is configured is tried once
// per attempt: an address that leads nowhere takes the timeout of an attempt.
func TestAServerThatIsConfiguredIsTriedOnce(t *testing.T) {
	t.Parallel()
	routes, err := redistest.FindAddr()
	if err != nil {
		t.Fatal(err)
	}
	url := ""
	for _, listen := range []string{routes, "127.0.0.1:-1"} {
		o := natstest.Options{Config: fmt.Sprintf(`cluster: {name: c, listen: %q, pool_size: -1, routes: ["nats-route://%s"]}`, listen, routes)}
		url += "," + natstest.Start(t, o).URL()
	}
	url = url[1:]
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		b, err := OpenBus(t.Context(), Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		others, known := len(b.link.Load().conn.DiscoveredServers()), b.known
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		switch {
		case len(known) > 0:
			t.Fatalf("beside %s: %v", url, known)
		case others > 0:
			return
		case time.Since(began) > 20*time.Second:
			t.Fatal("no server names the other one")
		}
	}
}

func TestAnAddressWithoutAPortHasTheOneOfNATS(t *testing.T) {
	c := Config{URL: "nats://u:p@a,nats://[::1], nats://b:4223"}
	for addr, want := range map[string]bool{"a:4222": true, "[::1]:4222": true, "b:4223": true, "b:4222": false, "a:4223": false} {
		if c.names(addr) != want {
			t.Errorf("%s: got %v", addr, !want)
		}
	}
}

// The driver replaces the client's dialer, and with it the client's own handling of the option.
func TestTheOptionForMultipathTCPIsUsed(t *testing.T) {
	for _, on := range []bool{true, false} {
		own := net.Dialer{KeepAlive: time.Minute}
		o := nats.Options{Dialer: &own}
		if err := nats.MultipathTCP(on)(&o); err != nil {
			t.Fatal(err)
		}
		if d := networkDialer(&o); d.MultipathTCP() != on || d.KeepAlive != own.KeepAlive {
			t.Errorf("with %v, the dialer has %v", on, d.MultipathTCP())
		}
	}
}
