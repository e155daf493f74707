package nats_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// A limit of the account is a *TooLargeError to the call, and costs nothing
// else: the server announces it after its first PONG.
func TestLimitOfAnAccountKeepsTheConnection(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Config: `
		accounts { A { users: [ { user: a, password: a } ], limits { max_payload: 65536 } } }`})
	b := open(t, nats.Config{URL: server.URL(), User: "a", Password: "a"})
	got := listen(t, b, "n")
	err := b.Publish(t.Context(), "n", make([]byte, 65537))
	var large *bus.TooLargeError
	if !errors.As(err, &large) || large.Limit != 65536 || large.Size != 65537 || b.Info().MaxPayload != 65536 {
		t.Errorf("publish above the limit: %v, and the limit is %d", err, b.Info().MaxPayload)
	}
	if err := b.Publish(t.Context(), "n", make([]byte, 65536)); err != nil {
		t.Fatal(err)
	}
	if m := next(t, got); len(m.Data) != 65536 || b.Stats().Cuts != 0 {
		t.Errorf("got %d bytes after %d cuts", len(m.Data), b.Stats().Cuts)
	}
}

// A limit that is lowered by a reload is not announced. The message above it
// makes the server close the connection, and the client itself for good. That
// is one reconnect, and the message is lost, once.
func TestMessageAboveALoweredLimitCostsOneReconnect(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b, told := observe(t, nats.Config{URL: server.URL()})
	other := open(t, nats.Config{URL: server.URL()})
	got := listen(t, b, "n.>")
	if err := server.Reload(func(o *natstest.Options) { o.MaxPayload = 1000 }); err != nil {
		t.Fatal(err)
	}
	publish(t, b, "n.large", strings.Repeat("x", 2000))
	if err := b.Flush(t.Context()); !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("the flush of a message that is lost: %v", err)
	}
	connected(t, b, 1)
	await(t, func() bool { return len(of[bus.Connected](told)) == 1 })
	if lost := of[bus.PublishLost](told); len(lost) != 1 || lost[0].Messages != 1 || lost[0].Bytes != 2000 {
		t.Errorf("the losses are %v", lost)
	}
	if cuts := of[bus.Disconnected](told); len(cuts) != 1 {
		t.Errorf("the disconnects are %v", cuts)
	}
	if err := b.Publish(t.Context(), "n.large", make([]byte, 2000)); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("the next message as large: %v", err)
	}
	publish(t, other, "n.small", "1")
	if m := next(t, got); m.Subject != "n.small" || m.Missed != -1 {
		t.Errorf("got %s with %d missed", m.Subject, m.Missed)
	}
	publish(t, b, "n.small", "2")
	if err := b.Flush(t.Context()); err != nil {
		_ = b.Flush(t.Context()) // the loss was reported while it was new
	}
	if err := b.Flush(t.Context()); err != nil || b.Stats().Cuts != 1 {
		t.Errorf("after %d cuts: %v", b.Stats().Cuts, err)
	}
}

// A limit that is raised by a reload is not announced either (Info().Lacks).
func TestRaisedLimitAppliesFromTheNextConnection(t *testing.T) {
	server := natstest.Start(t, natstest.Options{MaxPayload: 1000})
	b := open(t, nats.Config{URL: server.URL()})
	if err := server.Reload(func(o *natstest.Options) { o.MaxPayload = 5000 }); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), "n", make([]byte, 2000)); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("publish before the next connection: %v", err)
	}
	server.Stop()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	connected(t, b, 1)
	await(t, func() bool { return b.Info().MaxPayload == 5000 })
	if err := b.Publish(t.Context(), "n", make([]byte, 2000)); err != nil {
		t.Errorf("publish after it: %v", err)
	}
}

// Messages that waited for a server with a smaller limit are lost and reported,
// and the others are sent.
func TestQueuedMessageThatTheNextServerRefusesIsReported(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b, told := observe(t, nats.Config{URL: server.URL()})
	got := listen(t, b, "n.*")
	server.Stop()
	await(t, func() bool { state, _ := b.State(); return state == bus.StateDisconnected })
	publish(t, b, "n.1", "1")
	publish(t, b, "n.large", strings.Repeat("x", 2000))
	publish(t, b, "n.2", "2")
	server.Change(func(o *natstest.Options) { o.MaxPayload = 1000 })
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1", "2"} {
		if m := next(t, got); string(m.Data) != want {
			t.Errorf("got %.10q, want %s", m.Data, want)
		}
	}
	await(t, func() bool { return len(of[bus.PublishLost](told)) == 1 })
	lost := of[bus.PublishLost](told)[0]
	if lost.Messages != 1 || lost.Bytes != 2000 || !errors.Is(lost.Err, bus.ErrTooLarge) || b.Stats().Cuts != 1 {
		t.Errorf("the loss is %+v, after %d cuts", lost, b.Stats().Cuts)
	}
}

