package locktest

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var releaseCases = []testCase{
	{rule: "L5", claim: "a cancelled request still releases", run: cancelledStillReleases},
	{rule: "L5", claim: "With releases after fn has returned, not when its context ends", run: releaseFollowsWork},
	{rule: "L5", claim: "a hanging backend does not block Release, which is retried in the background", remote: true, run: hungRelease},
	{rule: "L5", claim: "a failed release is retried until it succeeds", run: failedRelease},
	{rule: "L5", claim: "a failed release is not With's error", run: failedReleaseOfWith},
	{rule: "L5", claim: "a lease that cannot be released is left to its TTL", run: releaseGivesUp},
	{rule: "L5", claim: "at most 65 536 failed releases wait, and further ones are counted", remote: true, fake: true, run: manyFailedReleases},
	{rule: "L5", claim: "the first release of a lost lease returns ErrLost, the second is a no-op", run: secondReleaseIsNothing},
	{rule: "L5", claim: "a hundred concurrent releases are one", run: manyReleases},
	{rule: "L5", claim: "a hundred concurrent releases free one slot", also: []string{"L15"}, run: manyReleasesOfASlot},
	{rule: "L5", claim: "a release whose reply was lost succeeds and leaves the successor alone", run: releaseReplyLost},
	{rule: "L5", claim: "a renewal that arrives after the release restores nothing", run: renewalAfterRelease},
	{rule: "L5", claim: "releases race renewals and leave nothing behind", run: releaseRacesRenewal},
	{rule: "L5", claim: "nothing is renewed after a release", run: nothingRenewedAfterRelease},
	{rule: "L5", claim: "a released lease cannot be extended, and its context has ended", run: releasedIsOver},
}

func cancelledStillReleases(e *env) {
	a, b := e.process(), e.process()
	ctx, cancel := context.WithCancel(e.Ctx)
	lease, err := a.Acquire(ctx, e.key("k"), e.ttl(30))
	e.Must(err, "acquire")
	cancel()
	e.Must(lease.Release(), "release under a cancelled context")
	b.freeWithin(e.Units(5), e.key("k"))
}

func releaseFollowsWork(e *env) {
	a, b := e.process(), e.process()
	ctx, cancel := context.WithCancel(e.Ctx)
	inside, done := make(chan struct{}), make(chan struct{})
	var returned time.Time
	e.Async(func() {
		defer close(done)
		_ = a.With(ctx, e.key("k"), func(ctx context.Context) error {
			close(inside)
			e.Await(ctx.Done(), "fn's context ends")
			e.Pass(4) // longer than its TTL
			returned = time.Now()
			return ctx.Err()
		}, e.ttl(2))
	})
	e.Await(inside, "fn runs")
	next := b.queue(e.key("k"), "next")
	cancel()
	e.releases(next.leaseWithin(2 * e.Patience()))
	e.Await(done, "With returns")
	e.Want(!next.when.Before(returned), "the key was granted %v before its holder had returned", returned.Sub(next.when))
}

func hungRelease(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(40))
	heal := a.plan.Add(Step{Op: Release, Hang: true})
	before := time.Now()
	e.Is(lease.Release(), lock.ErrUnavailable, "release")
	took := time.Since(before)
	e.Want(took <= 2*driver.CallTimeout, "release took %v", took)
	b.busy(e.key("k"))
	heal()
	b.freeWithin(e.Units(20)+3*driver.CallTimeout, e.key("k"))
}

func failedRelease(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(60))
	a.plan.Add(Step{Op: Release, Err: errUnreachable, Times: 4})
	err := lease.Release()
	e.Is(err, lock.ErrUnavailable, "release")
	e.Is(err, errUnreachable, "release hides why")
	e.Must(lease.Release(), "release again")
	b.freeWithin(e.Units(20)+4*time.Second, e.key("k"))
	failed := eventsOf[lock.ReleaseFailed](a)
	e.Want(len(failed) > 0 && failed[0].Fence == lease.Fence(), "the observer received %+v", failed)
}

func failedReleaseOfWith(e *env) {
	a, b := e.process(), e.process()
	mine := errors.New("the work's own error")
	for _, work := range []error{nil, mine} {
		a.plan.Add(Step{Op: Release, Err: errUnreachable, Times: 1})
		calls := a.plan.Calls(Release)
		err := a.With(e.Ctx, e.key("k"), func(context.Context) error { return work }, e.ttl(100))
		e.Is(err, work, "with")
		e.Want(!errors.Is(err, lock.ErrUnavailable), "with returned %v, and fn %v", err, work)
		e.Want(a.plan.Calls(Release) > calls, "nothing was released")
		b.freeWithin(e.Units(20)+4*time.Second, e.key("k"))
	}
}

func releaseGivesUp(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(2))
	a.plan.Add(Step{Op: Release, Err: errUnreachable})
	e.Is(lease.Release(), lock.ErrUnavailable, "release")
	b.freeWithin(e.Units(3)+time.Second, e.key("k"))
	e.Pass(1)
	calls := a.plan.Calls(Release)
	e.Never(e.Units(3)+2*time.Second, "it is still being released", func() bool { return a.plan.Calls(Release) > calls })
}

