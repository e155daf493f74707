//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/hub"
)

// busOf is the bus of a node that ends with it, as the suite opens processes.
type busOf struct {
	*Bus
	node *Node
}

func (b busOf) Close(ctx context.Context) error {
	return errors.Join(b.Bus.Close(ctx), b.node.Close(ctx))
}

func dialBus(c Config) (driver.Driver, error) {
	c.Buffer = 4 << 20
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	n, err := Dial(ctx, c)
	if err != nil {
		return nil, err
	}
	return busOf{n.Bus(), n}, nil
}

// hall is a hub at which the suite's processes meet.
type hall struct{ hub *Hub }

// crash ends the connection of a process for good, as its end does, and returns
// when the hub knows.
func (h *hall) crash(d driver.Driver) error {
	n := d.(busOf).node
	s, err := n.session()
	if err != nil {
		return err
	}
	c, err := clientOf(h.hub, n)
	if err != nil {
		return err
	}
	n.end() // it looks for no other hub
	s.line.Close()
	<-c.Done()
	if n.presence != nil {
		return n.clientFile().Leave(0)
	}
	return nil
}

// clientOf returns the client that n is at its hub.
func clientOf(h *Hub, n *Node) (*Client, error) {
	s, err := n.session()
	if err != nil {
		return nil, err
	}
	all := hub.Clients(h)
	i := slices.IndexFunc(all, func(c *Client) bool { return hub.Number(c) == s.number })
	if i < 0 {
		return nil, errors.New("the hub does not know this process any more")
	}
	return all[i], nil
}

func (h *hall) registrations() (int, error) { return hub.Subscriptions(h.hub), nil }

func (h *hall) close() error { return h.hub.Close(context.Background()) }

// pairs is a hall whose processes have inherited their connections.
type pairs struct {
	hall
	relays  *relays
	backlog int // of the hub
	conns   map[driver.Driver]net.Conn
}

func newPairs(backlog int) *pairs {
	return &pairs{relays: newRelays(), backlog: backlog, conns: map[driver.Driver]net.Conn{}}
}

func (h *pairs) begin() error {
	if h.hub != nil {
		if err := h.close(); err != nil {
			return err
		}
	}
	h.hub = NewHub(HubConfig{Backlog: h.backlog})
	return nil
}

func (h *pairs) open() (driver.Driver, error) {
	here, there, err := Pair()
	if err != nil {
		return nil, err
	}
	defer there.Close()
	conn, err := net.FileConn(there)
	if err != nil {
		return nil, err
	}
	h.hub.Join(here, "process")
	if conn, err = h.relays.through(conn); err != nil {
		return nil, err
	}
	d, err := dialBus(Config{Conn: conn})
	h.conns[d] = conn
	return d, err
}

func (h *pairs) deafen(d driver.Driver) (undo func() error, err error) {
	return h.relays.deafen(h.conns[d]), nil
}

// passing is what a relay has running.
const passing = "github.com/megaframework/mega/drivers/cluster.(*relays).pass"

// TestBusConformance is the transport of workers: they have one hub, and end
// with it.
func TestBusConformance(t *testing.T) {
	h := newPairs(0)
	harness := bustest.Harness{
		Begin: h.begin,
		Open:  h.open,
		Faults: bustest.Faults{
			Crash: h.crash, Registrations: h.registrations,
			Slow:     h.relays.slow,
			Pause:    func() error { return h.relays.setPaused(true) },
			Continue: func() error { return h.relays.setPaused(false) },
		},
		Background: []string{passing},
	}
	bustest.Run(t, harness)
	bustest.RunFlawed(t, harness)
	if err := h.close(); err != nil {
		t.Error(err)
	}
}

// A hub that has little room drops messages for a client that does not read.
func TestBusConformanceOfAHubThatDrops(t *testing.T) {
	h := newPairs(1 << 20)
	harness := bustest.Harness{
		Begin:      h.begin,
		Open:       h.open,
		Faults:     bustest.Faults{Registrations: h.registrations, Deafen: h.deafen},
		Background: []string{passing},
	}
	if err := bustest.Check(t.Context(), harness, "S4"); err != nil {
		t.Error(err)
	}
	bustest.RunFlawed(t, harness)
	if err := h.close(); err != nil {
		t.Error(err)
	}
}

// seat is a post for each case of the suite.
type seat struct {
	*post
	dir   string
	cases int
}

func (h *seat) path() string { return filepath.Join(h.dir, strconv.Itoa(h.cases)) }

func (h *seat) begin() (err error) {
	if err := h.close(); err != nil {
		return err
	}
	h.cases++
	h.post, err = newPost(h.path())
	return err
}

func (h *seat) close() error {
	if h.post == nil {
		return nil
	}
	return h.post.close()
}

func (h *seat) up() error {
	if h.hub != nil {
		return nil
	}
	return h.restart()
}

func (h *seat) drop() error {
	for _, p := range hub.Clients(h.hub.Hub) {
		hub.Line(p).End(errors.New("dropped"))
		<-p.Done()
	}
	return nil
}

// cut ends the connection of one process, which may connect again at once.
func (h *seat) cut(d driver.Driver) error {
	c, err := clientOf(h.hub.Hub, d.(busOf).node)
	if err == nil {
		hub.Line(c).End(errors.New("cut"))
		<-c.Done()
	}
	return err
}

func (h *seat) crash(d driver.Driver) error { return (&hall{h.hub.Hub}).crash(d) }

func (h *seat) registrations() (int, error) { return hub.Subscriptions(h.hub.Hub), nil }

func (h *seat) open() (driver.Driver, error) { return dialBus(Config{Socket: h.path()}) }

func (h *seat) harness() bustest.Harness {
	return bustest.Harness{
		Begin:      h.begin,
		Open:       h.open,
		Background: []string{"github.com/megaframework/mega/drivers/cluster.(*post).accept"},
		Faults: bustest.Faults{
			Crash: h.crash, Registrations: h.registrations,
			Drop: h.drop, Cut: h.cut, Up: h.up,
			Down:  func() error { return h.kill() }, // of the post of the case
			Leave: func() error { return h.leave() },
		},
	}
}

// TestBusConformanceAtASocket is the transport of unrelated processes, which
// look for a hub until there is one again.
func TestBusConformanceAtASocket(t *testing.T) {
	h := &seat{dir: filepath.Dir(socketPath(t))}
	bustest.Run(t, h.harness())
	bustest.RunFlawed(t, h.harness())
	if err := h.close(); err != nil {
		t.Error(err)
	}
}

// A hub that ends without delivering what it has is caught by the suite.
func TestAHubThatJustEndsIsCaught(t *testing.T) {
	h := &seat{dir: filepath.Dir(socketPath(t))}
	broken := h.harness()
	broken.Faults.Leave = func() error { return errors.Join(h.kill(), h.up()) }
	caught := false
	for tries := 0; !caught && tries < 20; tries++ { // a hub that has nothing left to deliver may be killed
		caught = bustest.Check(t.Context(), broken, "S21/a backend that leaves in order while another process publishes loses nothing") != nil
	}
	if !caught {
		t.Error("the suite sees no difference")
	}
	if err := h.close(); err != nil {
		t.Error(err)
	}
}
