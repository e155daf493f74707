package wire

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// A server may push messages on a connection of RESP3, which no call awaits.
func TestStreamGetsNoPushes(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	w := streaming(t, server.URL()+"?protocol=3")
	if _, err := w.Do(t.Context(), []string{"client", "tracking", "on", "bcast"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	other, _ := dial(t, server.URL())
	defer other.Close()
	for range 10 {
		if err := other.Set(t.Context(), "key", "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := echo(t.Context(), w, "x"); err != nil || got != "x" {
			t.Fatalf("got %v, %v", got, err)
		}
	}
}

// A call that ended with its context must not cost the next one its connection,
// however much later that comes.
func TestAnswerThatNobodyAwaitsIsRead(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	w := streaming(t, server.URL())
	other, _ := dial(t, server.URL())
	defer other.Close()
	w.stream.attempt = time.Hour // no call is in flight
	ctx, leave := context.WithCancel(t.Context())
	blocked := make(chan error, 1)
	go func() { blocked <- pop(ctx, w) }()
	waiting := func() int {
		w.stream.mu.Lock()
		defer w.stream.mu.Unlock()
		if w.stream.session == nil {
			t.Fatal("the connection has ended")
		}
		return len(w.stream.session.calls)
	}
	for waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	leave()
	if err := <-blocked; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := other.LPush(t.Context(), "list", "x").Err(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); waiting() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody reads the answer")
		}
	}
	if got, err := echo(t.Context(), w, "x"); err != nil || got != "x" {
		t.Errorf("got %v, %v", got, err)
	}
}

// nosy writes to another connection of the client before it reads, as a
// subscription to a Sentinel may at any time.
type nosy struct {
	net.Conn
	other func()
}

func (n *nosy) Read(b []byte) (int, error) {
	n.other()
	return n.Conn.Read(b)
}

func TestStreamUsesTheConnectionThatItOpened(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	o, err := goredis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.Protocol = 2
	dialRedis := goredis.NewDialer(o)
	s := newStream(o.Addr, attempt)
	other, err := s.dialer(dialRedis)(t.Context(), "tcp", o.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	o.Dialer = s.dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialRedis(ctx, network, addr)
		return &nosy{Conn: conn, other: func() { _, _ = other.Write([]byte("PING\r\n")) }}, err
	})
	s.Client = goredis.NewClient(o)
	w := New(s.Client, s)
	defer func() {
		w.Close()
		w.Wait()
	}()
	for session := (*session)(nil); session == nil; {
		if _, err := echo(t.Context(), w, "x"); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		session = s.session
		if session != nil && session.conn == other.(*link).Conn {
			t.Error("the stream uses another connection than its own")
		}
		s.mu.Unlock()
	}
}
