package redis_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// What many waiters of one process cost the server, and this process
// afterwards.

// baseline is what a process has in use.
type baseline struct {
	heap       uint64
	goroutines int
}

// measure lets the collector finish first.
func measure() baseline {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return baseline{m.HeapAlloc, runtime.NumGoroutine()}
}

// returnsTo checks that what was in use has been given back.
func (b baseline) returnsTo(t *testing.T, allowed uint64) {
	t.Helper()
	eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= b.goroutines+2 })
	if now := measure(); now.heap > b.heap+allowed {
		t.Errorf("the heap has %d KiB, %d before, %d more are allowed", now.heap>>10, b.heap>>10, allowed>>10)
	} else {
		t.Logf("heap %d KiB, %d before; goroutines %d, %d before", now.heap>>10, b.heap>>10, now.goroutines, b.goroutines)
	}
}

func connections(t *testing.T, s *redistest.Server) int {
	t.Helper()
	list, err := s.Clients()
	must(t, err)
	return len(list)
}

// scripts is how many scripts the server has run since its counters were reset.
func scripts(t *testing.T, s *redistest.Server) int {
	t.Helper()
	calls, err := s.Commands()
	must(t, err)
	return calls["evalsha"] + calls["eval"]
}

// One process has many goroutines that wait for one key, another has it: the
// server sees one ticket, a few connections and, for the hand-overs, less than
// a script each.
func TestManyWaitersOfOneProcessAreOneTicket(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	holder, l := member(t, s.URL()), member(t, s.URL())
	n := min(suite.Scaled(2_000), 20_000) // a busy machine does not answer more in time, nor renew them
	// The first round is for what the runtime keeps: a goroutine's descriptor,
	// for example, is used again and never freed.
	manyWaiters(t, s, holder, l, n)
	before := measure()
	manyWaiters(t, s, holder, l, n)
	before.returnsTo(t, 1<<20)
}

func manyWaiters(t *testing.T, s *redistest.Server, holder, l *lock.Locker, n int) {
	t.Helper()
	held := take(t, holder, "k", lock.TTL(time.Minute))
	var granted atomic.Int64
	var inside atomic.Int32
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			err := l.With(t.Context(), "k", func(context.Context) error {
				if inside.Add(1) != 1 {
					t.Error("two holders")
				}
				granted.Add(1)
				inside.Add(-1)
				return nil
			}, lock.Wait(lock.Forever))
			if err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all to wait", func() bool { return l.Stats().Waiting == int64(n) && waiters(t, holder, "k") > 0 })
	ticket, err := s.Do("ZCARD", "mega:{k}:order")
	must(t, err)
	if ticket != int64(1) {
		t.Errorf("%d waiters of one process are %v tickets, want 1", n, ticket)
	}
	fewConnections(t, s)
	idleCosts(t, s)
	must(t, s.ResetCommands())
	start := time.Now()
	giveBack(t, held)
	all.Wait()
	took, used := time.Since(start), scripts(t, s)
	t.Logf("%d hand-overs took %v and %d scripts", n, took, used)
	if granted.Load() != int64(n) {
		t.Errorf("%d of %d were granted", granted.Load(), n)
	}
	if used > n+100 {
		t.Errorf("%d hand-overs cost %d scripts, want at most one each", n, used)
	}
	fewConnections(t, s)
	unused(t, holder, "k")
}

func fewConnections(t *testing.T, s *redistest.Server) {
	t.Helper()
	if c := connections(t, s); c > 2*maxConnections {
		t.Errorf("%d connections of two processes, want at most %d", c, 2*maxConnections)
	}
}

// maxConnections is how many connections a process may have.
const maxConnections = 5

// idleCosts checks what a second of waiting costs.
func idleCosts(t *testing.T, s *redistest.Server) {
	t.Helper()
	must(t, s.ResetCommands())
	time.Sleep(2 * time.Second) // there is nothing to wait for: that is the point
	// One process beats its ticket every 600 ms, another renews its lease.
	if used := scripts(t, s); timed && used > 10 {
		t.Errorf("waiting costs %d scripts in 2s, want at most 10", used)
	}
}

// Two processes, each with many waiters on one key, pass it to and fro: a few
// commands for each grant that crosses.
func TestHandOverBetweenProcessesCostsAFewCommands(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	lockers := []*lock.Locker{member(t, s.URL()), member(t, s.URL())}
	n := suite.Scaled(2000)
	must(t, s.ResetCommands())
	crowd(t, lockers, n, 1, func() { time.Sleep(time.Millisecond) })
	used := scripts(t, s)
	t.Logf("%d grants in two processes took %d scripts", n, used)
	if used > n {
		t.Errorf("%d grants cost %d scripts, want at most one each", n, used)
	}
}

