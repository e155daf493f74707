package locktest

import (
	"context"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var releaseCases = []testCase{
	{rule: "L5", claim: "a cancelled request still releases", run: cancelledStillReleases},
	{rule: "L5", claim: "With releases after fn has returned, not when its context ends", run: releaseFollowsWork},
	{rule: "L5", claim: "a hung backend does not hang Release, which is repeated in the background", remote: true, run: hungRelease},
	{rule: "L5", claim: "a release that fails is repeated until it gets through", run: failedRelease},
	{rule: "L5", claim: "what could not be released is left to its TTL", run: releaseGivesUp},
	{rule: "L5", claim: "the first release of a lost lease says so, the second is a no-op", run: secondReleaseIsNothing},
	{rule: "L5", claim: "a hundred releases at once are one", run: manyReleases},
	{rule: "L5", claim: "a hundred releases at once free one slot", also: []string{"L15"}, run: manyReleasesOfASlot},
	{rule: "L5", claim: "a release whose reply was lost succeeds and leaves the successor alone", run: releaseReplyLost},
	{rule: "L5", claim: "a renewal that arrives after the release brings nothing back", run: renewalAfterRelease},
	{rule: "L5", claim: "releases race renewals and nothing stays", run: releaseRacesRenewal},
	{rule: "L5", claim: "nothing is renewed after a release", run: nothingRenewedAfterRelease},
	{rule: "L5", claim: "a released lease cannot be extended, and its context has ended", run: releasedIsOver},
}

func cancelledStillReleases(e *env) {
	a, b := e.process(), e.process()
	ctx, cancel := context.WithCancel(e.ctx)
	lease, err := a.Acquire(ctx, e.key("k"), e.ttl(30))
	e.must(err, "acquire")
	cancel()
	e.must(lease.Release(), "release under a cancelled context")
	b.freeWithin(e.units(5), e.key("k"))
}

func releaseFollowsWork(e *env) {
	a, b := e.process(), e.process()
	ctx, cancel := context.WithCancel(e.ctx)
	inside, done := make(chan struct{}), make(chan struct{})
	var returned time.Time
	e.async(func() {
		defer close(done)
		_ = a.With(ctx, e.key("k"), func(ctx context.Context) error {
			close(inside)
			e.await(ctx.Done(), "fn's context ends")
			e.pass(4) // longer than its TTL
			returned = time.Now()
			return ctx.Err()
		}, e.ttl(2))
	})
	e.await(inside, "fn runs")
	next := b.queue(e.key("k"), "next")
	cancel()
	e.releases(next.leaseWithin(2 * e.patience()))
	e.await(done, "With returns")
	e.want(!next.when.Before(returned), "the key was granted %v before its holder had returned", returned.Sub(next.when))
}

func hungRelease(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(40))
	heal := a.plan.Add(Step{Op: Release, Hang: true})
	before := time.Now()
	e.is(lease.Release(), lock.ErrUnavailable, "release")
	took := time.Since(before)
	e.want(took <= 2*driver.CallTimeout, "release took %v", took)
	b.busy(e.key("k"))
	heal()
	b.freeWithin(e.units(20)+3*driver.CallTimeout, e.key("k"))
}

func failedRelease(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(60))
	a.plan.Add(Step{Op: Release, Err: errUnreachable, Times: 4})
	err := lease.Release()
	e.is(err, lock.ErrUnavailable, "release")
	e.is(err, errUnreachable, "release hides why")
	e.must(lease.Release(), "release again")
	b.freeWithin(e.units(20)+4*time.Second, e.key("k"))
	e.want(len(told[lock.ReleaseFailed](a)) > 0, "the observer was not told")
}

func releaseGivesUp(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(2))
	a.plan.Add(Step{Op: Release, Err: errUnreachable})
	e.is(lease.Release(), lock.ErrUnavailable, "release")
	b.freeWithin(e.units(3)+time.Second, e.key("k"))
	e.pass(1)
	calls := a.plan.Calls(Release)
	e.never(e.units(3)+2*time.Second, "it is still being released", func() bool { return a.plan.Calls(Release) > calls })
}

