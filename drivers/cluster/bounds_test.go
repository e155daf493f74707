//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// A peer costs the hub about what it has sent, and not what a frame claims to be.
func TestHalfSentFramesCostWhatWasSent(t *testing.T) {
	h := newHub(t, HubConfig{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const peers = 60
	for range peers {
		conn, p := pipeTo(t, h, "half")
		defer conn.Close()
		greet := (&protocol.Hello{Speaks: protocol.Known}).Frame()
		must(t, handOver(conn, greet))
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil { // welcome
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte{0, 0, 16, 0, byte(protocol.TypeEvent)}); err != nil { // a frame of 1 MiB, of which a byte comes
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(); <-p.Done() }()
	}
	time.Sleep(50 * time.Millisecond) // nothing tells that the hub has read them
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapInuse) - int64(before.HeapInuse)) / peers; each > 300<<10 {
		t.Errorf("each of %d half-sent frames costs %d bytes", peers, each)
	}
}

// handOver writes a frame to a connection.
func handOver(conn net.Conn, f *protocol.Frame) error {
	body := f.Body()
	head := []byte{byte(len(body) + 1), byte((len(body) + 1) >> 8), 0, 0, byte(protocol.TypeHello)}
	_, err := conn.Write(append(head, body...))
	return err
}

// Before its hello a peer may send 1 KiB.
func TestAClientThatIsLongBeforeItsHelloIsDropped(t *testing.T) {
	h := newHub(t, HubConfig{})
	conn, p := pipeTo(t, h, "long")
	defer conn.Close()
	if _, err := conn.Write([]byte{0, 8, 0, 0, byte(protocol.TypeHello)}); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if e, ok := errors.AsType[*protocol.FrameError](p.Err()); !ok || e.Length != 2048 {
		t.Error(p.Err())
	}
}

// A peer that says nothing is dropped, and so is one that stops within a frame.
func TestAClientThatIsSilentIsDropped(t *testing.T) {
	for name, say := range map[string][]byte{"nothing": nil, "half a hello": {20, 0, 0, 0, byte(protocol.TypeHello), 'm'}} {
		here, there := pipe(t)
		defer there.Close()
		if _, err := there.Write(say); err != nil {
			t.Error(err)
		}
		h := newHub(t, HubConfig{})
		p := hub.JoinWithin(h, here, protocol.Limits{First: 20 * time.Millisecond, Within: 20 * time.Millisecond})
		select {
		case <-p.Done():
			if !errors.Is(p.Err(), os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v", name, p.Err())
			}
		case <-time.After(bound):
			t.Errorf("%s: the peer stays", name)
		}
	}
}

// A process beyond the cap is refused with a reason, and one that leaves makes
// room.
func TestClientsAreCapped(t *testing.T) {
	h := newHub(t, HubConfig{Clients: 2})
	n, _ := join(t, h, Config{})
	join(t, h, Config{})
	conn, p := pipeTo(t, h, "third")
	if _, err := Dial(t.Context(), Config{Conn: conn}); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "too many") {
		t.Errorf("the third one: %v", err)
	}
	<-p.Done()
	must(t, n.Close(t.Context()))
	eventually(t, "room", func() bool { return len(hub.Clients(h)) == 1 })
	join(t, h, Config{})
}

// A panic over the frames of one peer ends that peer, and a panic of a Handler
// ends that call.
func TestAPanicEndsOneClient(t *testing.T) {
	h := newHub(t, HubConfig{Handle: func(ctx context.Context, p *Client, name string, body []byte) ([]byte, error) {
		if name == "panic" {
			panic("as asked")
		}
		return echo(ctx, p, name, body)
	}})
	n, _ := join(t, h, Config{})
	other, _ := join(t, h, Config{})
	if _, err := n.Call(t.Context(), "panic", nil); err == nil || !strings.Contains(err.Error(), "as asked") {
		t.Errorf("the call: %v", err)
	}
	if err := other.Ping(t.Context()); err != nil { // so that it has told all
		t.Fatal(err)
	}
	hub.OnReported(h, func(*Client) { panic("as asked") })
	conn, p := pipeTo(t, h, "bad")
	defer conn.Close()
	must(t, handOver(conn, (&protocol.Hello{Speaks: protocol.Known}).Frame()))
	if _, err := conn.Write([]byte{1, 0, 0, 0, byte(protocol.LockReported)}); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if !strings.Contains(fmt.Sprint(p.Err()), "panic") {
		t.Error(p.Err())
	}
	for _, n := range []*Node{n, other} {
		if got, err := n.Call(t.Context(), "still", nil); string(got) != "still " || err != nil {
			t.Errorf("afterwards: %q, %v", got, err)
		}
	}
}

// Two such builds speak the older version. Others are refused, and the error names
// both versions (L24).
func TestBuildsOneVersionApartUnderstandEachOther(t *testing.T) {
	for _, x := range []struct {
		hub, peer [2]uint64
		says      string // "" if they can speak
	}{
		{[2]uint64{2, 3}, [2]uint64{1, 2}, ""},
		{[2]uint64{2, 3}, [2]uint64{3, 4}, ""},
		{[2]uint64{2, 3}, [2]uint64{2, 3}, ""},
		{[2]uint64{3, 4}, [2]uint64{1, 2}, "version 2 of the protocol, the hub version 4"},
		{[2]uint64{2, 3}, [2]uint64{4, 5}, "version 5 of the protocol, the hub version 3"},
	} {
		h := newHub(t, HubConfig{})
		hub.Speak(h, protocol.Versions{Oldest: x.hub[0], Newest: x.hub[1]})
		conn, _ := pipeTo(t, h, "other")
		n, err := dial(t.Context(), Config{Conn: conn}, protocol.Versions{Oldest: x.peer[0], Newest: x.peer[1]})
		if x.says == "" {
			if err != nil {
				t.Errorf("%v and %v: %v", x.hub, x.peer, err)
				continue
			}
			must(t, n.Close(t.Context()))
			continue
		}
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%v and %v: %v, want %q", x.hub, x.peer, err, x.says)
		}
	}
}

// A process that takes the name of another member is refused.
func TestAMemberIsConfirmedByItsFile(t *testing.T) {
	socket := socketPath(t)
	a, b := meetAt(t, socket), meetAt(t, socket)
	as := identity{b.clientFile().Name(), b.clientFile().Nonce() + 1}
	conn, _, err := a.presence.socket.Dial(t.Context())
	must(t, err)
	if err := handOver(conn, b.hello(as).Frame()); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "does not confirm") {
		t.Errorf("%q, %v", answer, err)
	}
	must(t, os.Remove(filepath.Join(socket+".clients", as.name)))
	conn, _, err = a.presence.socket.Dial(t.Context())
	must(t, err)
	defer conn.Close()
	must(t, handOver(conn, b.hello(as).Frame()))
	var first [5]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil || protocol.Type(first[4]) != protocol.TypeWelcome {
		t.Errorf("without its file: %v, %v", first, err)
	}
}

// Dial gives up by itself, and says which process does not answer.
func TestDialHasABoundOfItsOwn(t *testing.T) {
	t.Parallel()
	hub, dial := hubChild(t)
	must(t, hub.Pause())
	conn, err := dial()
	must(t, err)
	began := time.Now()
	_, err = Dial(t.Context(), Config{Conn: conn})
	if took := time.Since(began); err == nil || took < dialBound || took > dialBound+bound {
		t.Errorf("after %v: %v", took, err)
	}
	if want := fmt.Sprintf("process %d) does not answer (is it stopped?)", hub.PID()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	must(t, hub.Continue())
}
