package locktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock"
)

// cooldownCases are the cases of Cooldown: a release that leaves the key taken.
var cooldownCases = []testCase{
	{rule: "O5", claim: "a cooldown keeps the key taken after its release, also after the end of the process", run: coolsDown},
	{rule: "O5", claim: "a release that is repeated does not end its cooldown", run: repeatedRest},
	{rule: "O5", claim: "a late copy of a release does not lengthen its cooldown", run: lateRest},
	{rule: "O5", claim: "a late answer to an extension does not end the cooldown of a released lease", run: extendedDuringRelease},
	{rule: "O5", claim: "a lease that its owner forgot keeps its cooldown", run: forgottenCools},
	{rule: "O5", claim: "a cooldown outlives a restart of the backend, and then its process", needs: []fault{"Kill", "Restart", "Keeps", "Crash"}, run: coolsOver(func(e *env) {
		e.Must(e.h.Faults.Kill(), "kill")
		e.Must(e.h.Faults.Restart(), "restart")
	})},
	{rule: "O5", claim: "a cooldown outlives a backend that leaves in order, and then its process", needs: []fault{"Leave", "Crash"}, run: coolsOver(func(e *env) {
		e.Must(e.h.Faults.Leave(), "replace the backend")
	})},
	{rule: "O5", claim: "a cooldown delays no other key of the next backend", needs: []fault{"Leave"}, run: coolsAlone},
}

// coolsDown has a key cool down beside a waiter of its process, to which it could
// be handed on, and one after the end of its process.
func coolsDown(e *env) {
	a, b := e.process(), e.process()
	cooldown := lock.Cooldown(e.Units(0.5))
	for _, size := range e.sizes() {
		key, slots := e.key(fmt.Sprint("short-", size)), lock.Slots(size)
		var held []*lock.Lease
		for range size - 1 {
			held = append(held, a.acquire(key, slots, e.ttl(100)))
		}
		begun := time.Now()
		holder := a.acquire(key, slots, cooldown, e.ttl(100))
		next := a.queue(key, "next", slots, cooldown, e.ttl(100))
		e.releases(holder)
		e.releases(next.lease())
		took := next.when.Sub(begun)
		e.Want(took >= e.Units(0.45), "after a cooldown of %v a slot of %d was granted %v after the call", e.Units(0.5), size, took)
		e.Want(!e.h.FakeTime || took <= e.Units(0.6), "after a cooldown of %v a slot of %d was granted %v after the call", e.Units(0.5), size, took)
		e.releases(held...)
	}

	e.Must(a.With(e.Ctx, e.key("long"), succeed, lock.Cooldown(time.Hour), e.ttl(100)), "with")
	b.busy(e.key("long"))
	e.Must(a.Close(e.Ctx), "close")
	b.busy(e.key("long"))
	b.free(e.key("other"))
}

// repeatedRest loses the reply to a release, so that the release is repeated in
// the background.
func repeatedRest(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), lock.Cooldown(time.Hour), e.ttl(100))
	a.plan.Add(Step{Op: Release, Executed: true, Err: errUnreachable, Times: 1})
	_ = lease.Release()
	e.Soon("the release is repeated", func() bool { return a.plan.Calls(Release) >= 2 })
	e.Never(e.Units(0.5), "the key was free in its cooldown", func() bool { return b.isFree(e.key("k")) })
}

// lateRest sends a release again late in its cooldown.
func lateRest(e *env) {
	d := e.driver()
	g := e.grant(d, e.longRequest(e.key("k")))
	g.Rev, g.Rest = 1, e.Units(2)
	begun := time.Now()
	e.Must(e.release(d, g), "release")
	time.Sleep(g.Rest * 3 / 4)
	if err := e.release(d, g); err != nil && !errors.Is(err, lock.ErrLost) {
		e.Must(err, "release again")
	}
	s, err := d.Inspect(e.Ctx, g.Key)
	e.Must(err, "inspect")
	for _, h := range s.Holders {
		e.Want(h.Left < g.Rest/2, "three quarters of a cooldown of %v have passed, and a second release leaves %v", g.Rest, h.Left)
	}
	r := e.longRequest(e.key("k"))
	r.Wait = -1
	_ = e.grant(d, r)
	took := time.Since(begun)
	e.Want(took >= g.Rest-e.Units(0.1), "after a cooldown of %v the key was granted %v after the call", g.Rest, took)
	// A cooldown that begins again ends three quarters of it later. A driver that polls
	// may be a quarter of a second late.
	e.Want(took < g.Rest*5/4+e.slack(), "after a cooldown of %v the key was granted %v after the call", g.Rest, took)
}

