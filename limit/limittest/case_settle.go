package limittest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/limit"
)

var settleCases = []testCase{
	{rule: "W7", claim: "returned units can be had at once, and once", run: returnedOnce},
	{rule: "W7", claim: "returned units belong to their own window", run: ownWindow},
	{rule: "W7", claim: "units of a past window are not returned to a later grant after a restart", run: pastWindow, needs: []fault{"Restart"}},
	{rule: "W7", claim: "after a step back, returned units belong to their own grant", run: returnedAfterStepBack, needs: []fault{"StepClock"}},
	{rule: "W7", claim: "after a step back, units of a grant that is forgotten are not returned to a later one", run: forgottenGrant, needs: []fault{"StepClock"}},
	{rule: "W7", claim: "a debt delays later grants", run: debt},
	{rule: "W7", claim: "units are conserved when many settle", run: conserved},
	{rule: "W7", claim: "dead tickets cost two seconds together", run: deadTickets},
	{rule: "W7", claim: "waiters that give up delay nobody", run: givenUp},
	{rule: "W7", claim: "a waiter that gives up leaves its place to the next one", run: inherited},
	{rule: "W7", claim: "a waiter that gives up returns a grant that it has not seen", run: unseenGrant},
	{rule: "W7", claim: "a cancelled permit is free for another process", run: cancelledPermit},
}

func returnedOnce(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(10, 30)
	a := p.wait(key, limitOf(rate), limit.Cost(8))
	p.granted(key, 2, rate)
	for range 2 {
		e.Must(a.Settle(e.Ctx, 3), "Settle")
	}
	e.Want(p.used(key, rate)[0] == 5, "%v units are used, want 5", p.used(key, rate))
	p.granted(key, 5, rate)
	p.refused(key, 0, 30, 1, rate)
}

func ownWindow(e *env) {
	p, rate := e.process(), e.per(4, 1)
	for try := range 10 { // a slow machine may not look before the second grant leaves
		key := e.key(fmt.Sprint(try))
		first := p.granted(key, 2, rate)
		e.Pass(0.5)
		second := time.Now()
		p.granted(key, 2, rate)
		e.Pass(0.6) // the first grant has left the window
		p.giveBack(key, first.At, 2, rate)
		used := p.used(key, rate)[0]
		if time.Since(second) < rate.Per-rate.Per/1000 {
			e.Want(used == 2, "%d units are used after the settlement of an old grant, want the 2 of a younger one", used)
			return
		}
	}
}

// pastWindow settles a grant that has left the window of one of two rates, at a
// backend that was restarted after a younger grant.
func pastWindow(e *env) {
	rate, long := e.per(4, 1), e.per(100, 600)
	for try := range 10 { // a restart on a slow machine may take until the younger grant leaves
		p, key := e.process(), e.key(fmt.Sprint(try))
		p.granted(key, 1, rate, long)
		other := e.process() // a copy of the grants that it has may lack all later ones
		e.Pass(0.01)
		first := p.granted(key, 3, rate, long)
		e.Pass(1.05)
		younger := time.Now()
		other.granted(key, 3, rate, long)
		e.Must(e.h.Faults.Restart(), "restart the backend")
		e.answers(p)
		p.giveBack(key, first.At, 3, rate, long)
		used := p.used(key, rate, long)
		e.Want(used[1] == 4, "%v units are used of both rates, want 3 of 7 to be returned to the longer one", used)
		if time.Since(younger) < rate.Per-rate.Per/1000 {
			e.Want(used[0] == 3, "%d units are used after the settlement of an old grant, want the 3 of a younger one", used[0])
			return
		}
	}
}

// returnedAfterStepBack settles a grant that a step back has brought before an entry of
// the log, under rates with exact and with rounded times. The step forward is more than a
// tick, so that this grant has an entry of its own, and short, because a backend does not
// write the time of a key with each grant.
func returnedAfterStepBack(e *env) {
	for _, n := range []int{100, 1000} {
		p, key, rate := e.process(), e.key(fmt.Sprint(n)), e.per(n, 60)
		p.granted(key, 1, rate)
		e.at(rate.Per/60, func() { p.granted(key, 1, rate) })
		e.at(-rate.Per/6, func() {
			a := p.granted(key, 3, rate)
			p.giveBack(key, a.At, 3, rate)
			e.Want(p.used(key, rate)[0] == 2, "N = %d: %v units are used, want the 2 that were not returned", n, p.used(key, rate))
		})
	}
}

// forgottenGrant settles a grant of which the backend knows nothing any more, between
// the times of two later grants.
func forgottenGrant(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(5, 600)
	forgotten := p.granted(key, 5, rate)
	e.at(24*time.Hour+rate.Per, func() { e.Want(p.used(key, rate)[0] == 0, "%v units are used after the window", p.used(key, rate)) })
	e.at(-rate.Per/2, func() { p.granted(key, 1, rate) })
	e.at(rate.Per/6, func() {
		p.granted(key, 3, rate)
		p.giveBack(key, forgotten.At, 5, rate)
		e.Want(p.used(key, rate)[0] == 4, "%v units are used, want 4: none belongs to the settled grant", p.used(key, rate))
	})
}

// at calls f while the clock of the backend is set forward or back.
func (e *env) at(step time.Duration, f func()) {
	undo, err := e.h.Faults.StepClock(step)
	e.Must(err, "step the clock")
	defer func() { e.Must(undo(), "undo the step of the clock") }()
	f()
}

// answers waits until the process has an answer of a restarted backend.
func (e *env) answers(p *process) {
	e.Soon("an answer of the backend", func() bool {
		ctx, cancel := e.Bounded()
		defer cancel()
		_, err := p.direct.Inspect(ctx, e.key("other"), nil)
		return err == nil
	})
}

