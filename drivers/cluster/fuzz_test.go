package cluster

import (
	"bytes"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// Whatever a hub says does not break a node.
func FuzzFramesOfTheHub(f *testing.F) {
	g := driver.Grant{Fence: 1, Slot: 1, Deadline: driver.Now()}
	answer, granted := protocol.Begin(protocol.LockAnswer).Uint(1).Byte(protocol.VerdictDone), protocol.Begin(protocol.LockGranted).String("t")
	protocol.AddGrant(answer, &g, protocol.ReadClock())
	protocol.AddGrant(granted, &g, protocol.ReadClock())
	for _, frame := range append(protocol.AddStates(4, []driver.State{{Key: "k", Waiters: make([]driver.Holder, 2), Slots: make([]driver.SlotState, 2)}}, true, 10),
		answer, granted,
		protocol.Begin(protocol.LockAnswer).Uint(1).Byte(protocol.VerdictQueued).Uint(7),
		protocol.Begin(protocol.LockAnswer).Uint(3).Byte(protocol.VerdictDone).Uint(7),
		protocol.AddError(protocol.Begin(protocol.LockRefused).String("t"), &driver.NotAcquiredError{}),
		protocol.AddError(protocol.Begin(protocol.LockLost).String("t"), &driver.LostError{}),
	) {
		f.Add(byte(frame.Type()), bytes.Clone(frame.Body()), byte(protocol.LockAnswer), []byte{})
	}
	f.Fuzz(func(t *testing.T, first byte, a []byte, second byte, b []byte) {
		x := newLock(nil)
		c, err := x.add(&driver.Request{Key: "k", Token: "t", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		renewals := make([]driver.Renewal, 2)
		x.asked[1] = &question{answered: make(chan error, 1), claim: c}
		x.asked[2] = &question{answered: make(chan error, 1), grants: make([]driver.Grant, 2), renewals: renewals}
		x.asked[3] = &question{answered: make(chan error, 1)}
		x.asked[4] = &question{answered: make(chan error, 1)}
		for _, f := range []struct {
			t    byte
			body []byte
		}{{first, a}, {second, b}, {first, a}} {
			d := protocol.NewDecoder(f.body)
			_ = x.handle(protocol.TypeLocks+protocol.Type(f.t)%(protocol.TypeBus-protocol.TypeLocks), &d)
		}
		x.ended(errHubGone)
	})
}
