package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// newHub returns a hub that is closed when the test ends.
func newHub(t testing.TB, c HubConfig) *Hub {
	t.Helper()
	c.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := NewHub(c)
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// pipeTo returns a connection to h, and the peer that h has of it.
func pipeTo(t testing.TB, h *Hub, name string) (net.Conn, *Client) {
	t.Helper()
	here, there, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	conn, err := net.FileConn(there)
	if err != nil {
		t.Fatal(err)
	}
	return conn, h.Join(here, name)
}

// join returns a node of h that is closed when the test ends.
func join(t testing.TB, h *Hub, c Config) (*Node, *Client) {
	t.Helper()
	conn, peer := pipeTo(t, h, t.Name())
	c.Conn = conn
	n, err := Dial(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n, peer
}

func echo(_ context.Context, _ *Client, name string, body []byte) ([]byte, error) {
	if name == "fail" {
		return nil, errors.New("as asked")
	}
	return append([]byte(name+" "), body...), nil
}

// A program calls its processes as soon as it has started them.
func TestACallWaitsUntilItsClientHasConnected(t *testing.T) {
	h := newHub(t, HubConfig{})
	conn, peer := pipeTo(t, h, t.Name())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := peer.Call(over, "early", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the call of a client that has not connected: %v", err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if answer, err := peer.Call(context.WithoutCancel(t.Context()), "now", nil); string(answer) != "now " || err != nil {
			t.Errorf("answer %q, %v", answer, err)
		}
	}()
	time.Sleep(10 * time.Millisecond) // the call comes first
	n, err := Dial(t.Context(), Config{Conn: conn, Handle: echo})
	if err != nil {
		t.Fatal(err)
	}
	<-answered
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCallsGoBothWays(t *testing.T) {
	h := newHub(t, HubConfig{Handle: echo})
	n, p := join(t, h, Config{Handle: echo})
	for side, call := range map[string]func(context.Context, string, []byte) ([]byte, error){"node": n.Call, "peer": p.Call} {
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if got, err := call(t.Context(), "say", []byte("hello")); string(got) != "say hello" || err != nil {
					t.Errorf("%s: %q, %v", side, got, err)
				}
			})
		}
		all.Wait()
		_, err := call(t.Context(), "fail", nil)
		if e, ok := errors.AsType[*CallError](err); !ok || e.Error() != `call "fail": as asked` {
			t.Errorf("%s: %v", side, err)
		}
	}
	if p.PID() != os.Getpid() {
		t.Errorf("the peer's pid is %d, want %d", p.PID(), os.Getpid())
	}
}

// A body that is longer than a frame arrives in both directions, beside other calls.
func TestCallsHaveBodiesOfAnyLength(t *testing.T) {
	answer := func(_ context.Context, _ *Client, _ string, body []byte) ([]byte, error) { return body, nil }
	h := newHub(t, HubConfig{Handle: answer})
	n, p := join(t, h, Config{Handle: answer})
	body := make([]byte, 5<<20)
	for i := range body {
		body[i] = byte(i >> 8)
	}
	var all sync.WaitGroup
	for side, call := range map[string]func(context.Context, string, []byte) ([]byte, error){"node": n.Call, "peer": p.Call} {
		for _, size := range []int{0, 1, 64 << 10, 1 << 20, protocol.MaxFrame - 20, protocol.MaxFrame, protocol.MaxFrame + 1, 5 << 20} {
			all.Go(func() {
				if got, err := call(t.Context(), "echo", body[:size]); err != nil || !bytes.Equal(got, body[:size]) {
					t.Errorf("%s: %d bytes of %d, %v", side, len(got), size, err)
				}
			})
		}
	}
	all.Wait()
	huge := make([]byte, 64<<20+1)
	if _, err := n.Call(t.Context(), "echo", huge); err == nil || !strings.Contains(err.Error(), "at most 67108864") {
		t.Errorf("a body of %d bytes: %v", len(huge), err)
	}
}

