package locktest

import (
	"slices"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var extendCases = []testCase{
	{rule: "L12", claim: "the driver sets the life of a grant in both directions", run: driverShortens},
	{rule: "L12", claim: "the driver ignores a late copy of an older renewal", run: lateRenewal},
	{rule: "L12", claim: "after a shorter extension others wait at most that long for a crashed holder", needs: []fault{"Crash"}, run: shortenedThenCrashed},
	{rule: "L12", claim: "a lease without renewal can be shortened, and is free then", run: shortenedUnrenewed},
	{rule: "L12", claim: "a lease without renewal is not prolonged", run: notProlonged},
	{rule: "L12", claim: "a renewal repairs a TTL that a clock step has lengthened", needs: []fault{"StepClock", "Crash"}, run: steppedClockIsRepaired},
	{rule: "L2", claim: "fences grow while the clock of the backend steps back", needs: []fault{"StepClock"}, run: fencesOverClockSteps},
}

// left returns the remaining life of a grant.
func (e *env) left(d driver.Driver, g driver.Grant) time.Duration {
	held := e.inspect(d, g.Key).Holders
	i := slices.IndexFunc(held, func(h driver.Holding) bool { return h.Fence == g.Fence })
	e.Want(i >= 0, "the holders of %q are %+v, want fence %d", g.Key, held, g.Fence)
	return held[i].Left
}

func driverShortens(e *env) {
	for _, size := range e.sizes() {
		d := e.driver()
		next := e.lastOf(d, size)
		g := e.grant(d, next)
		for i, ttl := range []time.Duration{e.Units(200), e.Units(20), e.Units(50), e.Units(2)} {
			g.TTL, g.Rev = ttl, uint64(i+1)
			r := e.renew(d, g)
			e.Must(r.Err, "renew to %v", ttl)
			left := e.left(d, g)
			e.Want(ttl/2 < left && left <= ttl, "renewed to %v, %v are left", ttl, left)
		}
		began := time.Now()
		next.Token, next.Wait = token(), -1
		got := e.grant(d, next)
		took := time.Since(began)
		e.Want(took <= e.Units(2)+2*time.Second, "a grant that was shortened to %v was succeeded after %v", e.Units(2), took)
		e.Must(e.release(d, got), "release")
	}
}

func lateRenewal(e *env) {
	for _, size := range e.sizes() {
		d := e.driver()
		g := e.grant(d, e.lastOf(d, size))
		newest := g
		newest.TTL, newest.Rev = e.Units(20), 3
		e.Must(e.renew(d, newest).Err, "renew")
		for _, ttl := range []time.Duration{e.Units(200), e.Units(2)} {
			for rev := range uint64(3) {
				late := g
				late.TTL, late.Rev = ttl, rev
				e.Must(e.renew(d, late).Err, "renew with revision %d", rev)
				left := e.left(d, g)
				e.Want(e.Units(10) < left && left <= e.Units(20), "a late renewal to %v leaves %v of %v", ttl, left, e.Units(20))
			}
		}
		newest.TTL = e.Units(40)
		e.Must(e.renew(d, newest).Err, "renew with the same revision")
		e.Want(e.left(d, g) > e.Units(20), "a renewal with the newest revision was ignored")
		e.Must(e.release(d, newest), "release")
	}
}

func shortenedThenCrashed(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(200))
	next := b.queue(e.key("k"), "next", e.ttl(3))
	e.Must(lease.Extend(e.Ctx, e.Units(3)), "shorten")
	e.Must(e.h.Faults.Crash(a.opened), "crash")
	crashed := time.Now()
	got := next.leaseWithin(e.Units(3) + e.Patience())
	took := next.when.Sub(crashed)
	e.Want(took <= e.Units(3)+2*time.Second, "the next had it %v after the crash of a holder whose TTL was shortened to %v", took, e.Units(3))
	e.releases(got)
}

func shortenedUnrenewed(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), lock.TTL(time.Hour), lock.NoRenew())
	e.Must(lease.Extend(e.Ctx, e.Units(2)), "shorten")
	began := time.Now()
	next := b.ask(e.key("k"))
	got := next.leaseWithin(e.Units(2) + e.Patience())
	took := next.when.Sub(began)
	e.Want(took <= e.Units(2)+2*time.Second, "the next had it after %v, want %v", took, e.Units(2))
	e.Is(lease.Release(), lock.ErrLost, "release the shortened lease")
	e.live(got)
	e.releases(got)
}

// notProlonged inspects a lease without renewal as often as the front does, and
// waits for its end.
func notProlonged(e *env) {
	a, b := e.process(), e.process()
	ttl := e.Units(6) // inspected after two and four units
	lease := a.acquire(e.key("k"), lock.TTL(ttl), lock.NoRenew())
	granted := time.Now()
	next := b.queue(e.key("k"), "next")
	got := next.leaseWithin(ttl + e.Patience())
	took := next.when.Sub(granted)
	e.Want(took <= ttl+e.Units(2), "a lease of %v without renewal was succeeded after %v", ttl, took)
	e.Is(lease.Release(), lock.ErrLost, "release")
	e.releases(got)
}

func steppedClockIsRepaired(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(4))
	undo, err := e.h.Faults.StepClock(-time.Hour)
	e.Must(err, "step the clock")
	e.AtEnd(func() { _ = undo() })
	renewals := a.plan.Calls(Renew)
	e.Soon("it is renewed", func() bool { return a.plan.Calls(Renew) >= renewals+2 })
	e.live(lease)
	next := b.queue(e.key("k"), "next")
	e.Must(e.h.Faults.Crash(a.opened), "crash")
	crashed := time.Now()
	got := next.leaseWithin(e.Units(4) + e.Patience())
	took := next.when.Sub(crashed)
	e.Want(took <= e.Units(4)+2*time.Second, "after a step of the clock the next had it %v after the crash, want %v", took, e.Units(4))
	e.releases(got)
}

func fencesOverClockSteps(e *env) {
	p := e.process()
	fences := rising{e: e}
	held := p.acquire(e.key("k"), lock.TTL(2*time.Hour)) // longer than the forward step of the clock at undo
	fences.next(held.Fence(), "nothing")
	for _, step := range []time.Duration{-time.Second, -time.Hour} {
		undo, err := e.h.Faults.StepClock(step)
		e.Must(err, "step the clock")
		_ = held.Release()
		for range 3 {
			lease := p.acquire(e.key("k"))
			fences.next(lease.Fence(), "a clock that stepped by "+step.String())
			e.releases(lease)
		}
		held = p.acquire(e.key("k"), lock.TTL(2*time.Hour))
		fences.next(held.Fence(), "a clock that stepped by "+step.String())
		e.Must(undo(), "undo")
	}
	_ = held.Release() // the step forward may have ended it
}
