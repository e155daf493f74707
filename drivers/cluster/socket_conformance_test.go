//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
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
		p.addLinks()
		accept := "github.com/megaframework/mega/drivers/cluster.(*post).accept"
		return locktest.Harness{Open: p.open, Unit: 400 * time.Millisecond, Background: []string{accept}, Faults: locktest.Faults{
			Kill: p.kill, Restart: p.restart, Keeps: true,
			Leave:       p.leave,
			Crash:       p.crash,
			DropReply:   p.dropReply,
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

	mu    sync.Mutex        // guards links
	links map[*Client]*link // between the hub and its clients; nil if there are none
}

func openPost(t *testing.T) *post {
	t.Helper()
	p, err := newPost(socketPath(t))
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

func newPost(socket string) (*post, error) {
	p := &post{socket: socket}
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
	err := p.kill()
	p.last.Hub = p.seat.Hub()
	return errors.Join(err, p.restart())
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
		p.join(conn)
	}
}

// addLinks has a link between the hub and each process that comes later.
func (p *post) addLinks() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = make(map[*Client]*link)
}

// join connects a process to the hub, over a link if there are links.
func (p *post) join(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links == nil {
		p.hub.Join(conn, "process")
		return
	}
	here, there, err := newPipe()
	if err != nil {
		_ = conn.Close() // the process dials again
		return
	}
	p.links[p.hub.Join(there, "process")] = linkOf(conn, here)
}

// dropReply loses the hub's next answer to the process. Another hub answers.
func (p *post) dropReply(d driver.Driver, op locktest.Op) error {
	peer, _, err := p.client(d)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[peer]
	if l == nil {
		return errNoLink
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop[op] = true
	return nil
}

// client returns the process as its hub knows it, or nil, and its session. A hub may
// know what the process has reported before the process has its session.
func (p *post) client(d driver.Driver) (*Client, *session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := d.(locksOf).node.ready(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, x := range hub.Clients(p.hub.Hub) {
		if hub.Number(x) == s.number {
			return x, s, nil
		}
	}
	return nil, s, nil
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
	peer, s, err := p.client(d)
	if err != nil {
		return err
	}
	n.end()
	s.line.Close()
	if peer != nil {
		<-peer.Done()
	}
	return n.presence.file.Leave(0)
}
