package nats

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// The server's confirmation may be the last message of a connection, and be
// handled after its end.
func TestAConfirmationOfAConnectionThatHasEndedActivatesNothing(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	b.mu.Lock()
	topics := []*topic{b.newTopic(topicKey{subject: "ev.a"})}
	b.mu.Unlock()
	confirmed := []*nats.Subscription{{Subject: "ev.a"}}

	before := b.newLink()
	b.suspend(before)
	if undone, _ := b.conclude(before, topics, confirmed); len(undone) != 1 || topics[0].active {
		t.Error("the topic is active on a connection that has ended")
	}
	if undone, _ := b.conclude(b.newLink(), topics, confirmed); len(undone) != 0 || !topics[0].active {
		t.Error("the topic is not active on the next connection")
	}
}

// states is a front that only records the state of the connection.
type states struct {
	driver.Front
	of func(connected bool)
}

func (s states) Disconnected(error) { s.of(false) }
func (s states) Connected()         { s.of(true) }

// A connection that is restored while a front is attached is reported after its
// loss, or the front would count it as lost until the next one.
func TestAttachReportsALossBeforeTheNextConnection(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	said := make(chan bool, 2)
	restored := make(chan struct{})
	f := states{of: func(connected bool) {
		if !connected {
			b.link.Store(b.newLink()) // as the keeper does at this moment
			go func() { defer close(restored); b.notify(driver.Front.Connected) }()
			if b.mu.TryLock() {
				b.mu.Unlock()
				<-restored
			}
		}
		said <- connected
	}}
	if err := b.Attach(f); err != nil {
		t.Fatal(err)
	}
	<-restored
	if first, second := <-said, <-said; first || !second {
		t.Errorf("the front is told %v, %v", first, second)
	}
}
