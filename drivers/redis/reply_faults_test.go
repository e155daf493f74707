package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// What happens on the way to the server, and what must hold then. In each test
// the member called remote is behind the proxy, and near is not.

// lossy are the faults in which the server executes a command and its client
// does not hear of it.
var lossy = map[string]func(*redistest.Proxy, redistest.Match) *redistest.Fault{
	"reply dropped":         (*redistest.Proxy).DropReply,
	"reset after execution": (*redistest.Proxy).ResetAfter,
}

// struck returns the fault's command once it has happened.
func struck(t *testing.T, f *redistest.Fault) redistest.Command {
	t.Helper()
	select {
	case <-f.Hit():
	case <-time.After(generous(5 * time.Second)):
		t.Fatal("the fault met no command")
	}
	return f.Command()
}

func TestAcquireWhoseReplyIsLostHoldsOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range lossy {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			f := fault(r.proxy, redistest.Named("acquire"))
			start := time.Now()
			lease := take(t, r.remote, "k", lock.TTL(5*time.Second))
			struck(t, f)
			if took := time.Since(start); timed && took > time.Second+slack { // a second copy that waits for the first takes the TTL
				t.Errorf("acquire took %v", took)
			}
			s := stateOfKey(t, r.near, "k")
			if len(s.Holders) != 1 || s.Holders[0].Fence != lease.Fence() || len(s.Waiters) != 0 {
				t.Errorf("the server has %+v, want the lease with fence %d alone", s, lease.Fence())
			}
			busy(t, r.near, "k")
			giveBack(t, lease)
			unused(t, r.near, "k")
			giveBack(t, take(t, r.near, "k"))
		})
	}
}

// The same for a request that has to queue: one place, one grant.
func TestQueuedAcquireWhoseReplyIsLostWaitsOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range lossy {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			held := take(t, r.near, "k")
			f := fault(r.proxy, redistest.Named("acquire"))
			got := wait(t, r.remote, "k", lock.Wait(lock.Forever))
			struck(t, f)
			if n := waiters(t, r.near, "k"); n != 1 {
				t.Errorf("%d wait, want 1", n)
			}
			giveBack(t, held)
			g := receive(t, got, 2*slack)
			giveBack(t, g.lease)
			unused(t, r.near, "k")
		})
	}
}

// A pool does not lose a slot to a reply that was lost.
func TestSlotWhoseReplyIsLostIsCountedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.proxy.DropReply(redistest.Named("acquire"))
	one := take(t, r.remote, "pool", lock.Slots(2))
	struck(t, f)
	two := take(t, r.near, "pool", lock.Slots(2))
	if one.Slot() == two.Slot() {
		t.Errorf("slot %d was given twice", one.Slot())
	}
	giveBack(t, one)
	giveBack(t, two)
	unused(t, r.near, "pool")
}

// What was granted without the caller's hearing of it, and cannot be asked
// about, is given back as soon as there is a way, long before its TTL.
func TestGrantWithoutAWaiterIsReleased(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.proxy.DropReply(redistest.Named("acquire"))
	go func() {
		<-f.Hit()
		r.proxy.Partition()
	}()
	start := time.Now()
	_, err := r.remote.TryAcquire(t.Context(), "k", lock.TTL(time.Minute))
	if !errors.Is(err, lock.ErrUnavailable) {
		t.Fatalf("TryAcquire = %v, want %v", err, lock.ErrUnavailable)
	}
	if took := time.Since(start); timed && took > time.Second+slack {
		t.Errorf("TryAcquire took %v", took)
	}
	busy(t, r.near, "k") // the grant is there
	got := wait(t, r.near, "k", lock.Wait(time.Minute))
	r.proxy.Heal()
	giveBack(t, receive(t, got, 5*time.Second).lease)
	unused(t, r.near, "k")
}

