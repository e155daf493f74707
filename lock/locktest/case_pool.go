package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var poolCases = []testCase{
	{rule: "L15", claim: "the newest request's size holds", run: newestSize},
	{rule: "L15", claim: "a grown pool serves its queue", run: grownPool},
	{rule: "L15", claim: "a shrunk pool drains", run: shrunkPool},
	{rule: "L15", claim: "a lock and a pool with one key exclude each other", run: lockAndPool},
	{rule: "L15", claim: "a different size is reported once with both values", run: resizeIsReported},
	{rule: "L15", claim: "different sizes are reported at most once a minute", fake: true, run: reportsAreRare},
	{rule: "L15", claim: "a call without a slot reports a different size, too", run: refusedResizeIsReported},
	{rule: "L15", claim: "slots survive resizing, cancellation and loss", run: permitsSurvive},
	{rule: "L15", claim: "the driver reports the earlier size of the pool", run: driverReportsSize},
	{rule: "L15", claim: "a pool that nobody uses has no size", run: unusedPoolHasNoSize},
	{rule: "L15", claim: "a pool whose leases have expired has no size", run: expiredPoolHasNoSize},
	{rule: "L15", claim: "the lowest free slot is granted first", run: lowestSlot},
}

func newestSize(e *env) {
	a, b := e.process(), e.process()
	one := a.acquire(e.key("pool"), lock.Slots(1))
	two := b.acquire(e.key("pool"), lock.Slots(2))
	b.busy(e.key("pool"), lock.Slots(2))
	three := a.acquire(e.key("pool"), lock.Slots(3))
	e.releases(one, two, three)
}

func grownPool(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	holder := a.acquire(e.key("pool"), lock.Slots(1))
	waiter := b.queue(e.key("pool"), "waiter", lock.Slots(1))
	newcomer := c.acquire(e.key("pool"), lock.Slots(3))
	got := waiter.lease()
	e.Want(got.Slot() != holder.Slot() && got.Slot() != newcomer.Slot(), "a slot was lent twice")
	e.releases(holder, got, newcomer)
}

func shrunkPool(e *env) {
	a, b := e.process(), e.process()
	large, small := lock.Slots(3), lock.Slots(1)
	held := []*lock.Lease{a.acquire(e.key("pool"), large), a.acquire(e.key("pool"), large), a.acquire(e.key("pool"), large)}
	next := b.queue(e.key("pool"), "next", small)
	for _, l := range held {
		e.live(l)
		e.Want(!next.over(), "a pool of one was lent while one of the larger pool was held")
		e.releases(l)
		if l != held[2] {
			e.Never(e.Units(0.5), "a pool of one was lent while one of the larger pool was held", next.over)
		}
	}
	got := next.lease()
	e.Want(got.Slot() == 0, "a pool of one has slot %d", got.Slot())
	b.busy(e.key("pool"), small)
	e.releases(got)
}

func lockAndPool(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	plain := a.acquire(e.key("k"))
	slot := b.acquire(e.key("k"), lock.Slots(2))
	e.Want(plain.Slot() == 0 && slot.Slot() == 1, "slots %d and %d, want 0 and 1", plain.Slot(), slot.Slot())
	next := c.queue(e.key("k"), "next")
	e.releases(plain)
	e.Never(e.Units(0.5), "the lock was granted while a slot of it was held", next.over)
	e.releases(slot)
	e.releases(next.lease())
	b.free(e.key("k"))
}

func resizeIsReported(e *env) {
	a, b := e.process(), e.process()
	keep := a.acquire(e.key("pool"), lock.Slots(4))
	for range 3 {
		e.releases(b.acquire(e.key("pool"), lock.Slots(6)))
		e.releases(a.acquire(e.key("pool"), lock.Slots(4)))
	}
	resized := eventsOf[lock.PoolResized](b)
	e.Want(len(resized) == 1, "reported %d times, want once: %+v", len(resized), resized)
	e.Want(resized[0] == lock.PoolResized{Key: e.key("pool"), Old: 4, New: 6}, "reported %+v", resized[0])
	e.releases(keep)
}

// reportsAreRare changes the size of a pool every second, each time to a new one.
func reportsAreRare(e *env) {
	p := e.process()
	keep := p.acquire(e.key("pool"), lock.Slots(2), lock.TTL(time.Hour))
	for i := range 150 {
		e.releases(p.acquire(e.key("pool"), lock.Slots(3+i)))
		e.Sleep(time.Second)
	}
	var sizes []int
	for _, r := range eventsOf[lock.PoolResized](p) {
		sizes = append(sizes, r.New)
	}
	e.Want(slices.Equal(sizes, []int{3, 63, 123}), "the new sizes %v were reported, want one a minute", sizes)
	e.releases(keep)
}