// One process waits for many keys that another holds: still a few connections
// and one subscription, and nothing is left of it.
func TestManyKeysWaitedForShareTheirConnections(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	holder, l := member(t, s.URL()), member(t, s.URL())
	n := min(suite.Scaled(2_000), 20_000) // a busy machine does not answer more in time, nor renew them
	manyKeys(t, s, holder, l, n)
	before := measure()
	failed := manyKeys(t, s, holder, l, n)
	// On a busy machine some calls fail. The driver keeps what it knows of each
	// until its TTL has passed and a later call sweeps: its token may have been
	// granted.
	before.returnsTo(t, 2<<20+uint64(failed)*4<<10)
}

// manyKeys hands n keys from holder over to l. It returns how many calls have
// failed and were repeated.
func manyKeys(t *testing.T, s *redistest.Server, holder, l *lock.Locker, n int) int64 {
	t.Helper()
	var granted, failed atomic.Int64
	held := holdMany(t, holder, n, &failed)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			lease, err := patiently(t, l, fmt.Sprint("many", i), &failed, lock.Wait(lock.Forever))
			if err != nil {
				t.Error(err)
				return
			}
			granted.Add(1)
			if err := releasePatiently(lease, &failed); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all to wait", func() bool { return l.Stats().Waiting == int64(n) })
	fewConnections(t, s)
	if c := subscribed(t, s); c != 2 {
		t.Errorf("%d connections have subscribed, want 2", c)
	}
	start := time.Now()
	inTurns(n, func(i int) {
		if err := releasePatiently(held[i], &failed); err != nil {
			t.Error(err)
		}
	})
	all.Wait()
	t.Logf("%d keys were handed over in %v", n, time.Since(start))
	if granted.Load() != int64(n) {
		t.Errorf("%d of %d were granted", granted.Load(), n)
	}
	eventually(t, "the queues to be empty", func() bool {
		list, err := holder.List(t.Context(), "many")
		return err == nil && len(list) == 0
	})
	return failed.Load()
}

// patiently acquires key, and asks again when it took too long: of ten thousand
// calls at once some may not be answered within the second that a call has.
func patiently(t *testing.T, l *lock.Locker, key string, failed *atomic.Int64, opts ...lock.Option) (*lock.Lease, error) {
	t.Helper()
	for {
		lease, err := l.Acquire(t.Context(), key, opts...)
		if !errors.Is(err, lock.ErrUnavailable) {
			return lease, err
		}
		failed.Add(1)
	}
}

func releasePatiently(lease *lock.Lease, failed *atomic.Int64) error {
	for {
		if err := lease.Release(); !errors.Is(err, lock.ErrUnavailable) {
			return err
		}
		failed.Add(1)
	}
}

func holdMany(t *testing.T, l *lock.Locker, n int, failed *atomic.Int64) []*lock.Lease {
	t.Helper()
	held := make([]*lock.Lease, n)
	inTurns(n, func(i int) {
		lease, err := patiently(t, l, fmt.Sprint("many", i), failed, lock.TTL(time.Minute))
		if err != nil {
			t.Error(err)
			return
		}
		held[i] = lease
	})
	if t.Failed() {
		t.FailNow()
	}
	return held
}

// inTurns calls do for each number below n, 32 at a time. One after the other, each
// would wait until the machine has a processor for the server, and then for the test.
func inTurns(n int, do func(int)) {
	var workers []func()
	for w := range 32 {
		workers = append(workers, func() {
			for i := w; i < n; i += 32 {
				do(i)
			}
		})
	}
	together(workers...)
}

// L8: a process that waits for many keys asks for all of them again at once, when the
// server has lost its data: one answer after the other takes seconds on a slow network.
func TestManyTicketsAreQueuedAgainAtOnce(t *testing.T) {
	t.Parallel()
	const keys, delay = 60, 100 * time.Millisecond
	r := newRig(t)
	name := func(i int) string { return fmt.Sprint("k", i) }
	for i := range keys {
		defer take(t, r.near, name(i), lock.TTL(time.Minute)).Release() // it is lost
	}
	got := make(chan granted, keys)
	for i := range keys {
		go func() {
			lease, err := r.remote.Acquire(t.Context(), name(i), lock.Wait(time.Minute))
			got <- granted{lease, err, time.Now()}
		}()
	}
	for i := range keys {
		eventually(t, "the waiter to queue", func() bool { return waiters(t, r.near, name(i)) > 0 })
	}
	r.proxy.Delay(redistest.Requests, delay)
	must(t, r.server.FlushAll())
	end := time.Now().Add(keys * delay) // a machine may be slow, and one answer after the other takes longer
	var leases []*lock.Lease
	for range keys {
		leases = append(leases, receive(t, got, max(0, time.Until(end))).lease)
	}
	r.proxy.Heal()
	for _, lease := range leases {
		giveBack(t, lease)
	}
}
