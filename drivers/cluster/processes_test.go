//go:build linux || darwin

package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/internal/testkit/subprocess"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

// Holders and waiters as processes of their own, which are killed and stopped.

// memberAt opens a Locker of its own on the hub that dial reaches. It is closed with
// the test.
func memberAt(t *testing.T, dial func() (net.Conn, error)) *lock.Locker {
	t.Helper()
	conn, err := dial()
	must(t, err)
	l, err := openMember(t.Context(), Config{Conn: conn})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

func stateOf(t *testing.T, l *lock.Locker, key string) lock.State {
	t.Helper()
	s, err := answered(func() (lock.State, error) { return l.Inspect(t.Context(), key) })
	must(t, err)
	return s
}

func toHold(name string, ttl time.Duration) orders {
	return orders{Task: "hold", Name: name, Key: "k", TTL: ttl}
}

// waiting begins to wait for the key, and returns once it is queued behind n.
func waiting(t *testing.T, l *lock.Locker, key string, n int) <-chan *lock.Lease {
	t.Helper()
	got := make(chan *lock.Lease, 1)
	var queued atomic.Bool // from then on an outage does not end the call
	go func() {
		start := time.Now()
		lease, err := l.Acquire(context.WithoutCancel(t.Context()), key, lock.Wait(lock.Forever), lock.TTL(time.Minute))
		for !queued.Load() && unanswered(err, start) {
			start = time.Now()
			lease, err = l.Acquire(context.WithoutCancel(t.Context()), key, lock.Wait(lock.Forever), lock.TTL(time.Minute))
		}
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	eventually(t, "the call to queue", func() bool { return len(stateOf(t, l, key).Waiters) == n+1 })
	queued.Store(true)
	return got
}

func receive(t *testing.T, got <-chan *lock.Lease, bound time.Duration) *lock.Lease {
	t.Helper()
	select {
	case lease := <-got:
		if lease == nil {
			t.FailNow()
		}
		return lease
	case <-time.After(bound):
		t.Fatalf("the waiter got nothing within %v", bound)
	}
	panic("unreachable")
}

// The kernel tells of a death in two ways here: the child's output ends, which is
// the yardstick, and its connection.
func TestAKilledHolderIsFollowedWithinMilliseconds(t *testing.T) {
	h := newHub(t, HubConfig{})
	l := lockerOf(t, h)
	var after []time.Duration
	for i := range max(5, suite.Scaled(20)) {
		victim := spawn(t, h, toHold(fmt.Sprint("victim", i), time.Minute))
		first := victim.expect(subprocess.Holding)
		got := make(chan time.Time, 1)
		next := waiting(t, l, "k", 0)
		leases := make(chan *lock.Lease, 1)
		go func() { lease := <-next; got <- time.Now(); leases <- lease }()
		killed := time.Now()
		must(t, victim.Kill())
		victim.Ended()
		yardstick := time.Since(killed)
		lease := receive(t, leases, bound)
		after = append(after, (<-got).Sub(killed)-yardstick)
		if lease.Fence() <= first.Fence {
			t.Errorf("fence %d after %d", lease.Fence(), first.Fence)
		}
		must(t, lease.Release())
	}
	slices.Sort(after)
	// Without the end of its connection, each would be found out by its TTL or by a heartbeat.
	// On a busy machine some are late, so the quickest quarter counts.
	if quick := after[len(after)/4]; quick > 200*time.Millisecond {
		t.Errorf("the next one has the lock %v after the end of the holder's output, of %v", quick, after)
	}
}

func TestAllThatADeadProcessHadIsFree(t *testing.T) {
	h := newHub(t, HubConfig{})
	l := lockerOf(t, h)
	queued, err := l.Acquire(t.Context(), "k-queue")
	must(t, err)
	victim := spawn(t, h, orders{Task: "fork", Name: "victim", Key: "k", TTL: time.Hour})
	endForked(t, victim.expect(subprocess.Forked).PID)
	eventually(t, "it to queue", func() bool { return len(stateOf(t, l, "k-queue").Waiters) == 1 })
	if s := stateOf(t, l, "k-pool"); len(s.Holders) != 1 || s.Holders[0].PID != victim.PID() {
		t.Fatalf("the pool is held by %+v", s.Holders)
	}
	must(t, victim.Kill())
	// The process that it has started lives on, and keeps nothing.
	eventually(t, "the key to be free", func() bool { return len(stateOf(t, l, "k").Holders) == 0 })
	eventually(t, "the slot to be free", func() bool { return len(stateOf(t, l, "k-pool").Holders) == 0 })
	eventually(t, "the place in the queue to be free", func() bool { return len(stateOf(t, l, "k-queue").Waiters) == 0 })
	must(t, queued.Release())
	states, err := l.List(t.Context(), "")
	if err != nil || len(states) != 0 {
		t.Errorf("left: %+v, %v", states, err)
	}
}

// endForked has the child of a child not outlive the test, and checks that it is
// there until then.
func endForked(t *testing.T, pid int) {
	t.Helper()
	t.Cleanup(func() {
		p, err := os.FindProcess(pid)
		must(t, err)
		if err := p.Kill(); err != nil {
			t.Errorf("the process that the child had started was gone: %v", err)
		}
	})
}

// A holder that is stopped for longer than its TTL finds its lease ended before it
// can do anything else, and another had the lock meanwhile.
func TestAStoppedHolderWakesUpWithoutItsLease(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	h := newHub(t, HubConfig{})
	l := lockerOf(t, h)
	sleeper := spawn(t, h, toHold("sleeper", ttl))
	first := sleeper.expect(subprocess.Holding)
	next := waiting(t, l, "k", 0)
	must(t, sleeper.Pause())
	stopped := time.Now()
	lease := receive(t, next, bound)
	if took := time.Since(stopped); took > ttl+5*time.Second {
		t.Errorf("its TTL of %v has kept the lock for %v", ttl, took)
	}
	if lease.Fence() <= first.Fence {
		t.Errorf("fence %d after %d", lease.Fence(), first.Fence)
	}
	sleeper.Silent()
	must(t, sleeper.Continue())
	if woke := sleeper.expect(subprocess.Lost); woke.Fence != first.Fence { // and not broken
		t.Errorf("lost fence %d, held %d", woke.Fence, first.Fence)
	}
	sleeper.expect(subprocess.Finished)
	if s := stateOf(t, l, "k"); len(s.Holders) != 1 || s.Holders[0].Fence != lease.Fence() {
		t.Errorf("its waking has disturbed the next holder: %+v", s.Holders)
	}
	must(t, lease.Release())
}

func TestAHolderThatIsStoppedForLessThanItsTTLKeepsItsLease(t *testing.T) {
	t.Parallel()
	h := newHub(t, HubConfig{})
	l := lockerOf(t, h)
	holds := spawn(t, h, toHold("holder", 10*time.Second))
	holds.expect(subprocess.Holding)
	must(t, holds.Pause())
	if _, err := l.TryAcquire(t.Context(), "k"); err == nil {
		t.Error("its key was free while it was stopped")
	}
	must(t, holds.Continue())
	if _, err := l.TryAcquire(t.Context(), "k"); err == nil {
		t.Error("its key was free")
	}
	holds.Silent()
	must(t, holds.Stdin.Close())
	holds.expect(subprocess.Released)
	holds.expect(subprocess.Finished)
}

// A waiter that stands still when its turn comes costs the next one the window of
// a grant, whatever its TTL.
func TestAStoppedWaiterCostsOneWindow(t *testing.T) {
	t.Parallel()
	h := newHub(t, HubConfig{})
	l, other := lockerOf(t, h), lockerOf(t, h)
	held, err := l.Acquire(t.Context(), "k", lock.TTL(time.Minute))
	must(t, err)
	still := spawn(t, h, toHold("still", time.Hour))
	eventually(t, "it to queue", func() bool { return len(stateOf(t, l, "k").Waiters) == 1 })
	must(t, still.Pause())
	next := waiting(t, other, "k", 1)
	must(t, held.Release())
	lease := receive(t, next, 2*time.Second+5*time.Second)
	must(t, lease.Release())
	must(t, still.Continue()) // it asks again: its grant was lost before it came
	still.expect(subprocess.Holding)
}

// A process that does not read hurts nobody else, however much there is for it.
func TestAStoppedProcessHoldsUpNobody(t *testing.T) {
	h := newHub(t, HubConfig{})
	l := lockerOf(t, h)
	still := spawn(t, h, toHold("still", 2*time.Second))
	still.expect(subprocess.Holding)
	must(t, still.Pause())
	defer func() { must(t, still.Continue()) }()
	peer := hub.Clients(h)[1]
	start := time.Now()
	for i := range 20_000 { // more than a socket takes
		push(h, peer, fmt.Sprint("lost-", i))
		if i%1000 == 0 {
			lease, err := answered(func() (*lock.Lease, error) { return l.Acquire(t.Context(), "other") })
			must(t, err)
			must(t, lease.Release())
		}
	}
	if took := time.Since(start); took > bound {
		t.Errorf("it took %v", took)
	}
	if hub.Line(peer).Backlog() == 0 {
		t.Error("nothing waits for the process that stands still")
	}
}

// push has something lost that the peer never had.
func push(h *Hub, p *Client, token string) {
	lost := &driver.LostError{Cause: driver.Forced, Reason: strings.Repeat("why ", 50)}
	hub.PushLost(h, p, token, lost)
}

// A hub that stands still ends its clients' leases in time, before it could give
// them to others, and goes on where it was.
func TestAHubThatStandsStillEndsLeasesInTime(t *testing.T) {
	t.Parallel()
	hub, dial := hubChild(t)
	a, b := memberAt(t, dial), memberAt(t, dial)
	lease, err := answered(func() (*lock.Lease, error) { return a.Acquire(t.Context(), "k", lock.TTL(3*time.Second)) })
	must(t, err)
	next := waiting(t, b, "k", 0)
	must(t, hub.Pause()) // while the lease lives
	deadline := lease.Deadline()
	select {
	case <-lease.Context().Done():
	case <-time.After(bound):
		t.Fatal("the lease has not ended")
	}
	if late := time.Since(deadline); late > 5*time.Second {
		t.Errorf("it ended %v after its deadline", late)
	}
	select {
	case <-next:
		t.Error("somebody else has the lock of a hub that stands still")
	default:
	}
	must(t, hub.Continue())
	got := receive(t, next, bound)
	if got.Fence() <= lease.Fence() {
		t.Errorf("fence %d after %d", got.Fence(), lease.Fence())
	}
	must(t, got.Release())
}

func TestAHubThatStandsStillKeepsTheContract(t *testing.T) {
	hub, dial := hubChild(t)
	harness := newYard(dial).harness(locktest.Faults{Stop: hub.Pause, Continue: hub.Continue})
	for _, name := range []string{
		"L4/leases end in time while the backend is stopped",
		"L8/a call to a stopped backend ends within its bound, and is not busy",
	} {
		if err := locktest.Check(t.Context(), harness, name); err != nil {
			t.Error(err)
		}
	}
}

// witness records what clients see, and checks it at the end.
type witness struct {
	t        *testing.T
	path     string
	recorder *history.Recorder
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	w := &witness{t: t, path: t.TempDir() + "/history"}
	r, err := history.NewRecorder(w.path, "test")
	must(t, err)
	w.recorder = r
	t.Cleanup(func() { _ = r.Close() })
	return w
}

// kill kills a child of which it is known when it has done its last thing: the
// others may have what was its from then on.
func (w *witness) kill(c *child, operator *history.Client, key string) {
	w.t.Helper()
	must(w.t, c.Pause())
	done, boxes := operator.Forget(key), operator.Forget(history.BoxesOf(key)) // the hub frees them before their TTL
	w.recorder.Gone(c.Name)
	must(w.t, c.Kill())
	done()
	boxes()
}

// verify checks that no two clients were ever sure of the same lock, and that the
// answers are those of a server that does one thing at a time.
func (w *witness) verify() {
	w.t.Helper()
	h, err := history.Read(w.path)
	must(w.t, err)
	if len(h.Beliefs) == 0 {
		w.t.Error("nobody was ever granted anything")
	}
	if err := h.CheckServer(bound); err != nil {
		w.t.Errorf("server: %v", err)
	}
	if err := h.CheckBeliefs(0); err != nil {
		w.t.Errorf("beliefs: %v", err)
	}
	w.t.Logf("checked %d operations", len(h.Ops))
}

func TestHistoriesOfProcessesThatAreKilled(t *testing.T) {
	t.Parallel()
	for range max(1, suite.Scaled(2)) {
		h := newHub(t, HubConfig{})
		l := lockerOf(t, h)
		w := newWitness(t)
		operator := history.NewClient("operator", l, w.recorder)
		var children []*child
		const untilKilled = 1 << 20
		for i, rounds := range []int{untilKilled, untilKilled, 60, 15} { // the third is still at it when it is stopped
			children = append(children, spawn(t, h, orders{
				Task: "record", Name: fmt.Sprint("p", i), Key: "k", TTL: 400 * time.Millisecond, History: w.path, Workers: 1, Rounds: rounds,
			}))
		}
		for _, c := range children[:2] {
			time.Sleep(150 * time.Millisecond)
			w.kill(c, operator, "k")
		}
		must(t, children[2].Pause())
		time.Sleep(600 * time.Millisecond)
		must(t, children[2].Continue())
		for _, c := range children[2:] {
			c.Expect(subprocess.Finished, 5*time.Minute)
		}
		w.verify()
		if s := stateOf(t, l, "k"); len(s.Holders)+len(s.Waiters) != 0 {
			t.Errorf("left: %+v", s)
		}
	}
}