// manyFailedReleases has a backend that answers no release. The background job
// tries a few of those that wait, which makes room for as many.
func manyFailedReleases(e *env) {
	a, b := e.process(), e.process()
	const most, more, tried = 65_536, 100, 64
	heal := a.plan.Add(Step{Op: Release, Err: errUnreachable})
	for i := range most + more {
		lease, err := a.Acquire(e.Ctx, e.key(strconv.Itoa(i)), lock.TTL(time.Hour))
		e.Must(err, "acquire")
		e.Is(lease.Release(), lock.ErrUnavailable, "release")
	}
	left := a.Stats().Unreleased
	e.Want(more-tried <= left && left <= more, "%d leases are counted as left to their TTL, want about %d", left, more)
	heal()
	e.Sleep(time.Minute)
	held, err := b.List(e.Ctx, e.key(""))
	e.Must(err, "list")
	e.Want(uint64(len(held)) == left, "%d keys are still held, and %d were counted", len(held), left)
}

func secondReleaseIsNothing(e *env) {
	a := e.process()
	lease := a.acquire(e.key("k"), e.ttl(1), lock.NoRenew())
	e.ended(lease, e.Patience())
	e.Is(lease.Release(), lock.ErrLost, "the first release")
	e.Must(lease.Release(), "the second release")
	e.Soon("the first release is sent", func() bool { return a.plan.Calls(Release) == 1 })
	lease = a.acquire(e.key("k"))
	e.releases(lease, lease, lease)
}

func manyReleases(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	lease := a.acquire(e.key("k"))
	next := b.queue(e.key("k"), "next")
	e.All(100, func(int) { e.releases(lease) })
	got := next.lease()
	c.busy(e.key("k"))
	e.live(got)
	e.Want(a.plan.Calls(Release) <= 1, "%d releases were sent", a.plan.Calls(Release))
	e.releases(got)
	c.free(e.key("k"))
}

func manyReleasesOfASlot(e *env) {
	a, b := e.process(), e.process()
	pool := lock.Slots(2)
	one, two := a.acquire(e.key("pool"), pool), a.acquire(e.key("pool"), pool)
	e.All(100, func(int) { e.releases(one) })
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
	e.Want(err == nil || isUnavailable(err), "release: %v", err)
	got := next.lease()
	e.Soon("the release is repeated", func() bool { return a.plan.Calls(Release) >= 3 })
	e.Must(lease.Release(), "release again")
	e.live(got)
	a.busy(e.key("k"))
	e.Want(len(eventsOf[lock.Lost](a)) == 0, "a release whose reply was lost was reported as a loss")
	e.releases(got)
}

func renewalAfterRelease(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(6))
	// The renewal after two units arrives at most one unit later.
	a.plan.Add(Step{Op: Renew, Delay: e.Units(1), Times: 1})
	e.Soon("it is being renewed", func() bool { return a.plan.Calls(Renew) == 1 })
	e.releases(lease)
	e.Never(e.Units(3), "the release was undone", func() bool {
		s, err := b.Inspect(e.Ctx, e.key("k"))
		e.Must(err, "inspect")
		return len(s.Holders) > 0
	})
	b.free(e.key("k"))
}

func releaseRacesRenewal(e *env) {
	d := e.driver()
	r := e.longRequest(e.key("k"))
	for range suite.Scaled(300) {
		r.Token = token()
		g := e.grant(d, r)
		renewed := make(chan struct{})
		e.Async(func() {
			defer close(renewed)
			e.renew(d, g)
		})
		e.Must(e.release(d, g), "release")
		e.Await(renewed, "the renewal returns")
		s := e.inspect(d, r.Key)
		e.Want(len(s.Holders) == 0, "after its release it is held by %+v", s.Holders)
		e.Is(e.renew(d, g).Err, driver.ErrLost, "renew what was released")
	}
}

func nothingRenewedAfterRelease(e *env) {
	p := e.process()
	for range 10 {
		e.releases(p.acquire(e.key("k"), e.ttl(3)))
	}
	held := p.acquire(e.key("held"), e.ttl(3))
	cancelled := p.ask(e.key("held"))
	cancelled.cancel()
	_ = cancelled.refused()
	e.Soon("it is renewed", func() bool { return p.plan.Calls(Renew) > 0 })
	e.releases(held)
	e.Pass(1)
	calls := p.plan.Calls(Renew)
	e.Never(e.Units(4), "something is renewed still", func() bool { return p.plan.Calls(Renew) > calls })
}

func releasedIsOver(e *env) {
	p := e.process()
	lease := p.acquire(e.key("k"))
	ctx := lease.Context()
	e.live(lease)
	e.releases(lease)
	e.Want(ctx.Err() != nil, "the context of a released lease goes on")
	e.Is(lease.Extend(e.Ctx, e.Units(2)), lock.ErrLost, "extend a released lease")
	p.free(e.key("k"))
}
