//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// The backend has changed, so a copy of the release may have been executed: work
// that is finished is no loss, also for a lease with a cooldown (L5).
func TestReleaseAfterATakeOverIsNoLoss(t *testing.T) {
	for name, rest := range map[string]time.Duration{"at once": 0, "with a cooldown": time.Hour} {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			host := meetAt(t, socket)
			n, err := Dial(t.Context(), Config{Socket: socket, Recruit: func(context.Context) error { return nil }}) // never the hub
			must(t, err)
			t.Cleanup(func() { _ = n.Close(context.Background()) })
			g, err := n.Lock().Acquire(t.Context(), driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1})
			must(t, err)
			before, err := n.session()
			must(t, err)
			next := meetAt(t, socket)
			must(t, host.Close(t.Context()))
			eventually(t, "the next hub", func() bool {
				s, err := n.session()
				return err == nil && s != before
			})
			_, err = n.Lock().Inspect(t.Context(), "k") // the hub has read the report
			must(t, err)
			must(t, next.Lock().Release(t.Context(), driver.Grant{Key: "k", Token: "token", TTL: time.Minute})) // the copy
			g.Rest, g.Rev = rest, 1
			if err := n.Lock().Release(t.Context(), g); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
}

// A lease that was forced is lost, whatever hub has forced it, also if its release was
// under way (L16).
func TestReleaseOfAForcedLeaseIsALossAfterATakeOver(t *testing.T) {
	x := meetAt(t, socketPath(t)).Lock()
	for cause, lost := range map[driver.Cause]bool{driver.Forced: true, driver.Expired: false} {
		answer := &driver.LostError{Key: "k", Cause: cause}
		moved := &claim{moved: true}
		if err := x.unlessRepeated(moved, &question{}, answer); (err != nil) != lost {
			t.Errorf("%s, at the next hub: %v", cause, err)
		}
		if err := x.unlessRepeated(nil, &question{again: true}, answer); (err != nil) != lost {
			t.Errorf("%s, repeated: %v", cause, err)
		}
		if err := x.unlessRepeated(&claim{}, &question{}, answer); err == nil {
			t.Errorf("%s, at the same hub: no error", cause)
		}
	}
}

// A hub that ends waits for its clients. The calls of its own process do not wait
// for it.
func TestRequestsDoNotWaitForTheEndOfTheHub(t *testing.T) {
	socket := socketPath(t)
	n := meetAt(t, socket)
	silent, err := net.Dial("unix", socket) // the hub waits for its last frame
	must(t, err)
	line := protocol.NewLine(silent)
	defer line.Close()
	must(t, line.Send((&protocol.Hello{Speaks: protocol.Known, PID: 1, File: "silent"}).Frame()))
	_, err = silent.Read(make([]byte, 1)) // it is welcome
	must(t, err)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = n.Close(t.Context())
	}()
	eventually(t, "the end of the hub", n.presence.host.Failed)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.Lock().Renew(t.Context(), []driver.Grant{{Key: "k", Token: "token", TTL: time.Hour}})
	}()
	select {
	case <-done:
	case <-closed:
		t.Error("the renewal waits until the hub has ended")
	}
	<-closed
	<-done
}

func TestDialClosesARefusedConnection(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	if _, err := Dial(t.Context(), Config{Conn: here, Socket: socketPath(t)}); !errors.Is(err, errNoTransport) {
		t.Fatal(err)
	}
	if err := here.SetDeadline(time.Time{}); err == nil {
		t.Error("the connection is open after Dial, which owns it, has failed")
	}
}

func TestCloseWaitsForAHandlerUntilItsContextEnds(t *testing.T) {
	h := newHub(t, HubConfig{})
	here, there, err := Pair()
	must(t, err)
	conn, err := net.FileConn(there)
	must(t, errors.Join(err, there.Close()))
	client := h.Join(here, "node")
	running, release := make(chan struct{}), make(chan struct{})
	n, err := Dial(t.Context(), Config{Conn: conn, Handle: func(context.Context, *Client, string, []byte) ([]byte, error) {
		close(running)
		<-release
		return nil, nil
	}})
	must(t, err)
	go func() { _, _ = client.Call(t.Context(), "work", nil) }()
	<-running
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- n.Close(ctx) }()
	select {
	case err := <-closed:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v, want the end of its context", err)
		}
	case <-time.After(bound):
		t.Error("Close ignores the end of its context")
	}
	close(release)
	if err := n.Close(t.Context()); err != nil {
		t.Errorf("close without a running handler: %v", err)
	}
}

// A process that connects while the hub leaves finds the next hub: its first frame
// is a welcome or none. The hub does not wait for it either.
func TestAHubThatLeavesSendsNothingBeforeItsWelcome(t *testing.T) {
	for range 3 { // it would wait for two seconds each time, and a busy machine is seldom so late
		if closesBeforeAWelcome(t) < time.Second {
			return
		}
	}
	t.Error("Close has taken a second, three times")
}

// closesBeforeAWelcome returns how long the Close of a hub takes that has not welcomed
// a connection.
func closesBeforeAWelcome(t *testing.T) (took time.Duration) {
	t.Helper()
	socket := socketPath(t)
	n, err := Dial(t.Context(), Config{Socket: socket})
	must(t, err)
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", socket)
	must(t, err)
	defer conn.Close()
	eventually(t, "the hub to accept it", func() bool { count, _ := n.Clients(); return count == 2 })
	begin := time.Now()
	must(t, n.Close(t.Context()))
	took = time.Since(begin)
	got, err := io.ReadAll(conn)
	if len(got) > 0 || err != nil && !protocol.HasEnded(err) {
		t.Errorf("it has received %x, %v", got, err)
	}
	return took
}