// A caller whose context ends while the reply is under way gets an error, and
// the lock is free again in the time of a round trip.
func TestCancelledAcquireLeavesNothing(t *testing.T) {
	r := newRig(t)
	f := r.proxy.HoldReply(redistest.Named("acquire"))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := r.remote.Acquire(ctx, "k", lock.TTL(time.Minute))
		failed <- err
	}()
	struck(t, f)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("acquire = %v, want %v", err, context.Canceled)
	}
	giveBack(t, take(t, r.near, "k", lock.Wait(2*time.Second)))
	f.Release()
	unused(t, r.near, "k")
}

func TestRenewalWhoseReplyIsLostLosesNothing(t *testing.T) {
	t.Parallel()
	for name, fault := range lossy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 4 * time.Second // a renewal, its lost reply and the next one take less than half
			r := newRig(t)
			lease := take(t, r.remote, "k", lock.TTL(ttl))
			for range 2 {
				struck(t, fault(r.proxy, renewals))
				before := lease.Deadline()
				eventually(t, "the next renewal", func() bool {
					soundDeadline(t, r.server, lease)
					return lease.Deadline().Sub(before) > ttl/10 || lease.Context().Err() != nil
				})
			}
			if err := lease.Context().Err(); err != nil {
				t.Errorf("the lease ended: %v", context.Cause(lease.Context()))
			}
			busy(t, r.near, "k")
			giveBack(t, lease)
			unused(t, r.near, "k")
		})
	}
}

// renewals are the commands that make a lease live longer.
func renewals(c redistest.Command) bool { return c.Name == "renew" || c.Name == "confirm" }

// soundDeadline checks that the server keeps the lease for longer than its
// holder believes in it.
func soundDeadline(t *testing.T, s *redistest.Server, lease *lock.Lease) {
	t.Helper()
	deadline := lease.Deadline() // first: it only moves forward
	v, err := s.Do("PTTL", "mega:{"+lease.Key()+"}")
	must(t, err)
	left, _ := v.(int64)
	expiry := time.Now().Add(time.Duration(left+1) * time.Millisecond) // at the latest
	if expiry.Before(deadline) && lease.Context().Err() == nil {
		t.Errorf("the holder is sure for %v longer than the server keeps the lease", deadline.Sub(expiry))
	}
}

// A renewal that is executed, and whose reply never comes, with everything
// that follows: the holder ends in time although the server has it for longer.
func TestRenewalThatNeverAnswersEndsTheLeaseInTime(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	r := newRig(t)
	w := newWitness(t)
	a, b := w.client("a", r.remote), w.client("b", r.near)
	held := a.take(t, lock.TTL(ttl))
	f := r.proxy.DropReply(renewals)
	struck(t, f)
	r.proxy.Hold(redistest.Replies)
	next := b.take(t, lock.Wait(lock.Forever))
	if cause := over(t, held.Lease); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("cause = %v, want %v", cause, lock.ErrLost)
	}
	r.proxy.Heal()
	_ = held.Release()
	giveBack(t, next)
	w.verify(0)
}

func TestReleaseWhoseReplyIsLostTouchesNoSuccessor(t *testing.T) {
	t.Parallel()
	for name, fault := range lossy {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			lease := take(t, r.remote, "k")
			got := wait(t, r.near, "k", lock.Wait(lock.Forever))
			f := fault(r.proxy, redistest.Named("release"))
			if err := lease.Release(); err != nil {
				t.Errorf("Release = %v, want nil: it was executed", err)
			}
			struck(t, f)
			next := receive(t, got, 2*slack).lease
			busy(t, r.remote, "k")
			must(t, answered(func() error { return next.Extend(t.Context(), 10*time.Second) }))
			if err := next.Context().Err(); err != nil {
				t.Errorf("the successor's lease ended: %v", context.Cause(next.Context()))
			}
			giveBack(t, next)
			unused(t, r.near, "k")
		})
	}
}