// A server whose INFO announces a higher limit than it accepts, on each
// connection. The limit of a connection is one byte less than the largest
// message whose loss ended the connection before.
func TestLimitThatTheServerDoesNotAnnounceIsLearned(t *testing.T) {
	server := natstest.Start(t, natstest.Options{MaxPayload: 1000})
	b := open(t, nats.Config{URL: server.URL(), Options: []natsgo.Option{natsgo.SetCustomDialer(boaster{})}})
	got := listen(t, b, "n")
	for cuts, size := range []int{8000, 1500} {
		publish(t, b, "n", strings.Repeat("x", 900)) // confirmed, so it teaches nothing
		await(t, func() bool { return b.Flush(t.Context()) == nil })
		publish(t, b, "n", strings.Repeat("x", size))
		connected(t, b, uint64(cuts)+1)
		await(t, func() bool { return b.Info().MaxPayload == size-1 })
		var large *bus.TooLargeError
		if err := b.Publish(t.Context(), "n", make([]byte, size)); !errors.As(err, &large) || large.Limit != size-1 {
			t.Errorf("the next message of %d bytes: %v", size, err)
		}
	}
	publish(t, b, "n", strings.Repeat("x", 1000))
	for range 3 {
		if m := next(t, got); len(m.Data) > 1000 {
			t.Errorf("got %d bytes", len(m.Data))
		}
	}
	if cuts := b.Stats().Cuts; cuts != 2 {
		t.Errorf("%d cuts", cuts)
	}
}

// A server that refuses a large message closes the connection while the client
// still writes it. The error of that write must not hide the message from the rule
// above, or the limit would be that of the small messages behind it.
func TestAMessageWhoseWriteFailsIsTheOneThatWasTooLarge(t *testing.T) {
	const size = 200_000 // more than the client's buffer, so that the publish itself writes
	server := natstest.Start(t, natstest.Options{MaxPayload: 100_000})
	b := open(t, nats.Config{URL: server.URL(), Options: []natsgo.Option{natsgo.SetCustomDialer(breaker{})}})
	if err := b.Flush(t.Context()); err != nil { // the client cannot handle an answer during the write, and so not read the next
		t.Fatal(err)
	}
	publish(t, b, "n", strings.Repeat("x", size))
	publish(t, b, "n", "small")
	connected(t, b, 1)
	if got := b.Info().MaxPayload; got != size-1 {
		t.Errorf("the limit is %d, want %d", got, size-1)
	}
}

// breaker connects to a server with a limit of 100 000 bytes that announces 900 000.
type breaker struct{}

func (breaker) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &breaking{Conn: conn, refused: make(chan struct{}), over: make(chan struct{})}, err
}

// breaking fails the write of a large message in its middle, when the server has
// refused the message. The client reads the refusal after a second write has failed.
type breaking struct {
	net.Conn
	refused, over chan struct{}
	broken        atomic.Bool
	closes        atomic.Int32
}

func (b *breaking) Write(part []byte) (int, error) {
	if b.broken.Load() {
		return 0, syscall.EPIPE
	}
	const large = 150_000
	if len(part) < large {
		return b.Conn.Write(part)
	}
	b.broken.Store(true)
	n, _ := b.Conn.Write(part[:1000])
	<-b.refused
	return n, syscall.EPIPE
}

func (b *breaking) Read(part []byte) (int, error) {
	n, err := b.Conn.Read(part)
	if bytes.Contains(part[:n], []byte("-ERR")) {
		close(b.refused)
		<-b.over
	}
	copy(part, bytes.ReplaceAll(part[:n], []byte(`"max_payload":100000,`), []byte(`"max_payload":900000,`)))
	return n, err
}

func (b *breaking) Close() error {
	if b.closes.Add(1) == 2 {
		close(b.over)
	}
	return b.Conn.Close()
}

// boaster connects to a server with a limit of 1000 bytes that announces 9000.
type boaster struct{ net.Conn }

func (boaster) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return boaster{conn}, err
}

func (b boaster) Read(part []byte) (int, error) {
	n, err := b.Conn.Read(part)
	copy(part, bytes.ReplaceAll(part[:n], []byte(`"max_payload":1000,`), []byte(`"max_payload":9000,`)))
	return n, err
}

// The error of a responder is sent in the header, too: an answer that has no room
// for it is a smaller error, and the requester does not wait for its deadline.
func TestErrorsOfAnySizeReachTheRequester(t *testing.T) {
	server := natstest.Start(t, natstest.Options{MaxPayload: 1000})
	b := open(t, nats.Config{URL: server.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := b.Respond(ctx, "a", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		n, _ := strconv.Atoi(string(m.Data))
		return nil, errors.New(strings.Repeat("x", n))
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := 100; n <= 1100; n += 50 {
		_, err := b.Request(ctx, "a", []byte(strconv.Itoa(n)))
		if _, ok := errors.AsType[*bus.RemoteError](err); !ok {
			t.Errorf("an error of %d bytes: %.200v", n, err)
			break
		}
	}
	if st := b.Stats(); st.Lost != 0 || st.Cuts != 0 {
		t.Errorf("%d messages were lost, and %d connections", st.Lost, st.Cuts)
	}
}
