package hub

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// Whatever a peer says, it neither breaks the hub nor leaves anything when it
// goes.
func FuzzFramesToTheHub(f *testing.F) {
	r := driver.Request{Key: "k", Token: "0123456789012345678901", TTL: time.Second, Wait: -1, Slots: 3, Fences: 17, Holder: driver.Holder{App: "web", PID: 7}}
	ask, have := protocol.Begin(protocol.LockAsk).Uint(1).Uint(0), protocol.Begin(protocol.LockHeld)
	protocol.AddRequest(ask, &r)
	protocol.AddLease(have, &driver.Grant{Key: "k", Token: "t", Fence: 1, Fences: 1, TTL: time.Second, Deadline: driver.Now()}, &r, protocol.ReadClock())
	for _, frame := range []*protocol.Frame{
		ask, have, protocol.Begin(protocol.LockReported),
		protocol.Begin(protocol.LockLeave).Uint(1).String("k").String(r.Token),
		protocol.Begin(protocol.LockRelease).Uint(1).String("k").String(r.Token),
		protocol.Begin(protocol.LockRenew).Uint(1).Uint(1).String("k").String(r.Token).Int(1e9).Bool(false).Uint(1),
		protocol.AddForce(protocol.Begin(protocol.LockForce).Uint(1).String("k"), &driver.Force{ByFence: true, Fence: 7, Reason: "why"}),
		protocol.Begin(protocol.LockInspect).Uint(1).String("k"),
		protocol.Begin(protocol.LockList).Uint(1).String(""),
	} {
		f.Add(byte(frame.Type()), bytes.Clone(frame.Body()), byte(protocol.LockAsk), []byte{})
	}
	f.Fuzz(func(t *testing.T, first byte, a []byte, second byte, b []byte) {
		h := New(Config{})
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		c := newClient(h, here, "fuzz")
		c.admitted = true
		defer there.Close()
		defer c.line.Close()
		for _, f := range []struct {
			t    byte
			body []byte
		}{{first, a}, {second, b}, {first, a}} {
			kind := protocol.TypeLocks + protocol.Type(f.t)%(protocol.TypeBus-protocol.TypeLocks)
			if c.handle(kind, f.body) != nil {
				break
			}
		}
		h.locks.leave(c, true)
		if keys, _, _ := h.locks.table.Size(); keys != 0 {
			t.Errorf("it has left %d keys", keys)
		}
	})
}