// A waiter that leaves and does not hear that it has left is not queued twice.
func TestLeavingTheQueueWithoutAReplyLeavesNoTrace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	held := take(t, r.near, "k")
	f := r.proxy.DropReply(redistest.Named("release"))
	_, err := r.remote.Acquire(t.Context(), "k", lock.Wait(300*time.Millisecond))
	struck(t, f)
	if !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("acquire = %v, want %v", err, lock.ErrNotAcquired)
	}
	eventually(t, "the queue to be empty", func() bool { return waiters(t, r.near, "k") == 0 })
	giveBack(t, held)
	unused(t, r.near, "k")
}

// The first copy of an acquire is held up for so long that the client has sent
// it again, has used the lock and has given it back. When it arrives at last it
// is refused.
func TestAcquireThatArrivesAfterItsReleaseIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.proxy.HoldRequest(redistest.Named("acquire"))
	lease := take(t, r.remote, "k", lock.TTL(time.Minute))
	struck(t, f)
	giveBack(t, lease)
	f.Release()
	notTaken(t, r)
	if _, err := f.Redeliver(); err != nil { // and once more
		t.Error(err)
	}
	notTaken(t, r)
}

// The same for a lease with a cooldown, when the rest is over.
func TestAcquireThatArrivesAfterItsCooldownIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.proxy.HoldRequest(redistest.Named("acquire"))
	lease := take(t, r.remote, "k", lock.TTL(time.Minute), lock.Cooldown(time.Second))
	struck(t, f)
	giveBack(t, lease)
	giveBack(t, take(t, r.near, "k", lock.Wait(5*time.Second)))
	f.Release()
	notTaken(t, r)
}

// The same for a call that does not wait, and whose second copy has found the lock
// busy.
func TestAcquireThatArrivesAfterItsRefusalIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	held := take(t, r.near, "k")
	f := r.proxy.HoldRequest(redistest.Named("acquire"))
	err := answered(func() error { // a repeated call is like the second copy
		_, err := r.remote.TryAcquire(t.Context(), "k", lock.TTL(time.Minute))
		return err
	})
	if !errors.Is(err, lock.ErrNotAcquired) {
		t.Fatalf("TryAcquire = %v, want %v", err, lock.ErrNotAcquired)
	}
	struck(t, f)
	giveBack(t, held)
	f.Release()
	notTaken(t, r)
}

// The caller does not wait for the withdrawal of that request when its context has
// ended.
func TestRefusedCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	held := take(t, r.near, "k")
	f := r.proxy.HoldRequest(redistest.Named("acquire"))
	w := r.proxy.HoldRequest(redistest.Named("release"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan error, 1)
	go func() {
		_, err := r.remote.TryAcquire(ctx, "k", lock.TTL(time.Minute))
		got <- err
	}()
	struck(t, f)
	struck(t, w)
	cleaned := r.proxy.Record(redistest.Named("release"))
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("TryAcquire = %v, want %v", err, context.Canceled)
	}
	w.Release()
	struck(t, cleaned)
	giveBack(t, held)
	notTaken(t, r)
	f.Release()
	notTaken(t, r)
}

// A late copy of a request is refused, too, for a caller that gave up.
func TestAcquireThatArrivesAfterItsCallerGaveUpIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.proxy.HoldRequest(redistest.Named("acquire"))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := r.remote.Acquire(ctx, "k", lock.TTL(time.Minute))
		failed <- err
	}()
	struck(t, f)
	cleaned := r.proxy.Record(redistest.Named("release"))
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("acquire = %v, want %v", err, context.Canceled)
	}
	struck(t, cleaned)
	soon(t, "the bar", func() bool { // the release has passed the proxy, and may not have arrived
		n, err := r.server.Do("HLEN", "mega:{k}:state")
		return err == nil && n.(int64) > 0
	})
	notTaken(t, r)
	f.Release()
	notTaken(t, r)
}

// notTaken checks for a while that the key is free.
func notTaken(t *testing.T, r *rig) {
	t.Helper()
	during(t, 100*time.Millisecond, "a late acquire has taken the key", func() bool {
		s, err := r.near.Inspect(t.Context(), "k")
		return err == nil && len(s.Holders) == 0 && len(s.Waiters) == 0
	})
}