func secondReleaseIsNothing(e *env) {
	a := e.process()
	lease := a.acquire(e.key("k"), e.ttl(1), lock.NoRenew())
	e.ended(lease, e.patience())
	e.is(lease.Release(), lock.ErrLost, "the first release")
	e.must(lease.Release(), "the second release")
	lease = a.acquire(e.key("k"))
	e.releases(lease, lease, lease)
}

func manyReleases(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	lease := a.acquire(e.key("k"))
	next := b.queue(e.key("k"), "next")
	e.all(100, func(int) { e.releases(lease) })
	got := next.lease()
	c.busy(e.key("k"))
	e.live(got)
	e.want(a.plan.Calls(Release) <= 1, "%d releases were sent", a.plan.Calls(Release))
	e.releases(got)
	c.free(e.key("k"))
}

func manyReleasesOfASlot(e *env) {
	a, b := e.process(), e.process()
	pool := lock.Slots(2)
	one, two := a.acquire(e.key("pool"), pool), a.acquire(e.key("pool"), pool)
	e.all(100, func(int) { e.releases(one) })
	three := b.acquire(e.key("pool"), pool)
	b.busy(e.key("pool"), pool)
	e.releases(two, three)
}

func releaseReplyLost(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(30))
	next := b.queue(e.key("k"), "next")
	a.plan.Add(Step{Op: Release, Executed: true, Err: errUnreachable, Times: 2})
	err := lease.Release()
	e.want(err == nil || isUnavailable(err), "release: %v", err)
	got := next.lease()
	e.soon("the release is repeated", func() bool { return a.plan.Calls(Release) >= 3 })
	e.must(lease.Release(), "release again")
	e.live(got)
	a.busy(e.key("k"))
	e.want(len(told[lock.Lost](a)) == 0, "a release whose reply was lost was told as a loss")
	e.releases(got)
}

func renewalAfterRelease(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(6))
	// The renewal after two units arrives at most one unit later.
	a.plan.Add(Step{Op: Renew, Delay: e.units(1), Times: 1})
	e.soon("it is being renewed", func() bool { return a.plan.Calls(Renew) == 1 })
	e.releases(lease)
	e.never(e.units(3), "the release was undone", func() bool {
		s, err := b.Inspect(e.ctx, e.key("k"))
		e.must(err, "inspect")
		return len(s.Holders) > 0
	})
	b.free(e.key("k"))
}

func releaseRacesRenewal(e *env) {
	d := e.driver()
	r := e.request(e.key("k"))
	for range Scaled(300) {
		r.Token = token()
		g := e.grant(d, r)
		renewed := make(chan struct{})
		e.async(func() {
			defer close(renewed)
			e.renew(d, g)
		})
		e.must(e.release(d, g), "release")
		e.await(renewed, "the renewal returns")
		s := e.inspect(d, r.Key)
		e.want(len(s.Holders) == 0, "after its release it is held by %+v", s.Holders)
		e.is(e.renew(d, g).Err, driver.ErrLost, "renew what was released")
	}
}

func nothingRenewedAfterRelease(e *env) {
	p := e.process()
	for range 10 {
		e.releases(p.acquire(e.key("k"), e.ttl(1)))
	}
	held := p.acquire(e.key("held"), e.ttl(1))
	cancelled := p.ask(e.key("held"))
	cancelled.cancel()
	_ = cancelled.refused()
	e.soon("it is renewed", func() bool { return p.plan.Calls(Renew) > 0 })
	e.releases(held)
	e.pass(1)
	calls := p.plan.Calls(Renew)
	e.never(e.units(3), "something is renewed still", func() bool { return p.plan.Calls(Renew) > calls })
}

func releasedIsOver(e *env) {
	p := e.process()
	lease := p.acquire(e.key("k"))
	ctx := lease.Context()
	e.live(lease)
	e.releases(lease)
	e.want(ctx.Err() != nil, "the context of a released lease goes on")
	e.is(lease.Extend(e.ctx, e.units(2)), lock.ErrLost, "extend a released lease")
	p.free(e.key("k"))
}