// refusedResizeIsReported shrinks pools by calls that get no slot. A driver that is
// no Asker has no answer for a call that shares a ticket and gives up.
func refusedResizeIsReported(e *env) {
	a, b := e.process(), e.process()
	calls := map[string][]lock.Option{
		"tried": nil, "waited": {lock.FIFO(), lock.Wait(e.Unit / 4)}, "cancelled-in-order": {lock.FIFO()},
	}
	if _, asks := b.opened.(driver.Asker); asks || !e.remote() {
		calls["late"], calls["cancelled"] = []lock.Option{lock.Wait(e.Unit / 4)}, nil
	}
	for name, opts := range calls {
		key := e.key(name)
		leases := []*lock.Lease{a.acquire(key, lock.Slots(2)), a.acquire(key, lock.Slots(2))}
		before := len(eventsOf[lock.PoolResized](b))
		var err error
		var want error = lock.ErrNotAcquired
		switch opts = append(opts, lock.Slots(1)); name {
		case "tried":
			_, err = b.TryAcquire(e.Ctx, key, opts...)
		case "cancelled", "cancelled-in-order":
			call := b.queue(key, name, opts...)
			call.cancel()
			err, want = call.refused(), context.Canceled
		default:
			_, err = b.Acquire(e.Ctx, key, opts...)
		}
		e.Want(errors.Is(err, want), "%s: %v, want %v", name, err, want)
		resized := eventsOf[lock.PoolResized](b)[before:]
		e.Want(len(resized) == 1 && resized[0] == lock.PoolResized{Key: key, Old: 2, New: 1}, "%s: reported %+v", name, resized)
		e.releases(leases...)
	}
}

// permitsSurvive uses a pool in all possible ways, and then checks that all
// slots are free.
func permitsSurvive(e *env) {
	processes := e.processes(3)
	const most = 6
	believed := newCrowd()
	e.All(9, func(i int) {
		for range suite.Scaled(8) {
			ctx, cancel := context.WithTimeout(e.Ctx, rand.N(e.Units(2))+e.Unit/4)
			lease, err := processes[i%3].Acquire(ctx, e.key("pool"), lock.Slots(2+rand.IntN(most-1)), e.ttl(1), lock.NoRenew())
			if err == nil {
				n := believed.join(lease)
				e.Want(n <= most, "%d are held of a pool that was never larger than %d", n, most)
				e.Sleep(rand.N(e.Units(1.5))) // longer than the TTL or the context of some
				believed.leave(lease)
				_ = lease.Release()
			}
			cancel()
		}
	})
	leases := make([]*lock.Lease, most)
	for i := range leases {
		leases[i] = processes[i%3].acquire(e.key("pool"), lock.Slots(most))
	}
	processes[0].busy(e.key("pool"), lock.Slots(most))
	e.releases(leases...)
}

// crowd counts the leases that are live for their holders at the same time.
type crowd struct {
	mu     sync.Mutex // guards leases
	leases map[*lock.Lease]bool
}

func newCrowd() *crowd { return &crowd{leases: make(map[*lock.Lease]bool)} }

// join adds l and returns the number of leases that are live now.
func (c *crowd) join(l *lock.Lease) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[l] = true
	for l := range c.leases {
		if l.Context().Err() == nil {
			n++
		}
	}
	return n
}

func (c *crowd) leave(l *lock.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, l)
}

func driverReportsSize(e *env) {
	d := e.driver()
	var grants []driver.Grant
	for i, size := range []int{3, 3, 5, 4} {
		r := e.longRequest(e.key("pool"))
		r.Slots = size
		g := e.grant(d, r)
		e.Want(g.Resized == []int{0, 0, 3, 5}[i], "grant %d reports the size %d", i, g.Resized)
		grants = append(grants, g)
	}
	s := e.inspect(d, e.key("pool"))
	e.Want(s.Size == 4 && len(s.Holders) == 4, "the pool is %+v", s)
	for _, g := range grants {
		e.Must(e.release(d, g), "release")
	}
}

// unusedPoolHasNoSize changes the size of pools with and without states of slots
// after their last release.
func unusedPoolHasNoSize(e *env) {
	d := e.driver()
	for name, records := range map[string]*driver.Pool{"plain": nil, "states": {Prefer: -1, Avoid: -1}} {
		for _, size := range []int{3, 2, 4} {
			r := e.longRequest(e.key(name))
			r.Slots, r.Pool = size, records
			g := e.grant(d, r)
			e.Want(g.Resized == 0, "a grant of an unused pool reports the size %d", g.Resized)
			if records != nil {
				g.Handback = clean
			}
			e.Must(e.release(d, g), "release")
		}
	}
}

// expiredPoolHasNoSize makes no call between the grants of a pool and their end.
func expiredPoolHasNoSize(e *env) {
	d := e.driver()
	for name, seat := range e.seats() {
		for range 2 {
			r := seat(3)
			r.TTL = e.Unit
			e.grant(d, r)
		}
		e.Pass(1.1)
		g := e.grant(d, seat(2))
		e.Want(g.Resized == 0, "%s: a grant of a pool whose leases have expired reports the size %d", name, g.Resized)
		e.Must(e.release(d, g), "release")
	}
}

func lowestSlot(e *env) {
	p := e.process()
	pool := lock.Slots(5)
	leases := make([]*lock.Lease, 5)
	for i := range leases {
		leases[i] = p.acquire(e.key("pool"), pool)
		e.Want(leases[i].Slot() == i, "lease %d has slot %d", i, leases[i].Slot())
	}
	for _, i := range []int{4, 1} {
		e.releases(leases[i])
	}
	for _, want := range []int{1, 4} {
		lease := p.acquire(e.key("pool"), pool)
		e.Want(lease.Slot() == want, "slot %d was lent, want %d", lease.Slot(), want)
		leases[want] = lease
	}
	e.releases(leases...)
}
