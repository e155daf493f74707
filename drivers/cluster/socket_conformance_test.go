//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

// TestSocketsKeepTheContract is the transport of unrelated processes. A hub that
// is killed is away for as long as the suite likes, because its seat stays taken;
// the next one knows nothing but what the processes say, and how high it has to
// begin.
func TestSocketsKeepTheContract(t *testing.T) {
	locktest.RunParallel(t, func(t *testing.T) locktest.Harness {
		t.Helper()
		p := openPost(t)
		accept := "github.com/megaframework/mega/drivers/cluster.(*post).accept"
		return locktest.Harness{Open: p.open, Unit: 400 * time.Millisecond, Background: []string{accept}, Faults: locktest.Faults{
			Kill: p.kill, Restart: p.restart, Keeps: true,
			Leave:       p.leave,
			Crash:       p.crash,
			Connections: func(driver.Driver) (int, error) { return 1, nil },
		}}
	})
}

// post is a hub at a socket that can be killed, and followed by another one, while
// it keeps the seat.
type post struct {
	socket   string
	seat     *rendezvous.HubLock
	hub      *hub.Successor
	listener *rendezvous.Listener
	end      chan struct{} // closed with the hub
	running  sync.WaitGroup
	last     rendezvous.Record
	joined   chan *quiet // receives each connection; nil if nobody looks
}

// quiet is a hub's side of a connection whose frames can be lost on their way to
// the process.
type quiet struct {
	net.Conn
	lost atomic.Bool
}

func (q *quiet) Write(b []byte) (int, error) {
	if q.lost.Load() {
		return len(b), nil
	}
	return q.Conn.Write(b)
}

func openPost(t *testing.T) *post {
	t.Helper()
	return openPostFor(t, nil)
}

func openPostFor(t *testing.T, joined chan *quiet) *post {
	t.Helper()
	p, err := newPost(socketPath(t), joined)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func newPost(socket string, joined chan *quiet) (*post, error) {
	p := &post{socket: socket, joined: joined}
	place, err := rendezvous.Open(socket)
	if err != nil {
		return nil, err
	}
	if p.seat, err = place.Take(); err != nil {
		return nil, err
	}
	return p, p.restart()
}

func (p *post) close() error { return errors.Join(p.kill(), p.seat.Close()) }

// leave has the hub end in order, and another one follow it.
func (p *post) leave() error {
	_ = p.listener.Close() // kill says whether it could be
	p.hub.Drain(context.Background())
	return errors.Join(p.kill(), p.restart())
}

func (p *post) restart() error {
	hub, err := hub.Follow(hub.Config{}, p.seat, p.last, false)
	if err != nil {
		return err
	}
	p.hub, p.end = hub, make(chan struct{})
	if p.listener, err = p.seat.Listen(); err != nil {
		return err
	}
	p.running.Go(p.accept)
	p.running.Go(func() {
		hub.Recover(p.end, func(int) { hub.Grant() })
	})
	return nil
}

func (p *post) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.joined != nil {
			q := &quiet{Conn: conn}
			p.joined <- q
			conn = q
		}
		p.hub.Join(conn, "process")
	}
}

func (p *post) kill() error {
	if p.hub == nil {
		return nil
	}
	close(p.end)
	_ = p.listener.Close() // leave may have done it
	err := p.hub.Close(context.Background())
	p.running.Wait()
	p.last = rendezvous.Record{Expiry: rendezvous.Never, Fence: p.hub.HighestFence()}
	p.hub = nil
	return err
}

// locksOf is the locks of a node that is closed with them.
type locksOf struct {
	*Lock
	node *Node
}

func (l locksOf) Close(ctx context.Context) error {
	return errors.Join(l.Lock.Close(ctx), l.node.Close(ctx))
}

func (p *post) open() (driver.Driver, error) {
	n, err := Dial(context.Background(), Config{Socket: p.socket})
	if err != nil {
		return nil, err
	}
	return locksOf{n.Lock(), n}, nil
}

// crash does what the end of a process does: its line ends, and its file is
// locked no more. It looks for no other hub.
func (p *post) crash(d driver.Driver) error {
	n := d.(locksOf).node
	s, err := n.session()
	if err != nil {
		return err
	}
	var peer *Client
	for _, x := range hub.Clients(p.hub.Hub) {
		if hub.Number(x) == s.number {
			peer = x
		}
	}
	n.end()
	s.line.Close()
	if peer != nil {
		<-peer.Done()
	}
	return n.presence.file.Leave(0)
}
