package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/lock"
)

var pushCases = []testCase{
	{rule: "L4", claim: "a forced lease ends by push", run: takenByPush},
	{rule: "L4", claim: "a forced lease that was waited for ends by push", run: waiterTakenByPush},
	{rule: "L4", claim: "a forced slot of a pool ends by push, also one that was waited for", also: []string{"L15"}, run: slotsTakenByPush},
	{rule: "L4", claim: "a forced lease ends at its next renewal if the push is missing", run: takenWithoutPush},
	{rule: "L4", claim: "a lease without renewal learns of a force too", run: takenUnrenewed},
	{rule: "L4", claim: "a lease and its context report a loss when asked", run: takenAndAsked},
	{rule: "L4", claim: "a holder whose key was deleted is notified, and waiters are served", needs: []fault{"Delete"}, run: deleted},
	{rule: "L4", claim: "holders are notified when the backend loses all data, and waiters are served", needs: []fault{"Flush"}, run: flushed},
}

func takenByPush(e *env) {
	a, b := e.process(), e.process()
	endsByPush(a, b, a.acquire(e.key("k"), e.pushTTL()))
}

func waiterTakenByPush(e *env) {
	a, b := e.process(), e.process()
	first := b.acquire(e.key("k"), e.ttl(100))
	next := a.queue(e.key("k"), "next", e.pushTTL())
	e.releases(first)
	endsByPush(a, b, next.lease())
}

func slotsTakenByPush(e *env) {
	a, b := e.process(), e.process()
	size, ttl := lock.Slots(2), e.pushTTL()
	used := b.acquire(e.key("pool"), size, e.ttl(100))
	first := b.acquire(e.key("pool"), size, e.ttl(100))
	next := a.queue(e.key("pool"), "next", size, ttl)
	e.releases(first)
	waited := next.lease()
	e.releases(used)
	other := a.acquire(e.key("pool"), size, ttl)
	over := waited.Context().Done()
	endsByPush(a, b, other)
	e.Await(over, "the other slot's context ends, too")
	e.Is(waited.Release(), lock.ErrLost, "release the other slot")
}

// endsByPush has b force the lease of a.
func endsByPush(a, b *process, lease *lock.Lease) {
	e := a.e
	done := lease.Context().Done()
	_, err := b.ForceRelease(e.Ctx, lease.Key(), "test")
	e.Must(err, "force")
	renewals := a.plan.Calls(Renew)
	select {
	case <-done:
	case <-time.After(e.Units(5)):
		e.Fail("the lease has not ended within %v", e.Units(5))
	}
	e.Want(a.plan.Calls(Renew) <= renewals+1, "it was renewed %d times", a.plan.Calls(Renew)-renewals)
	e.Is(lease.Release(), lock.ErrLost, "release")
}

// pushTTL returns a TTL whose renewals, at every third of it, are too late to
// detect a loss within a few units. Without a push, only renewals detect a
// loss.
func (e *env) pushTTL() lock.Option {
	d := e.driver()
	g := e.grant(d, e.request(e.key("probe")))
	e.Must(e.release(d, g), "release")
	if g.Lost == nil {
		return e.ttl(9)
	}
	return e.ttl(30)
}

func takenWithoutPush(e *env) {
	a, b := e.process(), e.process()
	defer a.plan.Add(Step{Op: Acquire, Mute: true})()
	lease := a.acquire(e.key("k"), e.ttl(3))
	_, err := b.ForceRelease(e.Ctx, e.key("k"), "test")
	e.Must(err, "force")
	cause := e.ended(lease, e.Units(2)+e.slack()) // a third of 3, with a reserve
	var lost *lock.LostError
	e.Want(errors.As(cause, &lost) && lost.Cause == lock.Forced, "the cause is %v, want forced", cause)
	_ = lease.Release()
}

func takenUnrenewed(e *env) {
	a, b := e.process(), e.process()
	defer a.plan.Add(Step{Op: Acquire, Mute: true})()
	lease := a.acquire(e.key("k"), e.ttl(12), lock.NoRenew())
	deadline := lease.Deadline()
	_, err := b.ForceRelease(e.Ctx, e.key("k"), "test")
	e.Must(err, "force")
	e.ended(lease, e.Units(6)+e.slack())
	e.Want(time.Now().Before(deadline), "it ended only with its TTL")
	_ = lease.Release()
}

// takenAndAsked never waits for the end of a context: it only calls Err, of a lease
// and of the context of another one.
func takenAndAsked(e *env) {
	a, b := e.process(), e.process()
	ttl := e.pushTTL()
	asked, used := a.acquire(e.key("asked"), ttl), a.acquire(e.key("used"), ttl)
	for _, l := range []*lock.Lease{asked, used} {
		_, err := b.ForceRelease(e.Ctx, l.Key(), "test")
		e.Must(err, "force")
	}
	e.Eventually(e.Units(5), "the lease and the context report it", func() bool { return asked.Err() != nil && used.Context().Err() != nil })
	lost, ok := errors.AsType[*lock.LostError](asked.Err())
	e.Want(ok && lost.Cause == lock.Forced, "the lease reports %v, want forced", asked.Err())
	e.Is(context.Cause(used.Context()), lock.ErrLost, "the cause")
	_, _ = asked.Release(), used.Release()
}

func deleted(e *env) { e.vanishes(func(key string) error { return e.h.Faults.Delete(key) }) }

func flushed(e *env) { e.vanishes(func(string) error { return e.h.Faults.Flush() }) }

// vanishes makes the backend lose a key that has a holder.
func (e *env) vanishes(lose func(key string) error) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(3))
	next := b.queue(e.key("k"), "next")
	e.Must(lose(e.key("k")), "lose the key")
	cause := e.ended(lease, e.Units(2)+time.Second) // the next renewal, with a reserve
	e.Is(cause, lock.ErrLost, "the cause")
	_ = lease.Release()
	got := next.leaseWithin(2 * e.Patience())
	e.Want(got.Fence() > lease.Fence(), "fence %d follows %d", got.Fence(), lease.Fence())
	e.releases(got)
}
