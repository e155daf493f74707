package locktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// slotCases are the cases of pools whose slots have states, at the driver.
var slotCases = []testCase{
	{rule: "P1", claim: "a slot has one holder at a time, whatever its state", run: oneHolderPerSlot},
	{rule: "P1", claim: "a slot of a holder without states is granted to nobody else", run: plainHolderKeepsItsSlot},
	{rule: "P1", claim: "a repeated request holds one slot, also when the slot that it prefers is free", also: []string{"L3"}, run: sameSlotAgain},
	{rule: "P3", claim: "a holder that has lost its slot changes nothing in it", run: loserChangesNothing},
	{rule: "P4", claim: "a slot that was not handed back is dirty and says whose it was", run: crashedSlotIsDirty},
	{rule: "P4", claim: "a repeated request gets the same record of its slot", run: sameRecordAgain},
	{rule: "P4", claim: "a release that is repeated after a restart of the backend does not clean the slot of a holder that has died", needs: []fault{"DropReply", "Crash", "Kill", "Restart"}, run: repeatedHandback(func(e *env) {
		e.Must(e.h.Faults.Kill(), "kill")
		e.Must(e.h.Faults.Restart(), "restart")
	})},
	{rule: "P4", claim: "a release that is repeated when the backend has left does not clean the slot of a holder that has died", needs: []fault{"DropReply", "Crash", "Leave"}, run: repeatedHandback(func(e *env) {
		e.Must(e.h.Faults.Leave(), "replace the backend")
	})},
	{rule: "P5", claim: "a slot that was handed back is clean and keeps its note", run: cleanHandback},
	{rule: "P5", claim: "a slot is clean although the reply to its release was lost", run: cleanDespiteLostReply, needs: []fault{"DropReply"}},
	{rule: "P5", claim: "a holder that has not touched its slot leaves it as it was", run: untouchedSlot},
	{rule: "P6", claim: "clean slots are granted before dirty ones", run: cleanBeforeDirty},
	{rule: "P6", claim: "a lost slot rests for its quarantine", run: lostSlotRests},
	{rule: "P6", claim: "a slot rests to the end of its quarantine in a pool that nobody uses", fake: true, run: idleSlotRests},
	{rule: "P6", claim: "a forced slot is dirty and rests", run: forcedSlotRests},
	{rule: "P6", claim: "a slot can be forced alone", run: oneSlotForced},
	{rule: "P7", claim: "a process gets the clean slot that it had last, else the lowest", run: preferredSlot},
	{rule: "P7", claim: "a slot to avoid is granted last", run: avoidedSlot},
	{rule: "P8", claim: "a pool is listed while a slot of it rests or is withdrawn", also: []string{"L23"}, run: idlePoolIsListed},
	{rule: "P9", claim: "a fixed size is refused with both values", run: fixedSize},
	{rule: "P9", claim: "a number that comes back after a shrink is dirty", run: numberComesBack},
	{rule: "P10", claim: "a slot of which nothing is known is dirty", run: unknownSlots},
	{rule: "P10", claim: "the slots of a pool that was idle for 60 s are dirty", fake: true, run: unknownAfterIdleness},
	{rule: "P10", claim: "slots are unknown after their data was lost", run: unknownAfterLoss, needs: []fault{"Flush"}},
	{rule: "P11", claim: "a waiter is served when a slot has rested", run: servedAfterRest},
	{rule: "P11", claim: "a waiter is served when a slot expires", run: servedWhenOneExpires},
	{rule: "P11", claim: "the waiters of several processes are served as slots expire", run: servedAtExpiry},
}

func oneHolderPerSlot(e *env) {
	p := e.pool(3).cleaned()
	held := map[int]bool{}
	for range 3 {
		g := p.take()
		e.Want(!held[g.Slot] && g.Slot < 3, "slot %d was granted twice or does not exist", g.Slot)
		held[g.Slot] = true
	}
	p.busy()
}

// plainHolderKeepsItsSlot asks for a slot with states beside holders that were
// granted theirs without.
func plainHolderKeepsItsSlot(e *env) {
	p := e.pool(3)
	plain := p.seat()
	plain.Pool = nil
	first, second := e.grant(p, plain), plain
	second.Token = token()
	next := e.grant(p, second)
	e.Want(first.Slot == 0 && next.Slot == 1, "the first holders have the slots %d and %d", first.Slot, next.Slot)
	p.finds(p.take(), 2, driver.LeftUnknown)
	p.is(0, driver.SlotHeld, "")
	p.is(1, driver.SlotHeld, "")
	p.busy()
	e.Must(e.renew(p, first).Err, "renew")
	p.give(first, nil)
	g := p.take()
	p.finds(g, 0, driver.LeftReleased)
}

