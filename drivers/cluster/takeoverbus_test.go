//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/suite"
)

// counted returns how many messages a process has counted, once that is n or a
// while has passed without another one, and how many gaps it was told of.
func (p *proc) counted(n int) (got, disorder, gaps int) {
	p.t.Helper()
	for last, still := -1, 0; got < n && still < 600; time.Sleep(5 * time.Millisecond) {
		p.tell("counted")
		if _, err := fmt.Sscanf(p.says("counted"), "counted %d %d %d", &got, &disorder, &gaps); err != nil {
			p.t.Fatal(err)
		}
		if still++; got != last {
			last, still = got, 0
		}
	}
	return got, disorder, gaps
}

// floodAcrossLeave lets the hub leave in order while a process publishes n messages to
// another one. It returns what came.
func floodAcrossLeave(t *testing.T, n int) (got, disorder, gaps int) {
	t.Helper()
	c := newCourt(t, 10*time.Second)
	all := []*proc{c.come(false), c.come(false), c.come(false)} // the first one is the hub
	from, to := all[1], all[2]
	to.tell("count a")
	to.says("counts a <nil>")
	from.tell(fmt.Sprint("flood a ", n))
	for got := 0; got == 0; {
		got, _, _ = to.counted(1)
	}
	all[0].leave()
	from.says(fmt.Sprint("flooded ", n, " <nil>"))
	from.tell("flush")
	if line := from.says("flushed"); line != "flushed 0 <nil>" {
		t.Errorf("the publisher says %q", line)
	}
	got, disorder, gaps = to.counted(n)
	from.leave()
	to.leave()
	return got, disorder, gaps
}

// A hub leaves in order while a process publishes to another one: nothing is
// lost, and nothing comes twice or out of order (S21).
func TestAHubThatLeavesInOrderLosesNoMessage(t *testing.T) {
	const n = 50_001
	for range suite.Scaled(3) {
		if got, disorder, _ := floodAcrossLeave(t, n); got != n || disorder != 0 {
			t.Errorf("%d of %d messages came, %d out of order", got, n, disorder)
		}
	}
}

// The hub is killed while a process publishes: what is lost is counted at the
// publisher, and its next Flush reports it (S28).
func TestLossByTheDeathOfTheHubIsCounted(t *testing.T) {
	const n = 20_001
	c := newCourt(t, 10*time.Second)
	all := []*proc{c.come(false), c.come(false), c.come(false)}
	from, to := all[1], all[2]
	to.tell("count a")
	to.says("counts a <nil>")
	must(t, all[0].Pause()) // what is published stays on its way
	from.tell(fmt.Sprint("flood a ", n))
	from.says(fmt.Sprint("flooded ", n, " <nil>"))
	c.kill(all[0])
	got, disorder, _ := to.counted(n)
	from.tell("flush")
	var lost int
	line := from.says("flushed")
	if _, err := fmt.Sscanf(line, "flushed %d", &lost); err != nil || !strings.Contains(line, "disconnected") {
		t.Errorf("the publisher says %q, %v", line, err)
	}
	from.tell("flush")
	if line := from.says("flushed"); !strings.HasSuffix(line, "<nil>") {
		t.Errorf("then it says %q", line)
	}
	if got+lost < n || got == n || disorder != 0 {
		t.Errorf("%d of %d messages came, %d out of order; at most %d are counted as lost", got, n, disorder, lost)
	}
	if most := 2 * window / 128; lost > most {
		t.Errorf("%d are counted as lost, want at most %d: the others were not handed over", lost, most)
	}
}

// While no process can become the hub, the reason is the state of the bus and the error
// of its requests, as on the other drivers (S23).
func TestTheReasonWhyNoHubComesIsReported(t *testing.T) {
	socket := socketPath(t)
	a, n := meetAt(t, socket), meetAt(t, socket)
	b, err := bus.New(n.Bus(), bus.Config{})
	must(t, err)
	defer b.Close()
	must(t, os.Chmod(filepath.Dir(socket), 0o755))
	must(t, a.Close(t.Context()))
	for what, ask := range map[string]func() error{
		"the state": func() error { _, err := b.State(); return err },
		"a request": func() error { _, err := b.Request(t.Context(), "a", nil); return err },
	} {
		soon(t, what+" has the reason", func() bool {
			err := ask()
			return errors.Is(err, bus.ErrDisconnected) && strings.Contains(err.Error(), "can be entered by other users")
		})
	}
	must(t, os.Chmod(filepath.Dir(socket), 0o700))
	soon(t, "there is a hub", func() bool { state, err := b.State(); return state == bus.StateConnected && err == nil })
	if cuts := b.Stats().Cuts; cuts != 1 {
		t.Errorf("the outage counts as %d", cuts)
	}
}

