package locktest

import (
	"context"
	"errors"
	"os"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var forceCases = []testCase{
	{rule: "L16", claim: "the holder learns the author and the reason of a force", run: forceGivesReason},
	{rule: "L16", claim: "force keeps the queue and serves it", also: []string{"L7"}, run: forceServesQueue},
	{rule: "L16", claim: "force frees every slot", also: []string{"L15"}, run: forceFreesSlots},
	{rule: "L16", claim: "a force of one slot ends only its lease", also: []string{"P6"}, run: forceFreesOne},
	{rule: "L16", claim: "a force of one fence ends only its lease", also: []string{"P6"}, run: forceByFence},
	{rule: "L16", claim: "force on a free key has no effect", run: forceOnFree},
	{rule: "L16", claim: "force of a lease of the own process notifies its holder", run: forceOwn},
	{rule: "L16", claim: "force concurrent with renewal and release restores nothing", run: forceRaces},
	{rule: "L16", claim: "the release of a forced lease frees nothing of its successor", run: forcedReleaseIsHarmless},
	{rule: "L16", claim: "a lease that was handed on can be forced", run: forceHandedOn},
}

func forceGivesReason(e *env) {
	a := e.process()
	b := e.process(func(c *lock.Config) {
		c.Identify = func(_ context.Context, h *lock.Holder) { h.App, h.Label, h.Worker = "console", "on call", 3 }
	})
	lease := a.acquire(e.key("k"), e.ttl(20))
	n, err := b.ForceRelease(e.Ctx, e.key("k"), "the disk is full")
	e.Must(err, "force")
	e.Want(n == 1, "forced %d, want 1", n)
	cause := e.ended(lease, e.Units(10))
	var lost *lock.LostError
	e.Want(errors.As(cause, &lost), "the cause is %v", cause)
	e.Want(lost.Cause == lock.Forced && lost.Reason == "the disk is full", "the cause is %v", lost)
	e.Want(lost.By.App == "console" && lost.By.Label == "on call" && lost.By.Worker == 3 && lost.By.PID == os.Getpid(), "by %+v", lost.By)
	e.Is(lease.Release(), lock.ErrLost, "the first release")
	e.Must(lease.Release(), "the second release")
	e.Soon("the loss is counted", func() bool { return a.Stats().Forced > 0 })
	e.Want(a.Stats().Forced == 1 && a.Stats().Lost == 1, "counted %d forced of %d lost", a.Stats().Forced, a.Stats().Lost)
	e.Want(len(eventsOf[lock.ForcedRelease](b)) == 1, "the observer received no event")
	b.free(e.key("k"))
}

func forceServesQueue(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	holder := a.acquire(e.key("k"))
	first := b.queue(e.key("k"), "first")
	second := c.queue(e.key("k"), "second")
	_, err := c.ForceRelease(e.Ctx, e.key("k"), "test")
	e.Must(err, "force")
	got := first.lease()
	e.Want(got.Fence() > holder.Fence(), "fence %d follows %d", got.Fence(), holder.Fence())
	e.Want(!second.over(), "two were served")
	_ = holder.Release()
	e.live(got)
	e.releases(got)
	e.releases(second.lease())
}

func forceFreesSlots(e *env) {
	a, b := e.process(), e.process()
	var leases []*lock.Lease
	for i := range 4 {
		leases = append(leases, []*process{a, b}[i%2].acquire(e.key("pool"), lock.Slots(4), e.ttl(20)))
	}
	n, err := b.ForceRelease(e.Ctx, e.key("pool"), "test")
	e.Must(err, "force")
	e.Want(n == 4, "forced %d, want 4", n)
	for _, l := range leases {
		e.Is(e.ended(l, e.Units(10)), lock.ErrLost, "the cause")
		_ = l.Release()
	}
	for i := range leases {
		leases[i] = a.acquire(e.key("pool"), lock.Slots(4))
	}
	a.busy(e.key("pool"), lock.Slots(4))
	e.releases(leases...)
}

func forceFreesOne(e *env) {
	a, b := e.process(), e.process()
	pool := lock.Slots(3)
	leases := []*lock.Lease{a.acquire(e.key("pool"), pool, e.ttl(20)), b.acquire(e.key("pool"), pool, e.ttl(20)), a.acquire(e.key("pool"), pool, e.ttl(20))}
	var held []*lock.Lease
	for _, i := range []int{1, 0} {
		n, err := b.ForceRelease(e.Ctx, e.key("pool"), "test", lock.OnlySlot(leases[i].Slot()))
		e.Must(err, "force")
		e.Want(n == 1, "forced %d, want 1", n)
		var lost *lock.LostError
		cause := e.ended(leases[i], e.Units(10))
		e.Want(errors.As(cause, &lost) && lost.Cause == lock.Forced && lost.Reason == "test", "the cause is %v", cause)
		e.Is(leases[i].Release(), lock.ErrLost, "release what was forced")
		for _, other := range leases[:i] {
			e.live(other)
		}
		next := b.acquire(e.key("pool"), pool, e.ttl(20))
		e.Want(next.Slot() == leases[i].Slot(), "slot %d was forced, %d was lent", leases[i].Slot(), next.Slot())
		b.busy(e.key("pool"), pool)
		held = append(held, next)
	}
	e.Must(leases[2].Extend(e.Ctx, e.Units(20)), "extend a lease of another slot")
	for _, slot := range []int{-1, lock.MaxSlots} {
		_, err := b.ForceRelease(e.Ctx, e.key("pool"), "test", lock.OnlySlot(slot))
		e.Is(err, lock.ErrInvalid, "force of slot %d", slot)
	}
	e.releases(append(held, leases[2])...)
}

func forceByFence(e *env) {
	a, b := e.process(), e.process()
	pool := lock.Slots(2)
	for key, opts := range map[string][]lock.Option{e.key("k"): {e.ttl(20)}, e.key("pool"): {pool, e.ttl(20)}} {
		first := a.acquire(key, opts...)
		n, err := b.ForceRelease(e.Ctx, key, "test", lock.OnlyFence(first.Fence()))
		e.Must(err, "force")
		e.Want(n == 1, "forced %d, want 1", n)
		e.Is(e.ended(first, e.Units(10)), lock.ErrLost, "the cause")
		_ = first.Release()
		second := a.acquire(key, opts...)
		n, err = b.ForceRelease(e.Ctx, key, "test", lock.OnlyFence(first.Fence()))
		e.Must(err, "force of a fence that is over")
		e.Want(n == 0, "forced %d, want 0", n)
		e.live(second)
		e.releases(second)
	}
	first := a.acquire(e.key("handed"), e.ttl(20))
	next := a.queue(e.key("handed"), "next", e.ttl(20))
	e.releases(first)
	handed := next.lease()
	n, err := a.ForceRelease(e.Ctx, e.key("handed"), "test", lock.OnlyFence(first.Fence()))
	e.Must(err, "force of the lease before")
	e.Want(n == 0, "forced %d, want 0", n)
	n, err = b.ForceRelease(e.Ctx, e.key("handed"), "test", lock.OnlyFence(handed.Fence()))
	e.Must(err, "force of a lease that was handed on")
	e.Want(n == 1, "forced %d, want 1", n)
	e.Is(e.ended(handed, e.Units(10)), lock.ErrLost, "the cause")
	_ = handed.Release()
	one, other := a.acquire(e.key("pool"), pool, e.ttl(20)), a.acquire(e.key("pool"), pool, e.ttl(20))
	_, err = b.ForceRelease(e.Ctx, e.key("pool"), "test", lock.OnlyFence(other.Fence()))
	e.Must(err, "force")
	e.Is(e.ended(other, e.Units(10)), lock.ErrLost, "the cause")
	_ = other.Release()
	e.live(one)
	e.releases(one)
}

func forceOnFree(e *env) {
	p := e.process()
	for range 2 {
		n, err := p.ForceRelease(e.Ctx, e.key("k"), "test")
		e.Must(err, "force a free key")
		e.Want(n == 0, "forced %d, want 0", n)
	}
	p.free(e.key("k"))
}

func forceOwn(e *env) {
	p := e.process()
	lease := p.acquire(e.key("k"), e.ttl(20))
	_, err := p.ForceRelease(lease.Context(), e.key("k"), "test")
	e.Must(err, "force")
	e.Is(e.ended(lease, e.Units(10)), lock.ErrLost, "the cause")
	_ = lease.Release()
	p.free(e.key("k"))
}

func forceRaces(e *env) {
	d, other := e.driver(), e.driver()
	for range suite.Scaled(150) {
		r := e.longRequest(e.key("k"))
		g := e.grant(d, r)
		e.All(3, func(i int) {
			ctx, cancel := e.Bounded()
			defer cancel()
			switch i {
			case 0:
				_, err := other.ForceRelease(ctx, r.Key, driver.Force{Reason: "test", By: r.Holder})
				e.Must(err, "force")
			case 1:
				e.renew(d, g)
			case 2:
				_ = e.release(d, g)
			}
		})
		s := e.inspect(d, r.Key)
		e.Want(len(s.Holders) == 0, "still held: %+v", s.Holders)
		e.Want(e.renew(d, g).Err != nil, "what was forced and released is renewed")
	}
}

func forcedReleaseIsHarmless(e *env) {
	a, b := e.process(), e.process()
	defer a.plan.Add(Step{Op: Acquire, Mute: true})()
	stale := a.acquire(e.key("k"), e.ttl(30))
	_, err := b.ForceRelease(e.Ctx, e.key("k"), "test")
	e.Must(err, "force")
	live := b.acquire(e.key("k"), e.ttl(30))
	e.Is(stale.Release(), lock.ErrLost, "release what was forced")
	e.live(live)
	a.busy(e.key("k"))
	e.Must(live.Extend(e.Ctx, e.Units(20)), "extend the successor")
	e.releases(live)
}

func forceHandedOn(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"), e.ttl(20))
	next := a.queue(e.key("k"), "next", e.ttl(20))
	e.releases(holder)
	got := next.lease()
	n, err := b.ForceRelease(e.Ctx, e.key("k"), "test")
	e.Must(err, "force")
	e.Want(n == 1, "forced %d, want 1", n)
	cause := e.ended(got, e.Units(10))
	var lost *lock.LostError
	e.Want(errors.As(cause, &lost) && lost.Cause == lock.Forced, "the cause is %v, want forced", cause)
	_ = got.Release()
	b.free(e.key("k"))
}