func loserChangesNothing(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		old := p.take(dying(e.Units(1)))
		next := p.take(waiting)
		for _, old.Handback = range []*driver.Handback{clean, withdraw} {
			e.Is(e.release(p, old), driver.ErrLost, "the release of a lost slot")
			p.is(slot, driver.SlotHeld, "")
		}
		p.give(next, clean)
		e.Is(e.release(p, old), driver.ErrLost, "the release of a lost slot")
		p.finds(p.take(), slot, "")
	})
}

func crashedSlotIsDirty(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		p.give(p.take(), clean)
		p.take(dying(e.Units(1)), labelled("crashed"))
		g := p.take(waiting)
		p.finds(g, slot, driver.LeftExpired)
		e.Want(g.Found.Left.By.Label == "crashed" && !g.Found.Left.At.IsZero(), "it was left as %+v", g.Found.Left)
	})
}

// sameSlotAgain repeats the request of a slot while the slot that it prefers is
// free.
func sameSlotAgain(e *env) {
	for prefer := range 2 {
		p := &pool{e, e.driver(), e.key([]string{"first", "second"}[prefer]), 2}
		p.cleaned()
		other := p.take(preferring(prefer))
		r := p.seat(preferring(prefer))
		first := e.grant(p, r)
		p.give(other, clean)
		again := e.grant(p, r)
		e.Want(again.Slot == first.Slot && again.Fence == first.Fence && again.Slot != prefer, "got slot %d with fence %d, and then slot %d with %d", first.Slot, first.Fence, again.Slot, again.Fence)
		p.is(prefer, driver.SlotFree, "")
	}
}

func sameRecordAgain(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		r := p.seat()
		first, again := e.grant(p, r), e.grant(p, r)
		e.Want(first.Fence == again.Fence, "got fence %d and then %d", first.Fence, again.Fence)
		p.finds(first, slot, driver.LeftUnknown)
		p.finds(again, slot, driver.LeftUnknown)
	})
}

// repeatedHandback has the backend execute a release whose reply is lost, and grant
// the slot to a process that dies. Then another backend receives the release again.
func repeatedHandback(replace func(*env)) func(*env) {
	return func(e *env) {
		e.eachSlot(func(p *pool, slot int) {
			mortal, heir := p.member(), p.member()
			g := p.take()
			g.Handback = clean
			e.Must(e.h.Faults.DropReply(p.Driver, Release), "drop the reply")
			released := e.Async(func() {
				for ctx := e.Ctx; ; { // the front repeats it until it knows
					bounded, cancel := context.WithTimeout(ctx, e.Patience())
					err := p.Release(bounded, g)
					cancel()
					if err == nil || errors.Is(err, driver.ErrLost) || ctx.Err() != nil {
						return
					}
				}
			})
			mortal.finds(mortal.take(waiting, dying(e.Units(2))), slot, "")
			e.Must(e.h.Faults.Crash(mortal.Driver), "crash")
			replace(e)
			e.Await(released, "the release is answered")
			var next driver.Grant
			e.Eventually(2*e.Patience(), "the next holder has a slot", func() bool {
				ctx, cancel := e.Bounded()
				defer cancel()
				var err error
				next, err = heir.Acquire(ctx, heir.seat(waiting))
				return err == nil
			})
			e.Want(next.Slot == slot && next.Found.Left != nil, "slot %d is %+v, want slot %d, dirty", next.Slot, next.Found, slot)
		})
	}
}

func cleanHandback(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		p.bothWays(func(way string) {
			note := "a \"note\"\n" + way
			p.give(p.take(labelled("keeper")), &driver.Handback{Status: driver.SlotFree, Note: note, Strikes: 2})
			p.is(slot, driver.SlotFree, "")
			e.Want(p.state(slot).LastHolder.Label == "keeper", "the slot is %+v", p.state(slot))
			for range 2 { // of which the second one finds a slot that it has kept
				next := p.take(preferring(slot), labelled("next"))
				p.finds(next, slot, "")
				e.Want(next.Found.Note == note && next.Found.Strikes == 2, "the record is %+v", next.Found)
				e.Want(p.state(slot).Note == note && p.state(slot).LastHolder.Label == "next", "the slot is %+v", p.state(slot))
				p.give(next, &driver.Handback{Status: driver.SlotFree, Note: note, Strikes: 2})
			}
		})
	})
}