// The change of a hub, which takes milliseconds, is no error of a subscription that begins
// meanwhile (S7).
func TestSubscribeDuringTheChangeOfTheHubGoesOnWithTheNextOne(t *testing.T) {
	socket := socketPath(t)
	hub, n := meetAt(t, socket), meetAt(t, socket)
	must(t, n.Bus().Attach(deaf{}))
	must(t, os.Chmod(filepath.Dir(socket), 0o755)) // no process can become the hub
	must(t, hub.Close(t.Context()))
	soon(t, "the hub is gone", func() bool { _, err := n.session(); return err != nil })
	subscribed := make(chan error, 1)
	var s countSink
	go func() {
		_, err := n.Bus().Subscribe(t.Context(), driver.Subscription{Pattern: "a", Sink: &s})
		subscribed <- err
	}()
	must(t, os.Chmod(filepath.Dir(socket), 0o700))
	must(t, <-subscribed)
	must(t, meetAt(t, socket).Bus().Publish(t.Context(), driver.Message{Subject: "a"}))
	soon(t, "the event arrives", func() bool { return s.got.Load() > 0 })
	must(t, n.Bus().Flush(t.Context()))
	if got := s.got.Load(); got != 1 {
		t.Errorf("it arrives %d times", got)
	}
}

// Without a next hub, Subscribe waits as long as its caller.
func TestSubscribeWithoutAHubEndsWithItsContext(t *testing.T) {
	socket := socketPath(t)
	hub, n := meetAt(t, socket), meetAt(t, socket)
	must(t, os.Chmod(filepath.Dir(socket), 0o755))
	must(t, hub.Close(t.Context()))
	soon(t, "the hub is gone", func() bool { _, err := n.session(); return err != nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var s countSink
	if _, err := n.Bus().Subscribe(ctx, driver.Subscription{Pattern: "a", Sink: &s}); !errors.Is(err, driver.ErrDisconnected) || ctx.Err() == nil {
		t.Errorf("got %v, and its context has ended: %v", err, ctx.Err() != nil)
	}
	must(t, os.Chmod(filepath.Dir(socket), 0o700)) // to clean up
}

// countSink counts its messages.
type countSink struct {
	sink
	got atomic.Int64
}

func (s *countSink) Deliver(driver.Message) bool { s.got.Add(1); return true }

// atHub returns a node at a hub in a process of its own.
func atHub(t *testing.T) (*Node, *child) {
	t.Helper()
	hub, dial := hubChild(t)
	conn, err := dial()
	must(t, err)
	return joined(t, Config{Conn: conn}), hub
}

// A Subscribe that gives up while the hub stands still leaves no subscription (S7).
func TestASubscribeThatGivesUpGetsNoEvent(t *testing.T) {
	n, hub := atHub(t)
	must(t, hub.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var s countSink
	if _, err := n.Bus().Subscribe(ctx, driver.Subscription{Pattern: "a", Sink: &s}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Subscribe returns %v", err)
	}
	must(t, n.Bus().Publish(t.Context(), driver.Message{Subject: "a"}))
	if got := s.got.Load(); got != 0 {
		t.Errorf("%d events have reached it", got)
	}
	must(t, hub.Continue())
}

// The events that a process published before the end of its subscription reach it, also if
// they wait for room on the way to the hub (S7).
func TestASubscriptionThatEndsGetsTheEventsThatWaitForTheHub(t *testing.T) {
	n, hub := atHub(t)
	var s countSink
	in, err := n.Bus().Subscribe(t.Context(), driver.Subscription{Pattern: "a", Group: "g", Sink: &s})
	must(t, err)
	must(t, hub.Pause())
	published := int64(0)
	for ; n.bus.out.events() < 10; published++ {
		must(t, n.Bus().Publish(t.Context(), driver.Message{Subject: "a", Data: make([]byte, 64<<10)}))
	}
	ended := make(chan error, 1)
	go func() { ended <- in.End(t.Context()) }()
	must(t, hub.Continue())
	must(t, <-ended)
	if got := s.got.Load(); got != published {
		t.Errorf("%d of %d events have reached it", got, published)
	}
}

// Requests whose callers have gone make room in the outbound queue, and nobody
// answers them (S12).
func TestRequestsWhoseCallersHaveGoneAreNotSent(t *testing.T) {
	const buffer = 1 << 20
	hub, dial := hubChild(t)
	open := func() (*bus.Bus, *outbox) {
		conn, err := dial()
		must(t, err)
		must(t, conn.(*net.UnixConn).SetWriteBuffer(128<<10)) // whatever is usual on this machine
		n, err := Dial(t.Context(), Config{Conn: conn, Buffer: buffer})
		must(t, err)
		b, err := bus.New(busOf{n.Bus(), n}, bus.Config{})
		must(t, err)
		t.Cleanup(func() { _ = b.Close() })
		return b, &n.bus.out
	}
	asker, out := open()
	responder, _ := open()
	queued := func() int {
		out.mu.Lock()
		defer out.mu.Unlock()
		return out.size
	}
	asked := make(chan int, 1000)
	_, err := responder.Respond(t.Context(), "x", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		asked <- len(m.Data)
		return nil, nil
	})
	must(t, err)
	must(t, hub.Pause())
	for range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 30)
		for range cap(failed) {
			go func() {
				_, err := asker.Request(ctx, "x", make([]byte, 64<<10), bus.Expires(time.Minute))
				failed <- err
			}()
		}
		eventually(t, "the queue to fill", func() bool { return queued() >= buffer })
		cancel()
		for range cap(failed) {
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		eventually(t, "the queue to be empty", func() bool { return queued() == 0 })
	}
	must(t, hub.Continue())
	if _, err := asker.Request(t.Context(), "x", []byte("y")); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for n := range asked {
		if n == 1 {
			break
		}
		sent++
	}
	if most := 2*window/(64<<10) + 2; sent > most {
		t.Errorf("%d requests whose callers had gone were sent, want %d at most", sent, most)
	}
}
