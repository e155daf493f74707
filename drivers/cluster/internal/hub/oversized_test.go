package hub

import (
	"context"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// A message of another build may fit into the frame of its sender, but not into the frame
// for its receivers, which also has their numbers. They get a gap of one message, a request
// fails, and their subscriptions stay active (S4).
func TestMessageThatIsTooLargeForItsReceiversIsAGap(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	type frames chan protocol.Type
	join := func() (*handClient, frames) {
		got := make(frames, 16)
		return joinHand(t, h, false, func(_ *handClient, typ protocol.Type, _ []byte) { got <- typ }), got
	}
	expect := func(what string, got frames, want ...protocol.Type) {
		t.Helper()
		for _, typ := range want {
			select {
			case next := <-got:
				if next != typ {
					t.Errorf("%s: a frame of type 0x%02x, want 0x%02x", what, next, typ)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: no frame of type 0x%02x", what, typ)
			}
		}
	}
	to, received := join() // it has a subscription to "x" in a group
	to.say(protocol.Begin(protocol.TypeJoin).Uint(2).Byte(byte(driver.Event)).Uint(1).String("y").String(""))
	to.say(protocol.Begin(protocol.TypeJoin).Uint(3).Byte(byte(driver.Request)).Uint(1).String("z").String("g"))
	to.say(protocol.Begin(protocol.TypeSync).Uint(1))
	expect("the subscriptions", received, protocol.TypeSynced)
	from, answered := join()
	from.say(protocol.Begin(protocol.TypeLeave).Uint(1))
	send := func(f *protocol.Frame, subject string, large bool) {
		m := &driver.Message{Subject: subject}
		if large { // the length of a frame does not count its own four bytes
			m.Data = make([]byte, protocol.MaxFrame+4-f.Len()-len(subject)-2)
		}
		from.say(protocol.AddMessage(f, m))
	}
	for _, subject := range []string{"x", "y"} {
		send(protocol.Begin(protocol.TypeEvent), subject, true)
		send(protocol.Begin(protocol.TypeEvent), subject, false)
		expect("the events for "+subject, received, protocol.TypeGap, protocol.TypeDeliver)
	}
	send(protocol.Begin(protocol.TypeRequest).Uint(1), "z", true)
	expect("the large request", answered, protocol.TypeFailed)
	send(protocol.Begin(protocol.TypeRequest).Uint(2), "z", false)
	expect("the requests", received, protocol.TypeGap, protocol.TypeServe)
}
