package locktest

import (
	"errors"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// sizeCases are about how long the size of a pool is kept, and which request sets it.
var sizeCases = []testCase{
	{rule: "L15", claim: "the driver keeps the newest size when an earlier request is repeated", also: []string{"L7"}, run: earlierSizeAgain},
	{rule: "L15", claim: "the driver keeps the size as long as a slot is held or waited for", run: keptSize},
	{rule: "L15", claim: "a waiter that was silent does not set the size back when it returns", remote: true, also: []string{"L7"}, needs: []fault{"Partition"}, run: silentWaiterReturns},
	{rule: "L15", claim: "the newest size of a pool holds at the next backend", remote: true, also: []string{"L7"}, needs: []fault{"Leave"}, run: newestSizeOver(func(e *env) {
		e.Must(e.h.Faults.Leave(), "replace the backend")
	})},
	{rule: "L15", claim: "the newest size of a pool holds after a restart of the backend", remote: true, also: []string{"L7"}, needs: []fault{"Kill", "Restart", "Keeps"}, run: newestSizeOver(func(e *env) {
		e.Must(e.h.Faults.Kill(), "kill")
		e.Must(e.h.Faults.Restart(), "restart")
	})},
}

// seats returns requests for a slot of pools without and with states of slots, by the
// names of their keys.
func (e *env) seats() map[string]func(size int) driver.Request {
	all := make(map[string]func(size int) driver.Request)
	for name, records := range map[string]*driver.Pool{"plain": nil, "states": {Prefer: -1, Avoid: -1}} {
		if records != nil && !e.keeps("P1") {
			continue
		}
		all[name] = func(size int) driver.Request {
			r := e.longRequest(e.key(name))
			r.Slots, r.Pool = size, records
			return r
		}
	}
	return all
}

// earlierSizeAgain repeats the request of a holder after one for a smaller pool and
// after one for a larger pool, beside a waiter.
func earlierSizeAgain(e *env) {
	d, other := e.driver(), e.driver()
	for name, seat := range e.seats() {
		early := seat(3)
		held := []driver.Grant{e.grant(d, early), e.grant(d, seat(3))}
		full := func(r driver.Request) {
			ctx, cancel := e.Bounded()
			defer cancel()
			_, err := d.Acquire(ctx, r)
			e.Is(err, driver.ErrNotAcquired, "a request for a slot of %d", r.Slots)
		}
		full(seat(1))
		waiter := seat(1)
		waiter.Wait = -1
		waits := e.Async(func() {
			g, err := other.Acquire(e.Ctx, waiter)
			e.Must(err, "wait for a slot")
			e.Must(e.release(other, g), "release")
		})
		e.Soon("it waits", func() bool { return len(e.inspect(d, early.Key).Waiters) == 1 })
		for _, newest := range []int{1, 2} {
			full(seat(newest))
			again := e.grant(d, early)
			e.Want(again.Slot == held[0].Slot && again.Fence == held[0].Fence && again.Resized == 0, "%s: got %+v, and again %+v", name, held[0], again)
			s := e.inspect(d, early.Key)
			e.Want(s.Size == newest && len(s.Holders) == 2 && len(s.Waiters) == 1, "%s: after a request of an earlier size the pool is %+v, want a size of %d", name, s, newest)
		}
		for _, g := range held {
			e.Must(e.release(d, g), "release")
		}
		e.Await(waits, "the waiter is served")
	}
}

// keptSize leaves one slot of a pool held, each in turn, and then only a waiter for
// slots that rest.
func keptSize(e *env) {
	d := e.driver()
	for name, seat := range e.seats() {
		for kept := range 3 {
			var held driver.Grant
			var others []driver.Grant
			for range 3 {
				if g := e.grant(d, seat(3)); g.Slot == kept {
					held = g
				} else {
					others = append(others, g)
				}
			}
			for _, g := range others {
				e.Must(e.release(d, g), "release")
			}
			for _, size := range []int{3, 4} {
				g := e.grant(d, seat(size))
				e.Want(g.Resized == 3*(size-3), "%s: while slot %d of 3 is held, a request for one of %d reports the size %d", name, kept, size, g.Resized)
				e.Must(e.release(d, g), "release")
			}
			e.Must(e.release(d, held), "release")
		}
	}
	if !e.keeps("P1") || !e.keeps("L7") {
		return
	}
	p := e.pool(2)
	for _, g := range []driver.Grant{p.take(resting(time.Hour)), p.take(resting(time.Hour))} {
		p.give(g, nil)
	}
	waiter := p.wait(resting(time.Hour))
	p.size = 3
	busy, ok := errors.AsType[*driver.NotAcquiredError](p.refused(resting(time.Hour)))
	e.Want(ok && busy.Resized == 2, "a request for one of 3 slots reports %+v, want the size 2 of a waiter", busy)
	p.give(waiter.gets(), clean)
}

// silentWaiterReturns cuts off a waiter for longer than some backends keep its place,
// while another one keeps the queue in use.
func silentWaiterReturns(e *env) {
	d, cut, other := e.driver(), e.process(), e.process()
	seat := e.seats()["plain"]
	held := []driver.Grant{e.grant(d, seat(2)), e.grant(d, seat(2))}
	key := held[0].Key
	silent := cut.queue(key, "silent", lock.Slots(2), e.ttl(100))
	waiter := other.queue(key, "waiter", lock.Slots(2), e.ttl(100))
	waiting := func(n int) bool { return len(e.inspect(d, key).Waiters) == n }
	heal, err := e.h.Faults.Partition(cut.opened)
	e.Must(err, "partition")
	e.Comes(e.Units(4), func() bool { return waiting(1) })
	ctx, cancel := e.Bounded()
	defer cancel()
	_, err = d.Acquire(ctx, seat(1))
	e.Is(err, driver.ErrNotAcquired, "a request for a slot of 1")
	e.Must(heal(), "heal")
	e.Soon("both wait", func() bool { return waiting(2) })
	e.Want(e.inspect(d, key).Size == 1, "after the return of a waiter the pool is %+v, want a size of 1", e.inspect(d, key))
	e.Must(e.release(d, held[1]), "release")
	e.Want(len(e.inspect(d, key).Holders) == 1, "a slot of 1 was granted while 1 was held")
	e.Must(e.release(d, held[0]), "release")
	e.releases(silent.leaseWithin(2 * e.Patience()))
	e.releases(waiter.leaseWithin(2 * e.Patience()))
}

// newestSizeOver replaces the backend of pools whose holders, and waiters, have asked
// for different sizes.
func newestSizeOver(replace func(*env)) func(*env) {
	return func(e *env) {
		a, b, operator := e.process(), e.process(), e.process()
		slots := func(p *process, key string, n int) *lock.Lease {
			return p.acquire(e.key(key), lock.Slots(n), lock.TTL(time.Hour))
		}
		held := []*lock.Lease{slots(a, "held", 1), slots(b, "held", 4), slots(a, "held", 3)}
		wanted := []*lock.Lease{slots(a, "wanted", 1), slots(b, "wanted", 3), slots(b, "wanted", 3)}
		first := b.queue(e.key("wanted"), "first", lock.Slots(3), lock.TTL(time.Hour))
		second := a.queue(e.key("wanted"), "second", lock.Slots(2), lock.TTL(time.Hour))
		replace(e)
		for key, want := range map[string]lock.State{
			"held":   {Size: 3, Holders: make([]lock.Holding, 3)},
			"wanted": {Size: 2, Holders: make([]lock.Holding, 3), Waiters: make([]lock.Holder, 2)},
		} {
			var s lock.State
			e.Eventually(3*e.Patience(), "all are back", func() bool {
				var err error
				s, err = operator.Inspect(e.Ctx, e.key(key))
				return err == nil && len(s.Holders) == len(want.Holders) && len(s.Waiters) == len(want.Waiters)
			})
			e.Want(s.Size == want.Size, "the next backend has %+v, want a size of %d", s, want.Size)
		}
		e.releases(held...)
		e.releases(wanted[1])
		e.Want(!first.over() && !second.over(), "a slot of 2 was granted while 2 were held")
		e.releases(wanted[2])
		// After the gap a waiter that is late for its heartbeat loses its place (L7).
		next, last := first, second
		if !e.Comes(2*e.Patience(), func() bool {
			if second.over() {
				next, last = second, first
			}
			return next.over()
		}) {
			s, err := operator.Inspect(e.Ctx, e.key("wanted"))
			e.Fail("no waiter is served: %+v, %v", s, err)
		}
		e.releases(wanted[0], next.lease())
		e.releases(last.lease())
	}
}
