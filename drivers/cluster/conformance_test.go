//go:build linux || darwin

package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

func TestInheritedConnectionsKeepTheContract(t *testing.T) {
	locktest.RunParallel(t, func(t *testing.T) locktest.Harness {
		t.Helper()
		h := newHub(t, HubConfig{})
		y := newYard(joining(h))
		return y.harness(locktest.Faults{Beside: func() error {
			hub.Speak(h, protocol.Versions{Oldest: protocol.Known.Newest, Newest: protocol.Known.Newest + 1})
			return nil
		}, Newer: func(string) (func() error, [2]string, error) {
			return func() error {
				hub.Speak(h, protocol.Versions{Oldest: 98, Newest: 99})
				_, err := y.open()
				return err
			}, [2]string{"version 99", fmt.Sprintf("version %d", protocol.Known.Newest)}, nil
		}})
	})
}

// joining returns what makes connections to a hub in this process. Its end waits
// until the hub has seen it.
func joining(h *Hub) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		here, there, err := Pair()
		if err != nil {
			return nil, err
		}
		defer there.Close()
		conn, err := net.FileConn(there)
		if err != nil {
			return nil, err
		}
		return seenOff{conn, h.Join(here, "node")}, nil
	}
}

type seenOff struct {
	net.Conn
	peer *Client
}

func (c seenOff) Close() error {
	err := c.Conn.Close()
	<-c.peer.Done()
	return err
}

// yard opens nodes as processes of one hub, each over a link of its own.
type yard struct {
	dial func() (net.Conn, error) // a connection to the hub

	mu    sync.Mutex
	links map[driver.Driver]*link
}

func newYard(dial func() (net.Conn, error)) *yard {
	return &yard{dial: dial, links: map[driver.Driver]*link{}}
}

func (y *yard) open() (driver.Driver, error) {
	hub, err := y.dial()
	if err != nil {
		return nil, err
	}
	l, conn, err := newLink(hub)
	if err != nil {
		return nil, err
	}
	n, err := Dial(context.Background(), Config{Conn: conn})
	if err != nil {
		l.close()
		return nil, err
	}
	d := &process{n.Lock(), n, l}
	y.mu.Lock()
	y.links[d] = l
	y.mu.Unlock()
	return d, nil
}

// process is a node that is closed with its driver.
type process struct {
	*Lock
	node *Node
	link *link
}

func (p *process) Close(ctx context.Context) error {
	err := p.Lock.Close(ctx)
	_ = p.node.Close(ctx) // it has no error
	p.link.end()
	return err
}

func (y *yard) link(d driver.Driver) *link {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.links[d]
}

// rule lets f change what a process's link does.
func (y *yard) rule(d driver.Driver, f func(*link)) error {
	l := y.link(d)
	if l == nil {
		return errNoLink
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
	return nil
}

// harness has the faults of links, and more.
func (y *yard) harness(more locktest.Faults) locktest.Harness {
	f := more
	f.DropReply = func(d driver.Driver, op locktest.Op) error {
		return y.rule(d, func(l *link) { l.drop[op] = true })
	}
	f.Delay = func(d driver.Driver, op locktest.Op, by time.Duration) error {
		return y.rule(d, func(l *link) { l.delay[op] = by })
	}
	f.Partition = func(d driver.Driver) (func() error, error) { return y.link(d).hold(up, down), nil }
	f.Deafen = func(d driver.Driver) (func() error, error) { return y.link(d).hold(down), nil }
	f.Crash = func(d driver.Driver) error { y.link(d).close(); return nil }
	f.Connections = func(driver.Driver) (int, error) { return 1, nil }
	f.Commands = y.commands
	// The unit is long, so that the shortest lease survives the moments in which
	// everything else on the machine wants its processors.
	return locktest.Harness{Open: y.open, Unit: 600 * time.Millisecond, Faults: f}
}

// commands counts what all processes have asked for.
func (y *yard) commands() (int, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	n := 0
	for _, l := range y.links {
		n += l.commands()
	}
	return n, nil
}
