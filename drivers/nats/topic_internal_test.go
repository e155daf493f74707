package nats

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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

// A Subscribe that waits for a connection ends with its context, or with the bus.
func TestSubscribeWithoutAConnectionEnds(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	s := driver.Subscription{Pattern: "a", Sink: &one{}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Subscribe(ended, s); !errors.Is(err, driver.ErrDisconnected) || !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := b.Subscribe(t.Context(), s)
		waits <- err
	}()
	for len(b.standing()) == 0 {
		runtime.Gosched()
	}
	b.end()
	if err := <-waits; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after the end of the bus: %v", err)
	}
}

// one is a sink that counts.
type one struct{ taken int }

func (o *one) Deliver(driver.Message) bool { o.taken++; return true }
func (o *one) Load() int                   { return 0 }
func (o *one) Gap(int)                     {}
func (o *one) Fail(error)                  {}

// A server names a subscription that it ends when its permission is revoked (S27). Before
// 2.12 it omits the group, and none of those that it may have ended stays active (S4).
func TestARevocationEndsEachSubscriptionThatItMayConcern(t *testing.T) {
	const alone = `Permissions Violation for Subscription to "ev.a" (sid "3")`
	const inGroup = `Permissions Violation for Subscription to "ev.a" using queue "g:a" (sid "3")`
	for _, c := range []struct {
		version, text string
		want          []string
	}{
		{"2.15.2", inGroup, []string{"ev.a ", "ev.b g:b"}},
		{"2.12.0-RC.1", alone, []string{"ev.a g:a", "ev.b g:b"}},
		{"3.0.0", alone, []string{"ev.a g:a", "ev.b g:b"}},
		{"2.11.17", alone, []string{"ev.b g:b"}},
		{"", alone, []string{"ev.b g:b"}},
	} {
		b := newBus(Config{}.withDefaults())
		defer b.end()
		for _, s := range []driver.Subscription{{Pattern: "a"}, {Pattern: "a", Group: "g"}, {Pattern: "b", Group: "g"}} {
			s.Sink = &one{}
			if _, err := b.join(s); err != nil {
				t.Fatal(err)
			}
		}
		l := b.newLink()
		l.namesQueues = namesQueues(c.version)
		l.failed(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, c.text))
		var stand []string
		for _, topic := range b.standing() {
			if topic.key != b.inbox.key() {
				stand = append(stand, topic.key.subject+" "+topic.key.queue)
			}
		}
		if slices.Sort(stand); !slices.Equal(stand, c.want) {
			t.Errorf("%s: %s: %q stand, want %q", c.version, c.text, stand, c.want)
		}
	}
}