func cleanDespiteLostReply(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		g := p.take()
		g.Handback = clean
		e.Must(e.h.Faults.DropReply(p.Driver, Release), "drop the reply")
		ctx, cancel := context.WithTimeout(e.Ctx, driver.CallTimeout)
		defer cancel()
		if err := p.Release(ctx, g); err != nil { // the front repeats it until it knows
			_ = e.release(p, g)
		}
		p.finds(p.take(), slot, "")
	})
}

func untouchedSlot(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		p.give(p.take(labelled("last")), nil)
		g := p.take(resting(time.Hour))
		p.give(g, &driver.Handback{Status: driver.SlotDirty, Left: g.Found.Left})
		next := p.take()
		p.finds(next, slot, driver.LeftReleased)
		e.Want(next.Found.Left.By.Label == "last", "the slot was left by %+v", next.Found.Left.By)
		p.give(next, &driver.Handback{Status: driver.SlotFree, Note: "warm", Strikes: 1})
		p.give(p.take(), &driver.Handback{Status: driver.SlotDirty}) // after an unknown outcome, nobody knows how it was found
		last := p.take()
		p.finds(last, slot, driver.LeftUnknown)
		e.Want(last.Found.Note == "warm" && last.Found.Strikes == 1, "the slot has the note %q and %d strikes", last.Found.Note, last.Found.Strikes)
	})
}

func cleanBeforeDirty(e *env) {
	p := e.pool(3).cleaned()
	g := p.take()
	e.Want(g.Slot == 0, "got slot %d", g.Slot)
	p.give(g, nil)
	p.finds(p.take(), 1, "")
	p.finds(p.take(), 2, "")
	p.finds(p.take(), 0, driver.LeftReleased)
}

func lostSlotRests(e *env) {
	rest := resting(e.Units(4))
	e.eachSlot(func(p *pool, slot int) {
		lost := p.take(rest)
		before := time.Now()
		p.give(lost, nil)
		p.is(slot, driver.SlotResting, driver.LeftReleased)
		// The clocks of the backend and of this process may differ a little.
		until := p.state(slot).Until.Sub(before)
		e.Want(until >= e.Units(4)-e.Unit/20 && until <= e.Units(4)+e.Patience(), "the state has a rest of %v, want %v", until, e.Units(4))
		p.busy(rest)
		g := p.take(rest, waiting)
		p.finds(g, slot, driver.LeftReleased)
		rested := time.Since(before)
		e.Want(rested >= e.Units(3.9), "slot %d was granted after %v", slot, rested)
	})
}

// idleSlotRests has a quarantine that is longer than an idle pool is remembered.
func idleSlotRests(e *env) {
	rest := resting(3 * driver.PoolMemory)
	e.eachSlot(func(p *pool, slot int) {
		p.give(p.take(rest), nil)
		for range slot { // the pool is idle
			held := p.inspect(p, p.name).Holders
			_, err := p.ForceRelease(e.Ctx, p.name, driver.Force{BySlot: true, Slot: held[0].Slot, Reason: "test"})
			p.Must(err, "force")
		}
		time.Sleep(3*driver.PoolMemory - time.Second)
		p.is(slot, driver.SlotResting, driver.LeftReleased)
		p.busy(rest)
		time.Sleep(2 * time.Second)
		p.finds(p.take(rest, preferring(slot), avoidingFirst), slot, driver.LeftReleased)
	})
}

func forcedSlotRests(e *env) {
	rest := resting(e.Units(100))
	e.eachSlot(func(p *pool, slot int) {
		p.take(rest, labelled("forced"))
		ctx, cancel := e.Bounded()
		defer cancel()
		n, err := p.ForceRelease(ctx, p.name, driver.Force{Reason: "it hangs", By: driver.Holder{Host: "ops"}})
		e.Must(err, "force")
		e.Want(n == p.size, "%d slots were forced", n)
		p.is(slot, driver.SlotResting, driver.LeftForced)
		e.Want(p.state(slot).LastHolder.Label == "forced", "the slot is %+v", p.state(slot))
		p.busy(rest)
		p.heal(slot)
		p.finds(p.take(rest), slot, driver.LeftHealed)
	})
}

