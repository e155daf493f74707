package nats

import (
	"testing"

	"github.com/nats-io/nats.go"
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
	if _, undone := b.conclude(before, topics, confirmed); len(undone) != 1 || topics[0].active {
		t.Error("the topic is active on a connection that has ended")
	}
	if _, undone := b.conclude(b.newLink(), topics, confirmed); len(undone) != 0 || !topics[0].active {
		t.Error("the topic is not active on the next connection")
	}
}
