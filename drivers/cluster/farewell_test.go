//go:build linux || darwin

package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"

	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// A subscription has no gap if its hub has left in order, and if the next one has
// waited for it (S10). It was told of everything otherwise: without a gap, all
// messages came.
func TestSubscriptionHasNoGapIfItsHubLeftInOrder(t *testing.T) {
	const n = 30_001
	for range 20 {
		got, disorder, gaps := floodAcrossLeave(t, n)
		if gaps > 0 {
			continue // on a busy machine, a process came late to the next hub
		}
		if got != n || disorder != 0 {
			t.Errorf("%d of %d messages came, %d out of order, and there is no gap", got, n, disorder)
		}
		return
	}
	t.Error("each change of the hub is a gap")
}

// diary is a sink that keeps what it gets, in order: subjects and sizes of gaps.
type diary struct{ entries chan string }

func newDiary() *diary { return &diary{make(chan string, 100)} }

func (d *diary) Deliver(m busdriver.Message) bool { d.entries <- m.Subject; return true }
func (d *diary) Gap(n int)                        { d.entries <- fmt.Sprint("gap ", n) }
func (d *diary) Load() int                        { return 0 }
func (d *diary) Fail(error)                       {}

// reads waits for the entries, and checks that there are no others.
func (d *diary) reads(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-d.entries:
			if got != w {
				t.Errorf("the subscription gets %q, want %q", got, w)
			}
		case <-time.After(bound):
			t.Fatalf("the subscription does not get %q", w)
		}
	}
	select {
	case got := <-d.entries:
		t.Errorf("the subscription gets %q, want nothing more", got)
	default:
	}
}

// parting is a socket whose hub leaves while the subscriber is kept from coming back.
type parting struct {
	t        *testing.T
	socket   string
	hub      *Node
	from, to *Node // which publishes to the other one
	got      *diary
}

func newParting(t *testing.T) *parting {
	t.Helper()
	socket := socketPath(t)
	p := &parting{t, socket, meetAt(t, socket), meetAt(t, socket), meetAt(t, socket), newDiary()}
	for _, n := range []*Node{p.from, p.to} {
		must(t, n.Bus().Attach(deaf{}))
	}
	_, err := p.to.Bus().Subscribe(t.Context(), busdriver.Subscription{Pattern: "*", Sink: p.got})
	must(t, err)
	return p
}

// publish returns when the hub has routed the message.
func (p *parting) publish(subject string) {
	p.t.Helper()
	must(p.t, p.from.Bus().Publish(p.t.Context(), busdriver.Message{Subject: subject}))
	must(p.t, p.from.Bus().Flush(p.t.Context()))
}

// leave has the hub leave. The subscriber has everything from it, and cannot look for
// the next one before the result is called.
func (p *parting) leave() (comeBack func()) {
	p.t.Helper()
	p.to.presence.mu.Lock()
	must(p.t, p.hub.Close(p.t.Context()))
	eventually(p.t, "the end of the hub", func() bool { return p.to.bus.currentLine() == nil })
	return p.to.presence.mu.Unlock
}

// currentLine returns the connection that changes of registrations use.
func (b *Bus) currentLine() *protocol.Line {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.line
}

// last publishes one more message to the subscriber, which is back.
func (p *parting) last() {
	p.t.Helper()
	must(p.t, p.to.awaitOpen(p.t.Context()))
	must(p.t, p.to.Ping(p.t.Context())) // the hub has its report
	p.publish("last")
}

func TestSubscriptionThatComesAfterTheNextHubHasOpenedHasAGap(t *testing.T) {
	p := newParting(t)
	p.publish("first")
	comeBack := p.leave()
	p.publish("lost") // the next hub waits for half a second
	comeBack()
	p.last()
	p.got.reads(t, "first", "gap -1", "last")
}

func TestSubscriptionThatIsNotReportedWhenTheNextHubOpensHasAGap(t *testing.T) {
	p := newParting(t)
	p.publish("first")
	comeBack := p.leave()
	p.to.lock.mu.Lock() // its report does not end
	comeBack()
	eventually(t, "the welcome", func() bool { return p.to.bus.currentLine() != nil })
	p.publish("lost")
	p.to.lock.mu.Unlock()
	p.last()
	p.got.reads(t, "first", "gap -1", "last")
}

// A process that connects before the hub knows the subscriptions of all waits for that: its
// first request would find no responder.
func TestDialWaitsUntilTheHubKnowsAllSubscriptions(t *testing.T) {
	p := newParting(t)
	comeBack := p.leave() // the next hub waits for half a second
	defer comeBack()
	s := meetAt(t, p.socket).currentHub()
	if s == nil || !protocol.IsClosed(s.opened) {
		t.Error("Dial has returned before the hub has opened")
	}
}

// A process that was away while there was another hub in between has missed what was
// published there.
func TestSubscriptionThatSkipsAHubHasAGap(t *testing.T) {
	p := newParting(t)
	p.publish("first")
	between := p.from
	comeBack := p.leave()
	p.publish("lost")
	p.from = meetAt(t, p.socket)
	must(t, p.from.Bus().Attach(deaf{}))
	if between.hasHub() {
		must(t, between.Close(t.Context()))
	} else {
		t.Error("the publisher is not the hub")
	}
	eventually(t, "the next hub", p.from.hasHub)
	comeBack() // the next hub still waits for it
	p.last()
	p.got.reads(t, "first", "gap -1", "last")
}

// A hub without its lock file does not leave in order, and the next one does not know
// which it follows.
func TestChangeOfTheHubWithoutALockFileIsAGap(t *testing.T) {
	p := newParting(t)
	p.publish("first")
	before := p.to.currentHub()
	must(t, os.Remove(p.socket+".lock"))
	eventually(t, "another hub", func() bool { now := p.to.currentHub(); return now != nil && now != before })
	must(t, p.from.awaitOpen(t.Context()))
	p.last()
	p.got.reads(t, "first", "gap -1", "last")
}

func (n *Node) currentHub() *session {
	s, _ := n.session() // nil without a hub
	return s
}

// The reference for the others: nothing is lost, and there is no gap.
func TestSubscriptionThatComesInTimeHasNoGap(t *testing.T) {
	for range 20 {
		p := newParting(t)
		p.publish("first")
		began := time.Now()
		p.leave()()
		p.last()
		if time.Since(began) > longestReunion/2 {
			continue // a busy machine
		}
		p.got.reads(t, "first", "last")
		return
	}
	t.Error("no process comes back in time")
}