func oneSlotForced(e *env) {
	p := e.pool(2)
	slots := []driver.Grant{p.take(), p.take()}
	ctx, cancel := e.Bounded()
	defer cancel()
	for _, want := range []int{1, 0} {
		n, err := p.operator().ForceRelease(ctx, p.name, driver.Force{BySlot: true, Slot: 1, Reason: "it hangs", By: driver.Holder{Host: "ops"}})
		e.Must(err, "force")
		e.Want(n == want, "%d slots were forced, want %d", n, want)
	}
	e.Must(e.renew(p, slots[0]).Err, "renew the other slot")
	var lost *driver.LostError
	e.Want(errors.As(e.renew(p, slots[1]).Err, &lost) && lost.Cause == driver.Forced, "the forced slot: %v", lost)
	p.finds(p.take(), 1, driver.LeftForced)
}

func preferredSlot(e *env) {
	p := e.pool(4)
	p.bothWays(func(string) {
		p.cleaned()
		all := []driver.Grant{p.take(preferring(2)), p.take(preferring(2)), p.take(preferring(3))}
		p.finds(all[0], 2, "")
		p.finds(all[1], 0, "") // slot 2 is held
		p.finds(all[2], 3, "")
		p.give(all[2], nil)
		all[2] = p.take(preferring(3))
		p.finds(all[2], 1, "") // slot 3 is dirty
		for _, g := range all {
			p.give(g, clean)
		}
	})
}

func avoidedSlot(e *env) {
	p := e.pool(2).cleaned()
	p.finds(p.take(avoidingFirst, preferring(0)), 1, "")
	p.finds(p.take(avoidingFirst), 0, "")

	only := &pool{e, e.driver(), e.key("only"), 1}
	only.finds(only.take(avoidingFirst), 0, driver.LeftUnknown)

	fresh := &pool{e, e.driver(), e.key("fresh"), 4}
	for _, want := range []int{1, 2, 3, 0} { // nothing is known of the slots
		g := fresh.take(avoidingFirst)
		if want != 0 {
			fresh.is(0, driver.SlotDirty, driver.LeftUnknown)
		}
		e.Want(g.Slot == want, "slot %d was granted, want %d", g.Slot, want)
	}
}

func idlePoolIsListed(e *env) {
	p := e.pool(3).cleaned()
	operator := p.member()
	e.Want(operator.listed() == driver.Tally{Size: 3, Free: 3}, "after its first use the pool is listed as %+v", operator.listed())
	p.give(p.take(preferring(1)), withdraw)
	p.give(p.take(preferring(2), resting(e.Units(1000))), nil)
	want := driver.Tally{Size: 3, Free: 1, Resting: 1, Withdrawn: 1}
	e.Want(operator.listed() == want, "the pool is listed as %+v, want %+v", operator.listed(), want)
	p.give(p.take(), withdraw)
	p.heal(2)
	want = driver.Tally{Size: 3, Dirty: 1, Withdrawn: 2}
	e.Want(operator.listed() == want, "the pool is listed as %+v, want %+v", operator.listed(), want)
	g := p.take()
	want = driver.Tally{Size: 3, Held: 1, Withdrawn: 2}
	e.Want(operator.listed() == want, "the pool is listed as %+v, want %+v", operator.listed(), want)
	p.give(g, clean)
}

func fixedSize(e *env) {
	p := e.pool(3)
	g := p.take(fixed)
	for _, size := range []int{2, 5} {
		p.size = size
		var other *driver.PoolSizeError
		err := p.refused(fixed)
		e.Want(errors.As(err, &other) && other.Size == 3 && other.Asked == size, "the refusal is %v", err)
		e.Is(err, driver.ErrPoolSize, "the refusal")
	}
	e.Want(e.inspect(p, p.name).Size == 3, "a refused request has changed the size")
	p.give(g, clean)
	p.give(p.take(fixed), clean) // of 5: the pool is not in use
}

