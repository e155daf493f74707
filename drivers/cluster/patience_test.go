package cluster

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// An inherited connection is that of a child, which may load a model, wait for
// a debugger or be stopped before it says hello.
func TestInheritedConnectionWaitsForItsHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubConfig{})
		here, there := net.Pipe()
		p := h.Join(here, "slow")
		time.Sleep(time.Minute)
		select {
		case <-p.Done():
			t.Errorf("the client was dropped: %v", p.Err())
		default:
		}
		_ = there.Close()
		<-p.Done()
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
