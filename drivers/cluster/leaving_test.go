package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// handHub is a hub of which a test says every word. It answers nothing but hello.
type handHub struct {
	line    *protocol.Line
	returns atomic.Int64 // messages that were given back
	syncs   chan uint64  // their numbers
	joins   chan uint64  // the numbers of registrations
	changes chan string  // what becomes of these and of requests; as many as fit
}

// handServed returns a node whose hub is the test's.
func handServed(t *testing.T, c Config) (*Node, *handHub) {
	t.Helper()
	here, there, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	h := &handHub{line: protocol.NewLine(here), syncs: make(chan uint64, 100), joins: make(chan uint64, 100), changes: make(chan string, 100)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_ = h.line.Read(h.take, func() {}) // until the node is gone
	}()
	defer there.Close()
	if c.Conn, err = net.FileConn(there); err != nil {
		t.Fatal(err)
	}
	n, err := Dial(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
		h.line.Close()
		<-read
	})
	h.synced(t, <-h.syncs) // the node's own, of its being connected
	return n, h
}

func (h *handHub) take(t protocol.Type, body []byte) error {
	d := protocol.NewDecoder(body)
	switch t {
	case protocol.TypeHello:
		return h.line.Send(protocol.Begin(protocol.TypeWelcome).Uint(protocol.Known.Newest).Uint(1).Bool(false))
	case protocol.TypeSync:
		h.syncs <- d.Uint()
	case protocol.TypeJoin:
		h.joins <- d.Uint()
	case protocol.TypeMembers:
		h.changed(fmt.Sprintf("%d has %d", d.Uint(), d.Uint()))
	case protocol.TypeLeave:
		h.changed(fmt.Sprint(d.Uint(), " leaves"))
	case protocol.TypeBye:
		return io.EOF
	case protocol.TypeReturn:
		h.returns.Add(1)
		protocol.ReadRequestID(&d)
		h.changed(fmt.Sprint("returned ", d.Bool()))
	case protocol.TypeNoMember:
		h.changed("no member")
	case protocol.TypeAnswer:
		protocol.ReadRequestID(&d)
		h.changed(fmt.Sprint("answered ", d.Bool()))
	}
	return d.Err()
}

func (h *handHub) changed(what string) {
	select {
	case h.changes <- what:
	default:
	}
}

func (h *handHub) say(t *testing.T, f *protocol.Frame) {
	t.Helper()
	if err := h.line.Send(f); err != nil {
		t.Fatal(err)
	}
}

func (h *handHub) synced(t *testing.T, number uint64) {
	t.Helper()
	h.say(t, protocol.Begin(protocol.TypeSynced).Uint(number))
}

// sink counts what it gets.
type sink struct{ got atomic.Int64 }

func (s *sink) Deliver(driver.Message) bool { s.got.Add(1); return true }
func (s *sink) Gap(int)                     {}
func (s *sink) Load() int                   { return int(s.got.Load()) }
func (s *sink) Fail(error)                  {}

// Until the hub knows that a group has no member here any more, what it sends is
// somebody's: the last one's, if others have gone before.
func TestTheLastOfAGroupGetsWhatIsOnItsWay(t *testing.T) {
	n, h := handServed(t, Config{})
	var subs [2]driver.Registration
	var sinks [2]sink
	for i := range subs {
		done := make(chan error, 1)
		go func() {
			var err error
			subs[i], err = n.Bus().Subscribe(t.Context(), driver.Subscription{Kind: driver.Event, Pattern: "x", Group: "g", Sink: &sinks[i]})
			done <- err
		}()
		h.synced(t, <-h.syncs)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	number := <-h.joins
	for _, s := range subs {
		go func() { _ = s.End(t.Context()) }() // which ends with the test at the latest
	}
	first, second := <-h.syncs, <-h.syncs
	h.synced(t, min(first, second)) // the hub has heard of the first to leave
	f := protocol.Begin(protocol.TypeDeliver).Bool(false).Uint(1).Uint(number)
	h.say(t, protocol.AddMessage(f, &driver.Message{Subject: "x"}))
	h.synced(t, max(first, second))
	for end := time.Now().Add(bound); sinks[0].got.Load()+sinks[1].got.Load() == 0 && h.returns.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the message is nowhere: nobody has it, and it was not given back")
		}
	}
}

// A worker whose supervisor is gone has to hear of it even where the answer to a
// call hangs.
func TestAHandlerThatHangsDoesNotHideTheEndOfTheHub(t *testing.T) {
	asked, hang := make(chan struct{}), make(chan struct{})
	n, h := handServed(t, Config{Handle: func(context.Context, *Client, string, []byte) ([]byte, error) {
		close(asked)
		<-hang
		return nil, nil
	}})
	defer close(hang)
	h.say(t, protocol.Begin(protocol.TypeCall).Uint(1).String("check"))
	<-asked
	h.line.Close()
	select {
	case <-n.Done():
	case <-time.After(bound):
		t.Fatal("the node does not know that its hub is gone")
	}
	if _, err := n.Lock().Inspect(t.Context(), "k"); err == nil {
		t.Error("there is an answer without a hub")
	}
}

// What has expired before its turn is never answered. Its process must not look
// busy for ever, and the hub must not remember it.
func TestAnExpiredRequestIsNotOwed(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, peer := join(t, h, Config{})
	b, err := bus.New(n.Bus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	begun, hang := make(chan struct{}, 100), make(chan struct{})
	s := respond(t, b, "x", func(context.Context, *bus.Msg) ([]byte, error) {
		begun <- struct{}{}
		<-hang
		return nil, nil
	}, bus.Concurrency(1))
	asker := busAt(t, h)
	go func() { _, _ = asker.Request(t.Context(), "x", nil) }() // which is answered late
	<-begun
	const expired = 10
	for s.Stats().Received < 1+expired { // one that expires on its way is not sent
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := asker.Request(ctx, "x", nil); !errors.Is(err, bus.ErrTimeout) {
			t.Error(err)
		}
		cancel()
	}
	close(hang)
	soon(t, "the queue is empty", func() bool { return s.Stats().Expired >= expired })
	for end := time.Now().Add(bound); hub.Unanswered(peer) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests are owed for ever", hub.Unanswered(peer))
		}
	}
}

// A responder that has answered a part owes the rest: its death ends the wait.
func TestADeathBetweenAnswersEndsARequestOfMany(t *testing.T) {
	h := newHub(t, HubConfig{})
	asker := busAt(t, h)
	dying, peer := join(t, h, Config{})
	b, err := bus.New(dying.Bus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	respond(t, b, "ask", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		if err := m.Reply(ctx, []byte("a part")); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var got []string
	for m, err := range asker.RequestMany(ctx, "ask", nil) {
		if err != nil {
			got = append(got, fmt.Sprint(errors.Is(err, bus.ErrDisconnected)))
			continue
		}
		got = append(got, string(m.Data))
		hub.Line(peer).End(errors.New("as asked"))
	}
	if !slices.Equal(got, []string{"a part", "true"}) || ctx.Err() != nil {
		t.Errorf("%q, %v", got, ctx.Err())
	}
}