// An old renewal or release that arrives once more does nothing to a
// successor, and nothing to the lease's own time.
func TestOldCallsThatArriveAgainDoNothing(t *testing.T) {
	r := newRig(t)
	lease := take(t, r.remote, "k", lock.TTL(3*time.Second))
	renewed := r.proxy.Record(renewals)
	struck(t, renewed)
	must(t, answered(func() error { return lease.Extend(t.Context(), time.Minute) }))
	if _, err := renewed.Redeliver(); err != nil {
		t.Error(err)
	}
	soundDeadline(t, r.server, lease) // the copy did not shorten it
	released := r.proxy.Record(redistest.Named("release"))
	giveBack(t, lease)
	next := take(t, r.near, "k")
	for _, old := range []*redistest.Fault{renewed, released} {
		if _, err := old.Redeliver(); err != nil {
			t.Error(err)
		}
	}
	busy(t, r.remote, "k")
	must(t, answered(func() error { return next.Extend(t.Context(), time.Minute) }))
	giveBack(t, next)
	unused(t, r.near, "k")
}

// The deadline is counted from when the request was sent, however long the
// reply was under way.
func TestDeadlineIsCountedFromSending(t *testing.T) {
	t.Parallel()
	const ttl, delay = 3 * time.Second, 200 * time.Millisecond
	r := newRig(t)
	r.proxy.Delay(redistest.Replies, delay)
	lease := take(t, r.remote, "k", lock.TTL(ttl))
	// Counted from the reply, it would be later by the delay.
	if left := time.Until(lease.Deadline()); left > ttl-driver.Margin(ttl)-delay {
		t.Errorf("the deadline is in %v, want %v at most after a reply that took %v", left, ttl-driver.Margin(ttl)-delay, delay)
	}
	soundDeadline(t, r.server, lease)
	during(t, ttl+ttl/2, "the lease ended although its renewals got through", func() bool {
		soundDeadline(t, r.server, lease)
		return lease.Context().Err() == nil
	})
	r.proxy.Heal()
	giveBack(t, lease)
}

// Whatever the way to the server does for longer than a TTL, with connections
// that stay open or break: the holder behind it ends before the next one
// begins, and afterwards everything works again.
func TestBrokenWayEndsLeasesInTime(t *testing.T) {
	t.Parallel()
	breaks := map[string]func(*redistest.Proxy){
		"requests are held back": func(p *redistest.Proxy) { p.Hold(redistest.Requests) },
		"replies are held back":  func(p *redistest.Proxy) { p.Hold(redistest.Replies) },
		"a partition":            func(p *redistest.Proxy) { p.Partition() },
		"replies are too slow":   func(p *redistest.Proxy) { p.Delay(redistest.Replies, 900*time.Millisecond) },
		"a partition and resets": func(p *redistest.Proxy) { p.Partition(); p.Reset() },
	}
	for name, breakWay := range breaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			brokenWay(t, r, r.remote, r.near, breakWay)
		})
	}
	t.Run("a partition, with the engine that polls", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		remote := memberOf(t, redis.Config{URL: r.proxy.URL(), Engine: redis.EngineRedislock})
		brokenWay(t, r, remote, r.near, breaks["a partition"])
	})
}

func brokenWay(t *testing.T, r *rig, remote, near *lock.Locker, breakWay func(*redistest.Proxy)) {
	t.Helper()
	const ttl = time.Second
	w := newWitness(t)
	a, b := w.client("a", remote), w.client("b", near)
	for range 2 {
		held := a.take(t, lock.TTL(ttl), lock.Wait(lock.Forever))
		breakWay(r.proxy)
		next := b.take(t, lock.Wait(lock.Forever))
		if cause := over(t, held.Lease); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("cause = %v, want %v", cause, lock.ErrLost)
		}
		r.proxy.Heal()
		_ = held.Release()
		giveBack(t, next)
	}
	if o := w.verify(0); o != 0 {
		t.Errorf("two holders for %v", o)
	}
	unused(t, near, "k")
}

