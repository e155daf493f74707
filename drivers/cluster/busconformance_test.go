package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
)

// busOf is the bus of a node that ends with it, as the suite opens processes.
type busOf struct {
	*Bus
	node *Node
	peer *Peer
}

func (b busOf) Close(ctx context.Context) error {
	return errors.Join(b.Bus.Close(ctx), b.node.Close(ctx))
}

// lobby is where the suite's processes meet: a hub for each case.
type lobby struct {
	mu  sync.Mutex
	hub *Hub
}

// begin makes the hub of the next case.
func (l *lobby) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hub != nil {
		if err := l.hub.Close(context.Background()); err != nil {
			return err
		}
	}
	l.hub = NewHub(HubConfig{})
	return nil
}

func (l *lobby) open() (driver.Driver, error) {
	here, there, err := Pair()
	if err != nil {
		return nil, err
	}
	defer there.Close()
	conn, err := net.FileConn(there)
	if err != nil {
		return nil, err
	}
	p := l.hub.Join(here, "process")
	n, err := Dial(context.Background(), Config{Conn: conn})
	if err != nil {
		return nil, err
	}
	return busOf{n.Bus(), n, p}, nil
}

// crash ends the connection as the end of a process does, and returns when the
// hub knows.
func (l *lobby) crash(d driver.Driver) error {
	b := d.(busOf)
	s, err := b.node.session()
	if err != nil {
		return err
	}
	s.line.Close()
	<-b.peer.Done()
	return nil
}

func (l *lobby) interests() (int, error) { return l.hub.bus.len(), nil }

func TestBusConformance(t *testing.T) {
	l := &lobby{}
	t.Cleanup(func() {
		if err := l.hub.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	bustest.Run(t, bustest.Harness{
		Begin:  l.begin,
		Open:   l.open,
		Faults: bustest.Faults{Crash: l.crash, Interests: l.interests},
	})
}