func TestACallFailsWhenTheOtherSideGoes(t *testing.T) {
	asked := make(chan struct{})
	h := newHub(t, HubConfig{Handle: func(ctx context.Context, _ *Client, _ string, _ []byte) ([]byte, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	n, p := join(t, h, Config{})
	go func() {
		<-asked
		h.Close(context.Background())
	}()
	if _, err := n.Call(t.Context(), "wait", nil); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("a call when the hub goes: %v", err)
	}
	<-n.Done()
	<-p.Done()
	if _, err := n.Call(t.Context(), "again", nil); err == nil {
		t.Error("a call without a hub succeeds")
	}
}

func TestACallFailsWhenTheHandlerCallsGoexit(t *testing.T) {
	h := newHub(t, HubConfig{Handle: func(context.Context, *Client, string, []byte) ([]byte, error) {
		runtime.Goexit()
		return nil, nil
	}})
	n, _ := join(t, h, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := n.Call(ctx, "leave", nil)
	if _, ok := errors.AsType[*CallError](err); !ok {
		t.Errorf("%v, want a CallError", err)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	h := newHub(t, HubConfig{Handle: func(ctx context.Context, _ *Client, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	n, _ := join(t, h, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := n.Call(ctx, "wait", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// hello is a first frame.
func hello(word string, v uint64) []byte {
	body := append([]byte(word), byte(v), 1)
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(body)+1))
	return append(append(frame, byte(protocol.TypeHello)), body...)
}

func TestAClientThatSpeaksNonsenseHurtsItselfAlone(t *testing.T) {
	h := newHub(t, HubConfig{Handle: echo})
	n, _ := join(t, h, Config{})
	for name, say := range map[string][]byte{
		"text":               []byte("GET / HTTP/1.1\r\n\r\n"),
		"zeros":              make([]byte, 64),
		"another word":       hello("giga", protocol.Known.Newest),
		"another version":    hello(protocol.Magic, 99),
		"a call before all":  {3, 0, 0, 0, byte(protocol.TypeCall), 1, 0},
		"a body cut off":     append(hello(protocol.Magic, protocol.Known.Newest), 2, 0, 0, 0, byte(protocol.TypeCall), 0x80),
		"a hello cut off":    {3, 0, 0, 0, byte(protocol.TypeHello), 'm', 'e'},
		"a frame of 4 GB":    {255, 255, 255, 255, 1},
		"an end in a length": {3, 0},
	} {
		conn, p := pipeTo(t, h, name)
		if _, err := conn.Write(say); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "an end in a length" {
			conn.Close()
		}
		<-p.Done()
		t.Logf("%s: %v", name, p.Err())
		if p.Err() == nil || errors.Is(p.Err(), io.EOF) {
			t.Errorf("%s: the peer went with %v", name, p.Err())
		}
		conn.Close()
	}
	if got, err := n.Call(t.Context(), "still", nil); string(got) != "still " || err != nil {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

func TestUnknownFramesAreIgnored(t *testing.T) {
	h := newHub(t, HubConfig{Handle: echo})
	n, p := join(t, h, Config{Handle: echo})
	s, err := n.session()
	if err != nil {
		t.Fatal(err)
	}
	for _, unknown := range []protocol.Type{0x00, 0x1f, 0x3f, 0x5f, 0x6f, 0x70, 0xff} {
		for _, line := range []*protocol.Line{s.line, hub.Line(p)} {
			if err := line.Send(protocol.Begin(unknown).String("from the future")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, err := n.Call(t.Context(), "still", nil); string(got) != "still " || err != nil {
		t.Errorf("node: %q, %v", got, err)
	}
	if got, err := p.Call(t.Context(), "still", nil); string(got) != "still " || err != nil {
		t.Errorf("peer: %q, %v", got, err)
	}
}

func TestAnotherVersionIsRefusedWithAReason(t *testing.T) {
	h := newHub(t, HubConfig{})
	conn, _ := pipeTo(t, h, "old")
	defer conn.Close()
	if _, err := conn.Write(hello(protocol.Magic, 99)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "version 99") {
		t.Errorf("%q, %v", answer, err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, Config{Conn: here}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
