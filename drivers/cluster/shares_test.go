//go:build linux || darwin

package cluster

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// All backlogs together are bounded: with 256 clients each has 2 MiB of the 512,
// and with few clients 64.
func TestBacklogsAreSharesOfOneBound(t *testing.T) {
	h := newHub(t, HubConfig{})
	publisher := busAt(t, h)
	unread := func() *rawClient {
		c := newRawClient(t, h)
		c.join(t, 1, driver.Event, "x", "")
		return c
	}
	many := unread()
	idle := make([]net.Conn, 254)
	for i := range idle {
		idle[i], _ = pipeTo(t, h, "idle")
	}
	const share, message = 2 << 20, 100 << 10
	publish(t, publisher, 2*share, message)
	if waits := hub.Line(many.peer).Backlog(); !hub.IsFull(many.peer) || waits < share/2 || waits > share+message+4096 {
		t.Errorf("with 256 clients, %d bytes wait for one that does not read", waits)
	}
	for _, conn := range idle {
		conn.Close()
	}
	eventually(t, "the idle clients to leave", func() bool { return len(hub.Clients(h)) == 2 })
	few := unread()
	publish(t, publisher, 4*share, message)
	if waits := hub.Line(few.peer).Backlog(); hub.IsFull(few.peer) || waits < 3*share {
		t.Errorf("with 3 clients, %d bytes wait for one that does not read", waits)
	}
}

// publish publishes messages of a size, about n bytes in total.
func publish(t *testing.T, b *bus.Bus, n, size int) {
	t.Helper()
	for range n / size {
		send(t, b, "x", make([]byte, size))
	}
	flush(t, b)
}

// After its hello, a client has 15 s for each frame that it has begun, and any
// time between two frames.
func TestAClientThatStopsWithinAFrameIsDropped(t *testing.T) {
	t.Parallel()
	h := newHub(t, HubConfig{})
	silent, stopped := newRawClient(t, h), newRawClient(t, h)
	stopped.join(t, 1, driver.Event, "x", "") // the hello has arrived
	silent.join(t, 1, driver.Event, "x", "")
	began := time.Now()
	if _, err := stopped.conn.Write([]byte{0, 0, 16, 0, byte(protocol.TypeEvent)}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-stopped.peer.Done():
	case <-time.After(15*time.Second + bound):
		t.Fatal("it is still connected")
	}
	if err, took := stopped.peer.Err(), time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < 14*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	if err := silent.peer.Err(); err != nil {
		t.Errorf("the client that is silent between two frames: %v", err)
	}
}
