package locktest

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var exclusionCases = []testCase{
	{rule: "L1", claim: "many processes count one number exactly", run: countExactly},
	{rule: "L1", claim: "separately created lockers exclude each other", run: lockersMadeApart},
	{rule: "L1", claim: "a thousand goroutines of one process exclude each other", run: oneProcessCounts},
	{rule: "L1", claim: "a pool of n grants n slots", also: []string{"L15"}, run: poolLendsN},
	{rule: "L1", claim: "no slot is granted twice, also with misbehaving holders", also: []string{"L15"}, run: noSlotTwice},
	{rule: "L1", claim: "the driver holds a grant for its TTL and no longer", run: driverHoldsForTTL},
	{rule: "L1", claim: "an expired slot is granted again, once", also: []string{"L15"}, run: expiredSlotOnce},
}

// countExactly increments a number in three steps: read, work and write.
// Without exclusion some increments are lost.
func countExactly(e *env) {
	processes := e.processes(3)
	each := suite.Scaled(15)
	var number, inside atomic.Int64
	e.All(6, func(i int) {
		p := processes[i%len(processes)]
		for range each {
			e.Must(p.With(e.Ctx, e.key("n"), func(context.Context) error {
				e.Want(inside.Add(1) == 1, "two are inside at once")
				read := number.Load()
				e.Sleep(time.Millisecond)
				number.Store(read + 1)
				inside.Add(-1)
				return nil
			}), "with")
		}
	})
	e.Want(number.Load() == int64(6*each), "counted %d, want %d", number.Load(), 6*each)
}

func lockersMadeApart(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"))
	a.busy(e.key("k"))
	b.busy(e.key("k"))
	e.releases(lease)
	b.free(e.key("k"))
}

func oneProcessCounts(e *env) {
	p := e.process()
	n := min(suite.Scaled(1000), driver.MaxTickets)
	var number atomic.Int64
	e.All(n, func(int) {
		e.Must(p.With(e.Ctx, e.key("n"), func(context.Context) error {
			read := number.Load()
			number.Store(read + 1)
			return nil
		}), "with")
	})
	e.Want(number.Load() == int64(n), "counted %d, want %d", number.Load(), n)
}

func poolLendsN(e *env) {
	a, b := e.process(), e.process()
	key, pool := e.key("pool"), lock.Slots(3)
	leases := []*lock.Lease{a.acquire(key, pool), b.acquire(key, pool), a.acquire(key, pool)}
	var slots []int
	for _, l := range leases {
		slots = append(slots, l.Slot())
	}
	slices.Sort(slots)
	e.Want(slices.Equal(slots, []int{0, 1, 2}), "lent the slots %v, want 0, 1, 2", slots)
	a.busy(key, pool)
	b.busy(key, pool)
	e.releases(leases[1])
	again := b.acquire(key, pool)
	e.Want(again.Slot() == leases[1].Slot(), "slot %d was free, %d was lent", leases[1].Slot(), again.Slot())
	b.busy(key, pool)
	e.releases(leases[0], leases[2], again)
}

// tenure is the time in which a holder assumed to have a slot.
type tenure struct {
	slot     int
	from, to time.Time
}

// noSlotTwice releases leases, lets them expire and cancels calls. It checks
// that no slot had two holders at once.
func noSlotTwice(e *env) {
	const size = 3
	processes := e.processes(3)
	var mu sync.Mutex
	var tenures []tenure
	e.All(9, func(i int) {
		p := processes[i%len(processes)]
		for range suite.Scaled(6) {
			lease, err := p.Acquire(e.Ctx, e.key("pool"), lock.Slots(size), lock.NoRenew(), e.ttl(1))
			e.Must(err, "acquire")
			t := tenure{slot: lease.Slot(), from: time.Now()}
			e.Want(0 <= t.slot && t.slot < size, "slot %d of %d", t.slot, size)
			if rand.IntN(4) == 0 {
				t.to = lease.Deadline()
				e.ended(lease, e.Patience())
			} else {
				e.Sleep(rand.N(e.Unit / 8))
				if t.to = time.Now(); t.to.After(lease.Deadline()) { // on a busy machine
					t.to = lease.Deadline()
				}
			}
			_ = lease.Release()
			mu.Lock()
			tenures = append(tenures, t)
			mu.Unlock()
		}
	})
	slices.SortFunc(tenures, func(a, b tenure) int { return cmp.Or(a.slot-b.slot, a.from.Compare(b.from)) })
	for i, t := range tenures[1:] {
		before := tenures[i]
		e.Want(before.slot != t.slot || !t.from.Before(before.to), "slot %d was lent again %v before its holder was done", t.slot, before.to.Sub(t.from))
	}
	leases := make([]*lock.Lease, size)
	for i := range leases {
		leases[i] = processes[0].acquire(e.key("pool"), lock.Slots(size))
	}
	e.releases(leases...)
}

func driverHoldsForTTL(e *env) {
	for _, size := range e.sizes() {
		d, other := e.driver(), e.driver()
		next := e.lastOf(d, size)
		r := next
		r.TTL = e.Units(2)
		next.Token, next.Wait = token(), -1
		before := time.Now()
		g := e.grant(d, r)
		late := e.grant(other, next)
		took := time.Since(before)
		// The backend started to count before it replied.
		e.Want(took >= r.TTL-e.Unit/20, "granted again %v after a grant of %v", took, r.TTL)
		e.Want(took <= r.TTL+e.Patience()/2, "granted again only after %v", took)
		e.Is(e.release(d, g), driver.ErrLost, "release the abandoned grant")
		e.Must(e.release(other, late), "release")
	}
}

func expiredSlotOnce(e *env) {
	d := e.driver()
	r := e.request(e.key("pool"))
	r.Slots, r.NoRenew, r.TTL = 2, true, e.Units(1)
	old := e.grant(d, r)
	stays := e.request(r.Key)
	stays.Slots, stays.TTL = 2, e.Units(30)
	e.grant(d, stays)
	e.Soon("the slot has expired", func() bool { return len(e.inspect(d, r.Key).Holders) == 1 })
	again := stays
	again.Token = token()
	g := e.grant(d, again)
	e.Want(g.Slot == old.Slot, "slot %d had expired, %d was lent", old.Slot, g.Slot)
	again.Token = token()
	_, err := d.Acquire(e.Ctx, again)
	e.Is(err, driver.ErrNotAcquired, "a third grant of two")
	e.Is(e.release(d, old), driver.ErrLost, "the late release of the expired slot")
	_, err = d.Acquire(e.Ctx, again)
	e.Is(err, driver.ErrNotAcquired, "a third grant of two after the late release")
}
