//go:build linux || darwin

package cluster

import (
	"sync"
	"testing"
	"time"

	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/lock"
)

// stuckSink is a sink whose process is stopped at the first message.
type stuckSink struct {
	sink
	entered chan struct{}
	goOn    chan struct{}
	once    sync.Once
}

func (s *stuckSink) Deliver(busdriver.Message) bool {
	s.once.Do(func() { close(s.entered) })
	<-s.goOn
	return true
}

// A client that is stopped delays the end of a hub that leaves in order. The leases of
// the others are renewed and granted meanwhile: a short one would be lost (L12).
func TestAHubThatLeavesServesLocksUntilItsEnd(t *testing.T) {
	socket := socketPath(t)
	leaver, other, stopped := meetAt(t, socket), meetAt(t, socket), meetAt(t, socket)
	s := &stuckSink{entered: make(chan struct{}), goOn: make(chan struct{})}
	for _, n := range []*Node{other, stopped} {
		must(t, n.Bus().Attach(deaf{}))
	}
	_, err := stopped.Bus().Subscribe(t.Context(), busdriver.Subscription{Pattern: "x", Sink: s})
	must(t, err)
	must(t, other.Bus().Publish(t.Context(), busdriver.Message{Subject: "x"}))
	<-s.entered
	l, err := lock.New(other.Lock(), lock.Config{TTL: time.Minute})
	must(t, err)
	lease, err := l.Acquire(t.Context(), "a")
	must(t, err)
	host, ended := leaver.host(), make(chan error, 1)
	go func() { ended <- leaver.Close(t.Context()) }()
	soon(t, "the hub leaves", host.Failed)
	if err := lease.Extend(t.Context(), 2*time.Minute); err != nil {
		t.Errorf("extend a lease: %v", err)
	}
	if next, err := l.TryAcquire(t.Context(), "b"); err != nil {
		t.Errorf("acquire a free key: %v", err)
	} else {
		must(t, next.Release())
	}
	select {
	case err := <-ended:
		t.Errorf("the hub has ended before: %v", err)
	default:
	}
	close(s.goOn)
	must(t, <-ended)
	must(t, lease.Release())
	must(t, l.Close(t.Context()))
}