// A waiter behind a partition is passed over when its turn comes, at the cost
// of one grant window, and gets the lock when there is a way again.
func TestPartitionedWaiterDelaysTheQueueByOneWindowAtMost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	held := take(t, r.near, "k")
	cut := wait(t, r.remote, "k", lock.Wait(lock.Forever))
	third := member(t, r.server.URL())
	behind := wait(t, third, "k", lock.Wait(lock.Forever))
	r.proxy.Partition()
	giveBack(t, held)
	start := time.Now()
	next := receive(t, behind, grantWindow+slack).lease
	t.Logf("the next one waited %v", time.Since(start))
	r.proxy.Heal()
	giveBack(t, next)
	giveBack(t, receive(t, cut, 5*time.Second).lease)
	unused(t, r.near, "k")
}

// A grant that is taken away before its waiter has heard of it was nobody's
// lease: the waiter goes on waiting.
func TestForceOfAGrantOnItsWayKeepsTheWaiter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	held := take(t, r.near, "k")
	got := wait(t, r.remote, "k", lock.Wait(lock.Forever))
	r.proxy.Hold(redistest.Replies)
	giveBack(t, held)
	if n, err := r.near.ForceRelease(t.Context(), "k", "test"); n != 1 || err != nil {
		t.Errorf("ForceRelease = %d, %v, want the grant that was pushed", n, err)
	}
	time.Sleep(grantWindow / 2) // by now its waiter has to ask before it enters
	r.proxy.Heal()
	g := receive(t, got, 5*time.Second)
	giveBack(t, g.lease)
	unused(t, r.near, "k")
}

// grantWindow is how long a pushed grant lives until its waiter has answered.
const grantWindow = 2 * time.Second

// Members on ways that lose, delay, reset and vanish at random: the histories
// agree with one lock, and no two ever believed at once.
func TestHistoriesUnderFaultsOnTheWay(t *testing.T) {
	t.Parallel()
	each, histories := rounds(30)
	for range histories {
		underWayFaults(t, each)
	}
}

func underWayFaults(t *testing.T, each int) {
	t.Helper()
	s := redistest.Start(t, redistest.Options{})
	w := newWitness(t)
	var clients []func()
	var ways []way
	for i := range 3 {
		p := redistest.StartProxy(t, s, namer())
		pipe := redistest.StartPipe(t, p.Addr())
		ways = append(ways, way{p, pipe})
		c := w.join(fmt.Sprint("c", i), redis.Config{URL: "redis://" + pipe.Addr()})
		clients = append(clients, func() { c.Use(t.Context(), "k", 600*time.Millisecond, each) })
	}
	stop := repeat(func() { troubleSome(t, ways) })
	together(clients...)
	stop()
	if o := w.verify(0); o != 0 {
		t.Errorf("two holders for %v", o)
	}
	unused(t, member(t, s.URL()), "k")
}

// way is a network between a client and the server: the client dials the pipe.
type way struct {
	*redistest.Proxy
	pipe *redistest.Pipe
}

// troubleSome does one thing to one way, and ends it after a while.
func troubleSome(t *testing.T, ways []way) {
	t.Helper()
	p := ways[pick(len(ways))]
	pause := time.Duration(20+pick(600)) * time.Millisecond
	any := func(redistest.Command) bool { return true }
	switch pick(8) {
	case 0:
		p.Partition()
	case 1:
		p.Hold(redistest.Direction(pick(2)))
	case 2:
		p.Delay(redistest.Direction(pick(2)), pause/4)
	case 3:
		p.Reset()
	case 4:
		defer p.DropReply(any).Cancel()
	case 5:
		defer p.ResetAfter(any).Cancel()
	case 6:
		p.pipe.Freeze()
	case 7:
		p.pipe.Stall(redistest.Direction(pick(2)))
	}
	select {
	case <-time.After(pause):
	case <-t.Context().Done():
	}
	p.Heal()
	p.pipe.Heal()
}