func debt(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(10, 2)
	permit := p.wait(key, limitOf(rate))
	e.Pass(0.5)
	e.Must(permit.Settle(e.Ctx, 25), "Settle")
	wait := p.refused(key, 1, 2, 1, rate).Wait
	e.Sleep(wait + e.Units(0.02))
	p.granted(key, 1, rate)
}

// conserved gives back at random and checks that no interval holds more than
// the rate of what was kept, and that the rest could be used.
func conserved(e *env) {
	rate, key := e.per(20, 0.5), e.key("k")
	l, end := new(ledger), time.Now().Add(e.Units(float64(suite.Scaled(6))))
	all := []*process{e.process(), e.process()}
	e.All(4, func(i int) {
		p, random := all[i%2], rand.New(rand.NewPCG(2, uint64(i)))
		for time.Now().Before(end) {
			cost, sent := 1+random.IntN(4), time.Now()
			permit, err := p.Wait(e.Ctx, key, limitOf(rate), limit.Cost(cost), limit.MaxWait(max(time.Until(end), 0)))
			if err != nil {
				e.Pass(0.02) // units may be returned meanwhile
				continue
			}
			if random.IntN(2) == 0 {
				e.Sleep(e.Units(0.02 * random.Float64()))
				cost = random.IntN(cost + 1)
				e.Must(permit.Settle(e.Ctx, cost), "Settle")
			}
			l.add(i%2, cost, permit.At(), sent)
		}
	})
	l.check(e, rate)
	p := all[0]
	e.Pass(0.6)
	e.Want(p.used(key, rate)[0] == 0, "%v units are still used", p.used(key, rate))
	p.granted(key, rate.N, rate)
	p.refused(key, 0, 0.5, 1, rate)
}

func deadTickets(e *env) {
	key, rate := e.key("k"), e.per(50, 2)
	live := e.process()
	var all []*process
	for range 10 {
		all = append(all, e.process())
	}
	live.granted(key, 50, rate)
	for _, dead := range all {
		e.Want(dead.queue(key, 1, false, rate).Again > 0, "not queued")
	}
	start := time.Now()
	live.wait(key, limitOf(rate))
	bound := 2*time.Second + rate.Per + e.Units(0.5)
	e.Want(time.Since(start) <= bound, "waited for %v, want at most %v", time.Since(start), bound)
}

func givenUp(e *env) {
	a, b, key, rate := e.process(), e.process(), e.key("k"), e.per(1, 3)
	a.granted(key, 1, rate)
	_, err := a.Wait(e.Ctx, key, limitOf(rate), limit.MaxWait(e.Units(0.1)))
	e.Is(err, limit.ErrLimited, "Wait")
	given := e.Async(func() { _, _ = a.Wait(e.Ctx, key, limitOf(rate), limit.MaxWait(e.Units(2.9))) })
	e.Await(given, "the refusal")
	start := time.Now()
	b.wait(key, limitOf(rate))
	e.Want(time.Since(start) <= e.Units(3.3), "waited for %v behind waiters that have given up", time.Since(start))
}

func inherited(e *env) {
	for try := range 3 { // on a slow machine a call may be counted long before it is in the queue
		if inheritedIn(e, e.key(fmt.Sprint(try))) {
			return
		}
	}
	e.Fail("the place of a waiter that gave up was lost in every attempt")
}

// inheritedIn reports whether the call behind a waiter that gives up is served
// before another process that came later.
func inheritedIn(e *env, key string) bool {
	a, b, rate := e.process(), e.process(), e.per(1, 2)
	a.granted(key, 1, rate)
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	first := e.Async(func() {
		_, err := a.Wait(ctx, key, limitOf(rate))
		e.Is(err, context.Canceled, "Wait")
	})
	e.Soon("a ticket", func() bool { return len(a.state(key).Waiters) == 1 })
	var next, other time.Time
	second := e.Async(func() { next = a.wait(key, limitOf(rate)).At() })
	e.Soon("a call waits behind it", func() bool { return a.Stats().Waiting == 2 })
	third := e.Async(func() { other = b.wait(key, limitOf(rate)).At() })
	e.Soon("a ticket of another process", func() bool { return len(a.state(key).Waiters) == 2 })
	cancel()
	for _, c := range []<-chan struct{}{first, second, third} {
		e.Await(c, "the end of a wait")
	}
	return next.Before(other)
}

// unseenGrant loses all answers to a call that another one waits behind.
func unseenGrant(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(1, 60))
	p.under.mute(errors.New("the answer is lost"))
	first := e.Async(func() {
		_, err := p.Wait(e.Ctx, key, m)
		e.Is(err, limit.ErrUnavailable, "Wait")
	})
	e.Soon("a grant that nobody has seen", func() bool { return p.used(key, m.Rates...)[0] == 1 })
	second := e.Async(func() {
		var err error = limit.ErrUnavailable
		for errors.Is(err, limit.ErrUnavailable) { // its answer may be lost, too
			_, err = p.Wait(e.Ctx, key, m)
		}
		e.Must(err, "Wait behind it")
	})
	e.Await(first, "the first call gives up")
	p.under.mute(nil)
	e.Await(second, "the second call is served")
}

func cancelledPermit(e *env) {
	a, b, key, m := e.process(), e.process(), e.key("k"), limitOf(e.per(3, 30), e.per(9, 60))
	permit := a.wait(key, m, limit.Cost(3))
	e.Must(permit.Cancel(e.Ctx), "Cancel")
	e.Must(permit.Cancel(e.Ctx), "Cancel again")
	e.Want(b.allow(key, m, limit.Cost(3)).Allowed, "the units were not returned")
	used := b.used(key, m.Rates...)
	e.Want(used[0] == 3 && used[1] == 3, "%v units are used, want 3 of each rate", used)
}
