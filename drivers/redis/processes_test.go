package redis_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/subprocess"
	"github.com/megaframework/mega/lock"
)

// Holders and waiters as processes of their own, which are killed and stopped.

func holder(url, name string, ttl time.Duration) orders {
	return orders{Task: "hold", URL: url, Name: name, Key: "k", TTL: ttl}
}

// A holder that dies without releasing costs the next one its TTL and no more.
func TestKilledHolderCostsItsTTL(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second // two thirds are what a busy machine may take for a renewal
	s := redistest.Start(t, redistest.Options{})
	w := newWitness(t)
	l := member(t, s.URL())
	o := holder(s.URL(), "victim", ttl)
	o.History = w.path
	victim := spawn(t, o)
	first := victim.expect(subprocess.Holding, 20*time.Second)
	got := w.client("next", l).wait(t)
	time.Sleep(ttl) // its renewals go on: that it lives is what keeps the lock
	victim.Silent()
	must(t, victim.Kill())
	w.recorder.Gone("victim")
	killed := time.Now()
	next := leaseOf(t, got, ttl+slack)
	t.Logf("served %v after the kill, the TTL is %v", time.Since(killed), ttl)
	if next.Fence() <= first.Fence {
		t.Errorf("fence %d after %d", next.Fence(), first.Fence)
	}
	giveBack(t, next)
	w.verify(0)
	unused(t, l, "k")
}

// A waiter whose process is gone is passed over in the moment of its turn: the
// server sees the closed connection.
func TestWaiterKilledWhileWaitingCostsNothing(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	l, other := member(t, s.URL()), member(t, s.URL())
	held := take(t, l, "k")
	for _, c := range queueChildren(t, s, l, 3, 5*time.Second) {
		must(t, c.Kill())
	}
	got := wait(t, other, "k", lock.Wait(lock.Forever))
	released := time.Now()
	giveBack(t, held)
	g := receive(t, got, noWindow)
	t.Logf("served after %v", g.at.Sub(released))
	giveBack(t, g.lease)
	free(t, l, "k")
}

// queueChildren starts n children and returns them when all wait for the key. A test that
// strikes one before the next has started loses it on a busy machine: the server removes
// a waiter that has been silent for seconds.
func queueChildren(t *testing.T, s *redistest.Server, l *lock.Locker, n int, ttl time.Duration) (all []*child) {
	t.Helper()
	for i := range n {
		all = append(all, spawn(t, holder(s.URL(), fmt.Sprint("child", i), ttl)))
	}
	eventually(t, "the children to queue", func() bool {
		for _, c := range all {
			c.Silent()
		}
		return waiters(t, l, "k") == n
	})
	return all
}

// Waiters that stand still look alive to the server: however many there are,
// together they cost one grant window.
func TestStoppedWaitersTogetherCostOneWindow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	l, other := member(t, s.URL()), member(t, s.URL())
	held := take(t, l, "k", lock.TTL(time.Minute))
	for _, c := range queueChildren(t, s, l, 4, 5*time.Second) {
		must(t, c.Pause())
	}
	got := wait(t, other, "k", lock.Wait(lock.Forever))
	released := time.Now()
	giveBack(t, held)
	g := receive(t, got, grantWindow+slack)
	t.Logf("served after %v, the window is %v", g.at.Sub(released), grantWindow)
	giveBack(t, g.lease)
}

// The head of the queue dies between the grant and its hearing of it.
func TestWaiterKilledAtItsGrantCostsOneWindow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	l, other := member(t, s.URL()), member(t, s.URL())
	held := take(t, l, "k", lock.TTL(time.Minute))
	victim := queueChildren(t, s, l, 1, time.Minute)[0]
	must(t, victim.Pause())
	got := wait(t, other, "k", lock.Wait(lock.Forever))
	giveBack(t, held)
	released := time.Now()
	state := stateOfKey(t, l, "k")
	if len(state.Holders) != 1 || state.Holders[0].PID != victim.PID() {
		t.Fatalf("the key is held by %+v, want the victim, pid %d", state.Holders, victim.PID())
	}
	must(t, victim.Kill())
	g := receive(t, got, grantWindow+slack)
	t.Logf("served after %v, the window is %v", g.at.Sub(released), grantWindow)
	if g.lease.Fence() <= state.Holders[0].Fence {
		t.Errorf("fence %d after %d", g.lease.Fence(), state.Holders[0].Fence)
	}
	giveBack(t, g.lease)
	unused(t, l, "k")
}