func numberComesBack(e *env) {
	p := e.pool(4).cleaned()
	last, second := p.take(preferring(3)), p.take(preferring(1))
	p.size = 1
	p.busy()
	p.give(last, clean)
	p.busy()
	p.give(second, clean)
	e.Want(len(p.inspect(p, p.name).Slots) == 1, "the pool of one has the slots %+v", p.inspect(p, p.name).Slots)
	g := p.take()
	p.finds(g, 0, "")
	p.give(g, clean)
	p.size = 4
	p.finds(p.take(), 0, "")
	for slot := range 3 {
		p.finds(p.take(), slot+1, driver.LeftShrunk)
	}
}

func unknownSlots(e *env) {
	p := e.pool(3)
	for slot := range 3 {
		g := p.take()
		p.finds(g, slot, driver.LeftUnknown)
		for i := slot + 1; i < 3; i++ {
			p.is(i, driver.SlotDirty, driver.LeftUnknown)
		}
		e.Want(g.Found.Left.By == driver.Holder{} && g.Found.Note == "" && g.Found.Strikes == 0, "the record is %+v", g.Found)
	}
}

// unknownAfterIdleness leaves a clean pool idle for nearly 60 s, and then for
// longer.
func unknownAfterIdleness(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		if slot > 0 { // the slots below it are held
			p = &pool{e, p.Driver, e.key("idle"), 2}
		}
		p.cleaned()
		e.Sleep(59 * time.Second)
		g := p.take(preferring(slot))
		p.finds(g, slot, "")
		p.give(g, clean)
		e.Sleep(time.Minute)
		for i := range p.size {
			p.finds(p.take(preferring(i)), i, driver.LeftUnknown)
		}
	})
}

func unknownAfterLoss(e *env) {
	e.eachSlot(func(p *pool, slot int) {
		p.give(p.take(), clean)
		g := p.take()
		p.finds(g, slot, "")
		e.Must(e.h.Faults.Flush(), "flush")
		g.Handback = clean
		_ = e.release(p, g) // a lease that the backend no longer has cleans nothing
		for i := range p.size {
			p.finds(p.take(), i, driver.LeftUnknown)
		}
	})
}

// servedAfterRest has a slot rest while another process waits for it.
func servedAfterRest(e *env) {
	rest := e.Units(2)
	e.eachSlot(func(p *pool, _ int) {
		other := p.member()
		var late []time.Duration
		for range 3 {
			g := p.take(resting(rest), waiting)
			next := other.wait(resting(rest))
			before := time.Now()
			p.give(g, nil)
			seen := time.Now()
			granted := next.gets()
			e.Want(next.when.Sub(before) >= rest-e.Unit/10, "a slot was granted %v after its loss", next.when.Sub(before))
			late = append(late, next.when.Sub(seen)-rest)
			other.give(granted, clean)
		}
		e.punctual(late)
	})
}

// servedWhenOneExpires has one process wait for the slots of several pools, whose
// heartbeats alone are too rare. The slots expire at instants that are spread over
// the time between two heartbeats, so that most of them are far from the next one.
func servedWhenOneExpires(e *env) {
	const n = 5
	e.eachSlot(func(p *pool, slot int) {
		other := e.driver()
		var ends []time.Time
		var all []*seated
		for i := range n {
			at := &pool{e, p.Driver, fmt.Sprintf("%s-%d", p.name, i), p.size}
			for range slot {
				at.take()
			}
			ttl := e.Units(3) + time.Duration(i)*e.h.Repair/n
			at.take(dying(ttl), waiting)
			ends = append(ends, time.Now().Add(ttl))
			all = append(all, (&pool{e, other, at.name, at.size}).wait())
		}
		var late []time.Duration
		for i, s := range all {
			s.give(s.gets(), clean)
			late = append(late, s.when.Sub(ends[i]))
		}
		e.punctual(late)
	})
}

// servedAtExpiry has the slots of a pool expire one after the other, each for the
// waiter of another process.
func servedAtExpiry(e *env) {
	const n = 5
	p := e.pool(n)
	var ends []time.Time
	for i := range n {
		ttl := e.Units(4 + 0.4*float64(i))
		p.take(dying(ttl))
		ends = append(ends, time.Now().Add(ttl))
	}
	var all []*seated
	for range n {
		all = append(all, p.member().wait())
	}
	var late []time.Duration
	for i, s := range all {
		s.gets()
		late = append(late, s.when.Sub(ends[i]))
	}
	e.punctual(late)
}
