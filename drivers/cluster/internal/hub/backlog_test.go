package hub

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// A client that reads too slowly loses messages, and not its connection: the answers to
// its questions find room beside the messages that wait.
func TestFullBacklogOfMessagesLeavesRoomForAnswers(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	resume, synced := make(chan struct{}), make(chan struct{})
	slow := joinHand(t, h, true, func(_ *handClient, typ protocol.Type, _ []byte) {
		<-resume
		if typ == protocol.TypeSynced {
			close(synced)
		}
	})
	to := h.list()[0]
	slow.say(protocol.Begin(protocol.TypeJoin).Uint(2).Byte(byte(driver.Event)).Uint(1).String("y").String(""))
	from := joinHand(t, h, false, func(*handClient, protocol.Type, []byte) {})
	large := &driver.Message{Subject: "y", Data: make([]byte, 1<<20)}
	for !to.bus.full.Load() {
		from.say(protocol.AddMessage(protocol.Begin(protocol.TypeEvent), large))
		_ = from.line.Room(t.Context(), 1)
	}
	seen := to.frames.Load()
	slow.say(protocol.Begin(protocol.TypeSync).Uint(1))
	slow.say(protocol.Begin(protocol.TypeLast)) // the sync is handled when this one is
	for to.frames.Load() < seen+2 && to.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	close(resume)
	select {
	case <-synced:
	case <-to.Done():
		t.Errorf("the hub ends the connection: %v", to.Err())
	}
}

// Losses end when half of the backlog is written: neither at once, with a gap after each
// message, nor so late that the line is idle.
func TestAFullBacklogTakesMessagesAgainWhenHalfOfItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog = 1 << 20
		h := New(Config{Backlog: backlog})
		here, there := net.Pipe()
		c := newClient(h, here, "slow")
		defer func() { _ = there.Close(); c.line.Close(); h.bus.leave(c) }()
		in := enlist(c, driver.Event, "")
		for b := (batch{}); !c.bus.full.Load(); b.flush() {
			b.deliver(c, &delivery{plain: in, tail: make([]byte, 10<<10)})
		}
		before, read := 0, make([]byte, 64<<10)
		for c.bus.full.Load() {
			before = c.line.Backlog()
			if _, err := there.Read(read); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if after := c.line.Backlog(); before < backlog/2 || after > backlog/2 {
			t.Errorf("it takes messages again between %d and %d bytes of %d", before, after, backlog)
		}
	})
}
