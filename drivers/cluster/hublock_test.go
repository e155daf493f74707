//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// holdAndWait has a node hold "held" and wait for "wanted", which somebody else
// has, and returns how its wait ends.
func holdAndWait(t *testing.T, h *Hub, other *lock.Locker) (n *Node, p *Client, waited <-chan error) {
	t.Helper()
	n, p = join(t, h, Config{})
	_, err := n.Lock().Acquire(t.Context(), driver.Request{Key: "held", Token: "a", TTL: time.Hour, Slots: 1})
	must(t, err)
	wanted, err := other.Acquire(t.Context(), "wanted")
	must(t, err)
	t.Cleanup(func() { _ = wanted.Release() }) // or with its node
	ended := make(chan error, 1)
	go func() {
		_, err := n.Lock().Acquire(context.Background(), driver.Request{Key: "wanted", Token: "b", TTL: time.Hour, Slots: 1, Wait: -1})
		ended <- err
	}()
	eventually(t, "it to queue", func() bool { return len(stateIn(t, h, "wanted").Waiters) == 1 })
	return n, p, ended
}

func stateIn(t *testing.T, h *Hub, key string) driver.State {
	t.Helper()
	s, err := hub.Table(h).Inspect(key)
	must(t, err)
	return s
}

// The requests of a driver that is closed leave the queue, although its process stays
// connected; its leases stay (L8, L17).
func TestClosedDriverOfLocksLeavesTheQueue(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, _, waited := holdAndWait(t, h, lockerOf(t, h))
	eventually(t, "the answer that it is queued", func() bool {
		n.lock.mu.Lock()
		defer n.lock.mu.Unlock()
		return len(n.lock.asked) == 0
	})
	must(t, n.Lock().Close(t.Context()))
	if err := <-waited; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	eventually(t, "the end of its wait at the hub", func() bool { return len(stateIn(t, h, "wanted").Waiters) == 0 })
	if held := stateIn(t, h, "held").Holders; len(held) != 1 {
		t.Errorf("its lease is gone: %+v", held)
	}
}

// Whoever is cut off by its hub is not dead.
func TestAClientThatTheHubCutsOffKeepsItsLeases(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, p, waited := holdAndWait(t, h, lockerOf(t, h))
	hub.Line(p).End(errors.New("as asked"))
	<-p.Done()
	if held := stateIn(t, h, "held").Holders; len(held) != 1 {
		t.Errorf("its lease is gone: %+v", held)
	}
	if waiters := stateIn(t, h, "wanted").Waiters; len(waiters) != 0 {
		t.Errorf("it still waits: %+v", waiters)
	}
	<-n.Done()
	if err := <-waited; err == nil || errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("its wait ended with %v", err)
	}
	if _, err := n.Lock().Acquire(t.Context(), driver.Request{Key: "k", Token: "c", TTL: time.Hour, Slots: 1}); err == nil {
		t.Error("it has a lease of a hub that has cut it off")
	}
}

// A force waits until the hub knows all leases of the earlier one: it would miss some (L16).
func TestForceReleaseWaitsForTheLeasesOfAnEarlierHub(t *testing.T) {
	place, err := rendezvous.Open(socketPath(t))
	must(t, err)
	seat, err := place.Take()
	must(t, err)
	defer func() { _ = seat.Close() }()
	next, err := hub.Follow(hub.Config{}, seat, rendezvous.Record{}, false)
	must(t, err)
	defer func() { _ = next.Close(context.Background()) }()
	n, _ := join(t, next.Hub, Config{})
	type result struct {
		n   int
		err error
	}
	forced := make(chan result, 1)
	go func() {
		n, err := n.Lock().ForceRelease(context.WithoutCancel(t.Context()), "k", driver.Force{Reason: "as asked"})
		forced <- result{n, err}
	}()
	select {
	case r := <-forced:
		t.Fatalf("before the hub knows the leases: %d, %v", r.n, r.err)
	case <-time.After(3 * takeOver):
	}
	next.Grant()
	if r := <-forced; r.n != 0 || r.err != nil {
		t.Errorf("forced %d, %v", r.n, r.err)
	}
}

// A process that cuts off its hub, because of a frame that it does not understand, is
// not dead either: it keeps its lease while it comes back.
func TestAClientThatCutsOffItsHubKeepsItsLeases(t *testing.T) {
	p := openPost(t)
	n := meetAt(t, p.socket)
	g, err := n.Lock().Acquire(t.Context(), driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1})
	must(t, err)
	before := n.currentHub()
	client := hub.Clients(p.hub.Hub)[0]
	must(t, hub.Line(client).Send(protocol.Begin(protocol.LockRan))) // without a record
	<-client.Done()
	if held := stateIn(t, p.hub.Hub, "k").Holders; len(held) != 1 {
		t.Errorf("its lease is gone: %+v", held)
	}
	eventually(t, "the reconnect", func() bool { now := n.currentHub(); return now != nil && now != before })
	if err := n.Lock().Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
		t.Errorf("renew: %v", err)
	}
}

