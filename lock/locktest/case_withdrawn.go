package locktest

import (
	"errors"
	"slices"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// withdrawnCases are the cases of slots that are out of circulation, at the driver.
var withdrawnCases = []testCase{
	{rule: "P8", claim: "a withdrawn slot is granted to nobody until it is healed", run: withdrawnSlot},
	{rule: "P8", claim: "a pool with a withdrawn slot is not forgotten", fake: true, run: withdrawnSlotStays},
	{rule: "P8", claim: "waiters are refused when the last slot is withdrawn", run: withdrawnPool},
	{rule: "P8", claim: "waiters are refused when a shrink leaves withdrawn slots only", also: []string{"P9"}, run: shrunkToWithdrawn},
	{rule: "P8", claim: "strikes change by a handback only", run: strikesAreKept},
	{rule: "P8", claim: "a healed slot has no strikes", run: healClearsStrikes},
	{rule: "P8", claim: "Heal changes nothing where nothing rests or is withdrawn", run: healOfNothing},
}

func withdrawnSlot(e *env) {
	for slot := range 2 {
		p := &pool{e, e.driver(), e.key([]string{"first", "second"}[slot]), 2}
		p.cleaned()
		p.give(p.take(preferring(slot)), withdraw)
		p.is(slot, driver.SlotWithdrawn, withdraw.Reason)
		other := p.take(preferring(slot))
		e.Want(other.Slot != slot, "slot %d is withdrawn and was granted", slot)
		p.busy()
		next := p.member().wait()
		p.heal(slot)
		p.finds(next.gets(), slot, driver.LeftHealed)
	}
}

func withdrawnSlotStays(e *env) {
	p := e.pool(2).cleaned()
	p.give(p.take(), withdraw)
	time.Sleep(3 * driver.PoolMemory)
	p.is(0, driver.SlotWithdrawn, withdraw.Reason)
	g := p.take()
	p.finds(g, 1, "")
	p.give(g, clean)
	time.Sleep(3 * driver.PoolMemory)
	p.heal(0)
	p.finds(p.take(preferring(1)), 1, "")
	p.finds(p.take(), 0, driver.LeftHealed)
}

func withdrawnPool(e *env) {
	p := e.pool(2)
	a, b := p.take(), p.take()
	p.give(a, withdraw)
	var busy *driver.NotAcquiredError
	err := p.refused()
	e.Want(errors.As(err, &busy) && !busy.Withdrawn && len(busy.Holders) == 1, "the refusal while a slot is in use is %v", err)
	next := p.member().wait()
	p.give(b, withdraw)
	e.Await(next.done, "the waiter")
	for _, err := range []error{next.err, p.refused(), p.refused(waiting)} {
		var no *driver.NotAcquiredError
		e.Want(errors.As(err, &no) && no.Withdrawn && no.Code() == "lock.pool_withdrawn", "the refusal is %v", err)
	}
	e.Want(len(e.inspect(p, p.name).Waiters) == 0, "a refused waiter is still queued")
	p.heal(0)
	p.finds(p.take(), 0, driver.LeftHealed)
}

// shrunkToWithdrawn shrinks a pool, with a request that does not wait and with one
// that does, so that the slots that are left are withdrawn.
func shrunkToWithdrawn(e *env) {
	for name, opts := range map[string][]change{"try": nil, "wait": {waiting}} {
		p := &pool{e, e.driver(), e.key(name), 3}
		g := []driver.Grant{p.take(), p.take(), p.take()}
		p.give(g[0], withdraw)
		var all []*seated
		for range 3 { // of several processes
			all = append(all, p.member().wait())
		}
		small := p.member()
		small.size = 1
		err := small.refused(opts...)
		seen := time.Now()
		var late []time.Duration
		for _, s := range all {
			e.Await(s.done, "a waiter")
			late = append(late, s.when.Sub(seen))
			var no *driver.NotAcquiredError
			e.Want(errors.As(s.err, &no) && no.Code() == "lock.pool_withdrawn" && len(no.Holders) == 0, "the refusal of a waiter is %v", s.err)
		}
		var no *driver.NotAcquiredError
		e.Want(errors.As(err, &no) && no.Withdrawn && len(no.Holders) == 0, "the refusal of the %s is %v; the holders of numbers that are gone are not in the way", name, err)
		e.punctual(late)
		for _, held := range g[1:] {
			p.give(held, clean) // it stays held, with a number that is gone
		}
	}
}

func strikesAreKept(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		p.give(p.take(), &driver.Handback{Status: driver.SlotFree, Strikes: 2})
		lost := p.take(dying(e.Units(1)))
		e.Want(lost.Found.Strikes == 2, "the slot has %d strikes, want 2", lost.Found.Strikes)
		next := p.take(waiting)
		e.Want(next.Found.Strikes == 2, "a loss has changed the strikes to %d", next.Found.Strikes)
		p.give(next, clean)
		e.Want(p.take().Found.Strikes == 0, "the strikes of slot %d were not cleared", slot)
	})
}

func healClearsStrikes(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		p.give(p.take(), &driver.Handback{Status: driver.SlotWithdrawn, Reason: "no disk", Strikes: 3})
		e.Want(p.state(slot).Strikes == 3, "the slot is %+v", p.state(slot))
		p.heal(slot)
		g := p.take()
		p.finds(g, slot, driver.LeftHealed)
		e.Want(g.Found.Strikes == 0, "the healed slot has %d strikes", g.Found.Strikes)
	})
}

// healOfNothing heals slots that are held, clean, unknown or beyond the pool, and
// slots of a lock and of a free key.
func healOfNothing(e *env) {
	p := e.pool(3)
	held := p.take()
	second := p.take()
	p.give(second, &driver.Handback{Status: driver.SlotFree, Note: "warm", Strikes: 1})
	before := p.inspect(p, p.name).Slots
	for slot := range 5 {
		p.heal(slot)
	}
	after := p.inspect(p, p.name).Slots
	e.Want(slices.Equal(before, after), "the slots were %+v and are %+v", before, after)
	e.Must(e.renew(p, held).Err, "renew")
	p.finds(p.take(), 1, "")

	lock := e.grant(p, e.longRequest(e.key("lock")))
	for _, key := range []string{"lock", "free"} {
		other := &pool{e, p.Driver, e.key(key), 1}
		other.heal(0)
	}
	e.Must(e.renew(p, lock).Err, "renew the lock")
	free := e.inspect(p, e.key("free"))
	e.Want(len(free.Holders)+len(free.Slots) == 0, "the free key is %+v", free)
}