// The head of the queue dies as soon as it has been told: by then it may have
// made the lease last for its TTL.
func TestWaiterKilledRightAfterItsGrantCostsItsTTL(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	s := redistest.Start(t, redistest.Options{})
	w := newWitness(t)
	l, other := member(t, s.URL()), member(t, s.URL())
	held := take(t, l, "k", lock.TTL(time.Minute))
	o := holder(s.URL(), "victim", ttl)
	o.History = w.path
	victim := spawn(t, o)
	eventually(t, "the child to queue", func() bool { return waiters(t, l, "k") == 1 })
	got := w.client("next", other).wait(t)
	giveBack(t, held)
	first := victim.expect(subprocess.Holding, 20*time.Second)
	must(t, victim.Kill())
	w.recorder.Gone("victim")
	killed := time.Now()
	next := leaseOf(t, got, max(ttl, grantWindow)+slack)
	t.Logf("served %v after the kill", time.Since(killed))
	if next.Fence() <= first.Fence {
		t.Errorf("fence %d after %d", next.Fence(), first.Fence)
	}
	giveBack(t, next)
	w.verify(0)
	unused(t, l, "k")
}

// A holder that is stopped for twice its TTL finds its lease ended before it
// can do anything else, and another had the lock meanwhile.
func TestStoppedHolderWakesUpWithoutItsLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	l := member(t, s.URL())
	for range suite.Scaled(3) {
		stopForTwiceTheTTL(t, s, l)
	}
	unused(t, l, "k")
}

func stopForTwiceTheTTL(t *testing.T, s *redistest.Server, l *lock.Locker) {
	t.Helper()
	const ttl = 2 * time.Second
	w := newWitness(t) // of one round: a long history takes too long to check
	o := holder(s.URL(), "sleeper", ttl)
	o.History = w.path
	sleeper := spawn(t, o)
	first := sleeper.expect(subprocess.Holding, 20*time.Second)
	got := w.client("next", l).wait(t)
	must(t, sleeper.Pause())
	stopped := time.Now()
	next := leaseOf(t, got, ttl+slack)
	if next.Fence() <= first.Fence {
		t.Errorf("fence %d after %d", next.Fence(), first.Fence)
	}
	time.Sleep(time.Until(stopped.Add(2 * ttl)))
	sleeper.Silent()
	must(t, sleeper.Continue())
	woke := sleeper.expect(subprocess.Lost, 20*time.Second) // and not broken
	if woke.Fence != first.Fence {
		t.Errorf("lost fence %d, held %d", woke.Fence, first.Fence)
	}
	sleeper.expect(subprocess.Finished, 10*time.Second)
	busy(t, l, "k") // its waking has disturbed nobody
	giveBack(t, next)
	if o := w.verify(0); o != 0 {
		t.Errorf("two holders for %v", o)
	}
}

// A stop that is shorter than the TTL costs nothing.
func TestHolderStoppedForLessThanItsTTLKeepsItsLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	l := member(t, s.URL())
	const ttl = 6 * time.Second
	holds := spawn(t, holder(s.URL(), "holder", ttl))
	holds.expect(subprocess.Holding, 20*time.Second)
	must(t, holds.Pause())
	time.Sleep(ttl / 3) // a renewal is due in it, and a third of the TTL is left
	must(t, holds.Continue())
	busy(t, l, "k")
	holds.Silent()
	holds.letGo()
	unused(t, l, "k")
}

// Several processes with several goroutines each increment a number that
// nothing protects but the lock.
func TestProcessesCountExactly(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint("fifo=", fifo), func(t *testing.T) {
			const processes, workers = 4, 8
			rounds := suite.Scaled(40)
			s := redistest.Start(t, redistest.Options{})
			path := filepath.Join(t.TempDir(), "number")
			must(t, os.WriteFile(path, []byte("0"), 0o600))
			var children []*child
			for i := range processes {
				children = append(children, spawn(t, orders{
					Task: "count", URL: s.URL(), Name: fmt.Sprint("p", i), Key: "k", TTL: 10 * time.Second,
					File: path, Workers: workers, Rounds: rounds, FIFO: fifo,
				}))
			}
			start := time.Now()
			for _, c := range children {
				c.expect(subprocess.Finished, time.Duration(suite.Scaled(60))*time.Second)
			}
			n, err := counted(path)
			must(t, err)
			if want := processes * workers * rounds; n != want {
				t.Errorf("counted to %d, want %d", n, want)
			}
			t.Logf("%d rounds took %v", n, time.Since(start))
			unused(t, member(t, s.URL()), "k")
		})
	}
}