// extendedDuringRelease has the backend answer an Extend after the release of
// its lease.
func extendedDuringRelease(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), lock.Cooldown(time.Hour), lock.TTL(time.Hour))
	answer := make(chan struct{})
	a.plan.Add(Step{Op: Renew, Key: e.key("k"), Executed: true, Hold: answer, Times: 1})
	over := e.Async(func() { e.Is(lease.Extend(e.Ctx, time.Hour), lock.ErrLost, "extend") })
	e.Soon("the extension is on its way", func() bool { return a.plan.Calls(Renew) == 1 })
	e.releases(lease)
	close(answer)
	e.Await(over, "Extend returns")
	e.Never(e.Units(0.5), "the key was free in its cooldown", func() bool { return b.isFree(e.key("k")) })
}

// forgottenCools forgets a lease whose context has ended, and one that is garbage. The
// owner of another one extends it at that moment.
func forgottenCools(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	cooldown, ttl := lock.Cooldown(time.Hour), e.ttl(2.5) // looked after each third of it
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	leaveBehind(e, a, func(*lock.Lease) {}, cooldown, ttl)
	ended, err := a.Acquire(ctx, e.key("ended"), cooldown, ttl)
	e.Must(err, "acquire")
	extended, err := c.Acquire(ctx, e.key("extended"), cooldown, ttl)
	e.Must(err, "acquire")
	e.Soon("it is renewed", func() bool { return c.plan.Calls(Renew) == 1 })
	answer := make(chan struct{})
	c.plan.Add(Step{Op: Renew, Executed: true, Hold: answer, Times: 1})
	over := e.Async(func() {
		err := extended.Extend(e.Ctx, e.Units(2.5))
		e.Want(errors.Is(err, lock.ErrLost) || isUnavailable(err) && !e.h.FakeTime, "extend: got %v, want ErrLost", err)
	})
	e.Soon("the extension is on its way", func() bool { return c.plan.Calls(Renew) == 2 })
	cancel()
	e.Soon("it is forgotten", func() bool { return len(eventsOf[lock.Forgotten](c)) == 1 })
	close(answer)
	e.Await(over, "Extend returns")
	e.collected(func() bool { return len(eventsOf[lock.Forgotten](a)) == 2 })
	for _, l := range []*lock.Lease{ended, extended} {
		e.Is(l.Release(), lock.ErrLost, "release a lease that was taken back")
	}
	e.Soon("all are released", func() bool { return a.plan.Calls(Release) >= 2 && c.plan.Calls(Release) >= 1 })
	e.Never(e.Units(0.5), "a key was free in its cooldown", func() bool {
		return b.isFree(e.key("k")) || b.isFree(e.key("ended")) || b.isFree(e.key("extended"))
	})
}

// coolsOver replaces the backend while a key cools down, and ends the process
// that released it, which has connected to the next backend meanwhile.
func coolsOver(replace func(*env)) func(*env) {
	return func(e *env) {
		a, b := e.process(), e.process()
		e.Must(a.With(e.Ctx, e.key("k"), succeed, lock.Cooldown(time.Hour), e.ttl(100)), "with")
		replace(e)
		stays := func(after string) {
			e.Eventually(3*e.Patience(), "an answer after "+after, func() bool {
				_, err := b.try(e.key("k"))
				e.Want(err != nil, "the key was free in its cooldown after %s", after)
				return errors.Is(err, lock.ErrNotAcquired)
			})
		}
		stays("the replacement")
		e.comeBack(a, e.key("other"))
		e.Must(e.h.Faults.Crash(a.opened), "crash")
		stays("the end of the process")
	}
}

// coolsAlone replaces the backend after the end of a process that has left a
// key in its cooldown, and no lease.
func coolsAlone(e *env) {
	a, b := e.process(), e.process()
	e.Must(a.With(e.Ctx, e.key("k"), succeed, lock.Cooldown(time.Hour), lock.TTL(time.Hour)), "with")
	e.Must(a.Close(e.Ctx), "close")
	e.Must(e.h.Faults.Leave(), "replace the backend")
	ctx, cancel := context.WithTimeout(e.Ctx, 2*e.Patience())
	defer cancel()
	e.Must(b.With(ctx, e.key("other"), succeed), "with another key")
}
