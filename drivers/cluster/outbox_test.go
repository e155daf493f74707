package cluster

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// A hub that is slow for longer than RoomTimeout gets a queued request whose
// time is not over (S12).
func TestAQueuedRequestStaysUntilItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far := net.Pipe()
		defer far.Close()
		line := protocol.NewLine(conn)
		b := newBus(&Node{config: Config{Buffer: 8 << 20}})
		defer func() {
			line.Close()
			b.out.close()
		}()
		b.out.resume(line)
		queued := func() (requests int) {
			b.out.mu.Lock()
			defer b.out.mu.Unlock()
			for _, e := range b.out.queue[b.out.head:] {
				if e.bound != nil && e.bound.frame != nil {
					requests++
				}
			}
			return requests
		}
		for range 5 {
			if err := b.Publish(t.Context(), driver.Message{Subject: "a", Data: make([]byte, window/2)}); err != nil {
				t.Fatal(err)
			}
		}
		m := driver.Message{Kind: driver.Request, Subject: "a", ID: 1, Deadline: time.Now().Add(time.Minute)}
		if err := b.Request(context.Background(), m); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Second)
		if n := queued(); n != 1 {
			t.Errorf("%d requests before the deadline", n)
		}
		time.Sleep(2 * time.Second)
		if n := queued(); n != 0 {
			t.Errorf("%d requests after the deadline", n)
		}
	})
}