const recordedTTL = 600 * time.Millisecond

// recorders starts processes that use one key in every way.
func recorders(t *testing.T, w *witness, o orders, processes int) (children []*child) {
	t.Helper()
	o.Task, o.Key, o.TTL, o.History = "record", "k", recordedTTL, w.path
	for i := range processes {
		o.Name = fmt.Sprint("p", i)
		children = append(children, spawn(t, o))
	}
	return children
}

func runRecorders(t *testing.T, w *witness, o orders, processes int) {
	t.Helper()
	waitRecorders(t, recorders(t, w, o, processes))
}

func waitRecorders(t *testing.T, children []*child) {
	t.Helper()
	for _, c := range children {
		c.expect(subprocess.Finished, 5*time.Minute)
	}
}

func TestHistoriesOfProcesses(t *testing.T) {
	t.Parallel()
	each, histories := rounds(25)
	for range histories {
		s := redistest.Start(t, redistest.Options{})
		w := newWitness(t)
		runRecorders(t, w, orders{URL: s.URL(), Workers: 2, Rounds: each}, 4)
		if o := w.verify(0); o != 0 {
			t.Errorf("two holders for %v", o)
		}
		unused(t, member(t, s.URL()), "k")
	}
}

// The same while some are killed and others stopped, and the server too.
func TestHistoriesOfProcessesUnderFaults(t *testing.T) {
	t.Parallel()
	each, histories := rounds(25)
	for range histories {
		s := redistest.Start(t, redistest.Options{Persistence: redistest.AOF})
		w := newWitness(t)
		children := recorders(t, w, orders{URL: s.URL(), Workers: 2, Rounds: each}, 4)
		time.Sleep(200 * time.Millisecond)
		must(t, children[0].Kill())
		w.recorder.Gone("p0")
		stopFor(t, children[1].Process.Process, time.Second)
		must(t, s.Kill())
		must(t, s.Restart())
		must(t, s.Pause())
		stopFor(t, children[2].Process.Process, 700*time.Millisecond)
		must(t, s.Continue())
		waitRecorders(t, children[1:])
		if o := w.verify(0); o != 0 {
			t.Errorf("two holders for %v", o)
		}
		free(t, member(t, s.URL()), "k")
	}
}

// The same while an operator takes the lock away again and again: a holder may
// believe in it until its next renewal, and a push tells it long before.
//
// Under FIFO every grant is the server's, and what it answered is checked too.
// Without, a process may pass on what it does not know that it has lost.
func TestHistoriesOfProcessesUnderForce(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint("fifo=", fifo), func(t *testing.T) {
			t.Parallel()
			each, histories := rounds(25)
			for range histories {
				underForce(t, orders{Workers: 2, Rounds: each, FIFO: fifo})
			}
		})
	}
}

func underForce(t *testing.T, o orders) {
	t.Helper()
	const period = recordedTTL / 3
	s := redistest.Start(t, redistest.Options{})
	w := newWitness(t)
	l := member(t, s.URL())
	o.URL = s.URL()
	taken := forceAgainAndAgain(t, w.client("operator", l), func() { runRecorders(t, w, o, 3) })
	check := w.believe
	if o.FIFO {
		check = w.verify
	}
	overlap := check(generous(period + slack))
	t.Logf("%d leases were taken away; two holders for %v at most, the renewal period is %v", taken, overlap, period)
	if taken == 0 {
		t.Error("nobody was ever forced")
	}
	if n := w.lostAcquires(); n > 0 {
		t.Errorf("%d acquires ended as lost: they had no lease to lose, and should have gone on waiting", n)
	}
	unused(t, l, "k")
}

// forceAgainAndAgain takes the lock away while fn runs, and returns how many
// leases that has ended.
func forceAgainAndAgain(t *testing.T, operator *client, fn func()) (taken int) {
	t.Helper()
	stop := repeat(func() {
		time.Sleep(time.Duration(20+pick(60)) * time.Millisecond) // operators are rare
		n, err := operator.ForceRelease(t.Context(), "k", "test")
		if err != nil {
			t.Error(err)
		}
		taken += n
	})
	fn()
	stop()
	return taken
}

// stopFor stops a process for a while, unless it is through already.
func stopFor(t *testing.T, p *redistest.Process, d time.Duration) {
	t.Helper()
	if err := p.Pause(); err != nil {
		select {
		case <-p.Done():
			return
		case <-time.After(generous(slack)):
			t.Fatal(err)
		}
	}
	time.Sleep(d)
	must(t, p.Continue())
}