func TestANodeThatIsClosedLeavesItsLeasesToTheirTTL(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, p, waited := holdAndWait(t, h, lockerOf(t, h))
	must(t, n.Close(t.Context()))
	<-p.Done()
	if err := <-waited; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("its wait ended with %v", err)
	}
	if held := stateIn(t, h, "held").Holders; len(held) != 1 {
		t.Errorf("its lease is gone: %+v", held)
	}
	if waiters := stateIn(t, h, "wanted").Waiters; len(waiters) != 0 {
		t.Errorf("it still waits: %+v", waiters)
	}
	if err := n.Lock().Release(t.Context(), driver.Grant{Key: "held", Token: "a"}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a release afterwards said %v", err)
	}
}

// The reason of a force is any text, also the one with which a hub answers during
// a take-over.
func TestAReasonIsNotTakenForATakeOver(t *testing.T) {
	n, _ := join(t, newHub(t, HubConfig{}), Config{})
	g, err := n.Lock().Acquire(t.Context(), driver.Request{Key: "k", Token: "a", TTL: time.Hour, Slots: 1})
	must(t, err)
	forced, err := n.Lock().ForceRelease(t.Context(), "k", driver.Force{Reason: table.ErrShut.Error()})
	if forced != 1 || err != nil {
		t.Fatalf("forced %d, %v", forced, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if _, err := n.Lock().BeginRun(ctx, g, time.Minute, true); !errors.Is(err, driver.ErrLost) || ctx.Err() != nil {
		t.Errorf("a run under the forced lease: %v, want %v at once", err, driver.ErrLost)
	}
}

// lockerOf opens a Locker of its own on h. It is closed with the test.
func lockerOf(t *testing.T, h *Hub) *lock.Locker {
	t.Helper()
	conn, _ := pipeTo(t, h, t.Name())
	return memberAt(t, func() (net.Conn, error) { return conn, nil })
}

// Leases that expire without a release, as when nobody could reach the hub, do
// not pile up in the process.
func TestWhatNobodyReleasesIsForgotten(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, _ := join(t, h, Config{})
	for i := range 10 * firstSweep {
		name := strconv.Itoa(i)
		_, err := n.Lock().Acquire(t.Context(), driver.Request{Key: name, Token: name, TTL: time.Millisecond, Slots: 1})
		must(t, err)
		if i%firstSweep == 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
	n.Lock().mu.Lock()
	defer n.Lock().mu.Unlock()
	if left := len(n.Lock().claims); left > 4*firstSweep {
		t.Errorf("%d claims are left", left)
	}
}

// All processes know of a run before its own one does: the tick that it has spent stays
// spent, also if the hub and that process end within the run (O1, O3).
func TestRunIsKnownToAllProcessesFromItsBegin(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, _ := join(t, h, Config{})
	other, _ := join(t, h, Config{})
	g, err := n.Lock().Acquire(t.Context(), driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1})
	must(t, err)
	_, err = n.Lock().BeginRun(t.Context(), g, time.Hour, true)
	must(t, err)
	must(t, other.Ping(t.Context())) // the frames before the answer are read
	if runs := other.Lock().runs.Runs(); len(runs) != 1 || runs[0].Key != "k" {
		t.Errorf("another process knows the runs %+v", runs)
	}
}

// A hub passes a run that all clients report on once: the frames of a take-over do not
// multiply with the number of clients.
func TestARunThatAllReportIsPassedOnOnce(t *testing.T) {
	h := newHub(t, HubConfig{})
	record := &table.Record{Key: "k", Run: driver.Run{Every: time.Hour, Fence: 1, Start: time.Now(), End: time.Now(), Outcome: driver.Done}, Life: time.Hour}
	var clients []*rawClient
	for range 4 {
		c := newRawClient(t, h)
		c.join(t, 1, busdriver.Event, "x", "") // the hub has read its hello
		clients = append(clients, c)
	}
	got := 0
	for _, c := range clients[1:] {
		c.send(t, protocol.AddRecord(protocol.Begin(protocol.LockRun), record))
		c.send(t, protocol.Begin(protocol.TypeSync).Uint(1))
		c.read(t, func(typ protocol.Type, _ *protocol.Decoder) bool { return typ == protocol.TypeSynced })
	}
	clients[0].send(t, protocol.Begin(protocol.TypeSync).Uint(1))
	clients[0].read(t, func(typ protocol.Type, _ *protocol.Decoder) bool {
		if typ == protocol.LockRan {
			got++
		}
		return typ == protocol.TypeSynced
	})
	if got != 1 {
		t.Errorf("the record arrived %d times", got)
	}
}
