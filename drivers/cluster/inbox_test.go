//go:build linux || darwin

package cluster

import (
	"errors"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// outcome is a front that keeps the error of the last request.
type outcome struct {
	deaf
	err error
}

func (o *outcome) Fail(_ uint64, err error) { o.err = err }

// A hub of a newer build may have a reason that this process does not know. It does
// not show that nobody has handled the request.
func TestARequestThatFailsForAnUnknownReasonMayHaveBeenHandled(t *testing.T) {
	for why, want := range map[byte]error{
		protocol.FailNoResponder: driver.ErrNoResponders, protocol.FailGone: driver.ErrDisconnected,
		protocol.FailFull: driver.ErrOverloaded, 200: driver.ErrDisconnected,
	} {
		var o outcome
		b := &Bus{front: &o}
		d := protocol.NewDecoder(protocol.Begin(protocol.TypeFailed).Uint(1).Byte(why).Body())
		b.failed(&d)
		if !errors.Is(o.err, want) {
			t.Errorf("reason %d: %v, want %v", why, o.err, want)
		}
	}
}
