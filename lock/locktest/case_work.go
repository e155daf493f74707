package locktest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/megaframework/mega/lock"
)

var panicCases = []testCase{
	{rule: "L11", claim: "a panic of fn releases and propagates", run: panicReleases},
	{rule: "L11", claim: "Goexit in fn releases", run: goexitReleases},
}

var renewalCases = []testCase{
	{rule: "L12", claim: "work of ten TTLs keeps its lease", run: heldThroughout},
	{rule: "L12", claim: "a failed renewal is retried", run: renewalIsRetried},
	{rule: "L12", claim: "a hanging renewal is retried", run: hungRenewalIsRetried},
	{rule: "L12", claim: "renewals are retried until the deadline, and the cause shows it", run: triedUntilDeadline},
	{rule: "L12", claim: "a refused renewal is retried until the local deadline", run: refusedRenewal},
	{rule: "L12", claim: "many leases are renewed in few calls", run: renewedInBatches},
	{rule: "L12", claim: "a failing renewal of one lease does not affect another", run: renewalsApart},
	{rule: "L12", claim: "an extension moves the deadline and later renewals", run: extension},
}

var deadlockCases = []testCase{
	{rule: "L13", claim: "a second acquire of a key on the same context chain fails at once", run: takenAgain},
	{rule: "L13", claim: "only a live lease of the same Locker on the chain counts", run: noFalseDeadlock},
	{rule: "L13", claim: "a pool may be acquired again", also: []string{"L15"}, run: poolAgain},
}

var contextCases = []testCase{
	{rule: "L19", claim: "values, deadline and end of the context carry over", run: contextCarriesOver},
	{rule: "L19", claim: "With renews until fn has returned, also when its context has ended", run: renewedUntilReturn},
	{rule: "L19", claim: "a lease whose context has ended is taken back and reported", run: forgottenByContext},
	{rule: "L19", claim: "a lease that was garbage collected is taken back and reported", run: forgottenAsGarbage},
	{rule: "L19", claim: "a Warn does not keep a lease that nobody has", run: warnedAsGarbage},
	{rule: "L19", claim: "a wait on its context does not keep a slot that nobody has", also: []string{"P1"}, run: slotAsGarbage},
	{rule: "L19", claim: "a lease released after its context ended is not reported as forgotten", run: notForgotten},
	{rule: "L19", claim: "the lease is found on its context", run: leaseFromContext},
	{rule: "L19", claim: "a wait under a lease ends with the loss of the lease and returns it", run: lostWhileWaiting},
}

func panicReleases(e *env) {
	a, b := e.process(), e.process()
	func() {
		defer func() {
			e.Want(recover() == "the work's panic", "the panic does not go on")
		}()
		_ = a.With(e.Ctx, e.key("k"), func(context.Context) error { panic("the work's panic") }, e.ttl(100))
	}()
	b.freeWithin(e.Units(10), e.key("k"))
	e.Want(a.Stats().Active == 0, "%d leases are active", a.Stats().Active)
}

func goexitReleases(e *env) {
	a, b := e.process(), e.process()
	done := make(chan struct{})
	e.Async(func() {
		defer close(done)
		_ = a.With(e.Ctx, e.key("k"), func(context.Context) error { runtime.Goexit(); return nil }, e.ttl(100))
	})
	e.Await(done, "With returns")
	b.freeWithin(e.Units(10), e.key("k"))
	e.Want(a.Stats().Active == 0, "%d leases are active", a.Stats().Active)
}

func heldThroughout(e *env) {
	a, b := e.process(), e.process()
	ttl := 2.0
	lease := a.acquire(e.key("k"), e.ttl(ttl))
	e.Never(e.Units(10*ttl), "another was granted the key", func() bool {
		_, err := b.try(e.key("k"))
		return err == nil
	})
	e.live(lease)
	renewals := a.plan.Calls(Renew)
	e.Want(10 <= renewals && renewals <= 40, "ten TTLs took %d renewals, want about 30", renewals)
	e.releases(lease)
}

func renewalIsRetried(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(3))
	a.plan.Add(Step{Op: Renew, Err: errUnreachable, Times: 2})
	e.Soon("it is renewed in the end", func() bool { return a.plan.Calls(Renew) >= 4 })
	e.live(lease)
	b.busy(e.key("k"))
	e.Want(len(eventsOf[lock.RenewFailed](a)) >= 1, "the observer received no event")
	e.Want(len(eventsOf[lock.Lost](a)) == 0, "it was reported as lost")
	e.releases(lease)
}

func hungRenewalIsRetried(e *env) {
	a := e.process()
	lease := a.acquire(e.key("k"), e.ttl(3))
	a.plan.Add(Step{Op: Renew, Hang: true, Times: 1})
	deadline := lease.Deadline()
	e.Soon("it is renewed", func() bool { return lease.Deadline().After(deadline) })
	e.Never(e.Units(3), "it was lost", func() bool { return lease.Context().Err() != nil })
	e.releases(lease)
}

func triedUntilDeadline(e *env) {
	p := e.process()
	lease := p.acquire(e.key("k"), e.ttl(4))
	p.plan.Add(Step{Op: Renew, Err: errUnreachable})
	deadline := lease.Deadline()
	cause := e.ended(lease, e.Units(5)+e.slack())
	early := time.Until(deadline)
	e.Want(early <= e.Unit/4, "it was given up %v before its deadline", early)
	e.Want(p.plan.Calls(Renew) >= 3, "it was tried %d times", p.plan.Calls(Renew))
	var lost *lock.LostError
	e.Want(errors.As(cause, &lost) && lost.Cause == lock.Unreachable, "the cause is %v, want unreachable", cause)
	e.Is(cause, errUnreachable, "the cause")
	e.Is(lease.Release(), lock.ErrLost, "release")
	e.Soon("the loss is reported", func() bool { return len(eventsOf[lock.Lost](p)) > 0 })
	e.Want(len(eventsOf[lock.Lost](p)) == 1, "the loss was reported %d times", len(eventsOf[lock.Lost](p)))
	e.Want(p.Stats().Lost == 1, "the loss was counted %d times", p.Stats().Lost)
}

// refusedRenewal has the backend refuse the renewals of two processes, of one for a
// while and of the other for good.
func refusedRenewal(e *env) {
	a, b := e.process(), e.process()
	refused := fmt.Errorf("%w: the user has no permission", lock.ErrUnavailable)
	kept, lost := a.acquire(e.key("kept"), e.ttl(4)), b.acquire(e.key("lost"), e.ttl(4))
	again := a.plan.Add(Step{Op: Renew, Err: refused})
	b.plan.Add(Step{Op: Renew, Err: refused})
	deadline := lost.Deadline()
	e.Pass(2)
	again()
	e.live(kept)
	cause := e.ended(lost, e.Units(3)+e.slack())
	early := time.Until(deadline)
	e.Want(early <= e.Unit/4, "it was given up %v before its deadline", early)
	e.Is(cause, lock.ErrLost, "the cause")
	e.Is(cause, refused, "the cause")
	e.live(kept)
	e.Is(lost.Release(), lock.ErrLost, "release")
	e.releases(kept)
}

// renewedInBatches acquires leases over a third of their TTL, so that no two have the
// same age.
func renewedInBatches(e *env) {
	p := e.process()
	const n = 200
	leases := make([]*lock.Lease, n)
	for i := range leases {
		leases[i] = p.acquire(e.key(fmt.Sprint(i)), e.ttl(9))
		e.Pass(3.0 / n)
	}
	before := p.plan.Calls(Renew)
	e.Pass(9) // three renewals of each
	calls := p.plan.Calls(Renew) - before
	for _, l := range leases {
		e.live(l)
	}
	e.Want(3 <= calls && calls <= n/2, "three renewals of %d leases took %d calls", n, calls)
	e.releases(leases...)
}

func renewalsApart(e *env) {
	p := e.process()
	bad := p.acquire(e.key("bad"), e.ttl(3))
	good := p.acquire(e.key("good"), e.ttl(30))
	p.plan.Add(Step{Op: Renew, Key: e.key("bad"), Err: errUnreachable})
	e.Is(e.ended(bad, e.Units(4)+e.slack()), lock.ErrLost, "the cause")
	e.live(good)
	_ = bad.Release()
	e.releases(good)
}

func extension(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(2), lock.NoRenew())
	e.Must(lease.Extend(e.Ctx, e.Units(10)), "extend")
	left := time.Until(lease.Deadline())
	e.Want(e.Units(8) < left && left <= e.Units(10), "after an extension to %v, %v are left", e.Units(10), left)
	e.Pass(3)
	e.live(lease)
	b.busy(e.key("k"))
	e.Must(lease.Extend(e.Ctx, e.Units(1)), "shorten")
	e.Want(time.Until(lease.Deadline()) <= e.Units(1), "after it was shortened %v are left", time.Until(lease.Deadline()))
	e.Is(lease.Extend(e.Ctx, 0), lock.ErrInvalid, "extend by nothing")
	e.succeeds(lease, b)
	_ = lease.Release()
}

func takenAgain(e *env) {
	p := e.process()
	before := time.Now()
	type key struct{}
	e.Must(p.With(e.Ctx, e.key("k"), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, key{}, 1), time.Hour)
		defer cancel()
		_, err := p.Acquire(ctx, e.key("k"))
		e.Is(err, lock.ErrDeadlock, "acquire")
		_, err = p.TryAcquire(ctx, e.key("k"))
		e.Is(err, lock.ErrDeadlock, "try")
		return p.With(ctx, e.key("other"), func(ctx context.Context) error {
			e.Is(p.With(ctx, e.key("k"), func(context.Context) error { return nil }), lock.ErrDeadlock, "with, two levels up")
			return nil
		})
	}), "with")
	e.Want(time.Since(before) < e.Patience(), "it took %v", time.Since(before))
	p.free(e.key("k"))
}

func noFalseDeadlock(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"))
	brief := lock.Wait(e.Units(0.5)) // enough for a busy backend to answer
	_, err := b.Acquire(lease.Context(), e.key("k"), brief)
	e.Is(err, lock.ErrNotAcquired, "another Locker")
	_, err = a.Acquire(e.Ctx, e.key("k"), brief)
	e.Is(err, lock.ErrNotAcquired, "another chain")
	ctx := context.WithoutCancel(lease.Context())
	e.releases(lease)
	again, err := a.Acquire(ctx, e.key("k"))
	e.Must(err, "after the release")
	e.releases(again)
}

func poolAgain(e *env) {
	p := e.process()
	pool := lock.Slots(2)
	e.Must(p.With(e.Ctx, e.key("pool"), func(ctx context.Context) error {
		return p.With(ctx, e.key("pool"), func(context.Context) error { return nil }, pool)
	}, pool), "with")
}

func contextCarriesOver(e *env) {
	p := e.process()
	type key struct{}
	deadline := time.Now().Add(e.Units(50))
	ctx, stop := context.WithDeadline(context.WithValue(e.Ctx, key{}, "value"), deadline)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	lease, err := p.Acquire(ctx, e.key("k"), e.ttl(5))
	e.Must(err, "acquire")
	held := lease.Context()
	at, ok := held.Deadline()
	e.Want(ok && at.Equal(deadline), "the deadline is %v, want %v", at, deadline)
	e.Want(held.Value(key{}) == "value", "a value is lost")
	e.Want(held.Err() == nil, "it has ended: %v", held.Err())
	cause := errors.New("the user has gone")
	cancel(cause)
	e.Await(held.Done(), "the lease's context ends")
	e.Is(held.Err(), context.Canceled, "the context")
	e.Is(context.Cause(held), cause, "the cause")
	_ = lease.Release()
}

func renewedUntilReturn(e *env) {
	a, b := e.process(), e.process()
	type work = func(context.Context) error
	calls := []func(ctx context.Context, key string, fn work) error{
		func(ctx context.Context, key string, fn work) error { return a.With(ctx, key, fn, e.ttl(2)) },
		func(ctx context.Context, key string, fn work) error {
			return a.WithAll(ctx, []string{key}, fn, e.ttl(2))
		},
		func(ctx context.Context, key string, fn work) error { return a.Lead(ctx, key, fn, e.ttl(2)) },
	}
	if e.keeps("O1") {
		calls = append(calls, func(ctx context.Context, key string, fn work) error {
			_, err := a.Once(ctx, key, time.Hour, fn, e.ttl(2))
			return err
		})
	}
	e.All(len(calls), func(i int) {
		key := e.key(fmt.Sprint("k", i))
		ctx, cancel := context.WithCancel(e.Ctx)
		e.Must(calls[i](ctx, key, func(ctx context.Context) error {
			cancel()
			e.Await(ctx.Done(), "fn's context ends")
			e.Never(e.Units(6), "another was granted the key while fn ran", func() bool {
				_, err := b.try(key)
				return err == nil
			})
			return nil
		}), "call %d", i)
		b.freeWithin(e.Units(1)+e.slack(), key)
	})
	e.Want(len(eventsOf[lock.Forgotten](a)) == 0, "it was reported as forgotten")
}

func forgottenByContext(e *env) {
	a, b := e.process(), e.process()
	ctx, cancel := context.WithCancel(e.Ctx)
	lease, err := a.Acquire(ctx, e.key("k"), e.ttl(12)) // renewed and checked every 4 units
	e.Must(err, "acquire")
	cancel()
	b.freeWithin(e.Units(8), e.key("k"))
	e.wasForgotten(a, lease.Fence())
	runtime.KeepAlive(lease)
}

// wasForgotten fails the case unless the observer received one Forgotten with
// the call site.
func (e *env) wasForgotten(p *process, fence uint64) {
	e.Soon("it is reported as forgotten", func() bool { return len(eventsOf[lock.Forgotten](p)) > 0 })
	all := eventsOf[lock.Forgotten](p)
	e.Want(len(all) == 1 && all[0].Fence == fence, "reported %+v, want fence %d once", all, fence)
	e.Want(strings.Contains(all[0].Site, "locktest/case_work.go:"), "the call site is %q", all[0].Site)
	e.Soon("none is active", func() bool { return p.Stats().Active == 0 })
}

func forgottenAsGarbage(e *env) {
	a, b := e.process(), e.process()
	fence := leaveBehind(e, a, func(*lock.Lease) {}, e.ttl(6))
	e.collected(func() bool { return b.isFree(e.key("k")) })
	e.wasForgotten(a, fence)
}

// collected fails the case unless free returns true soon after garbage was
// collected.
func (e *env) collected(free func() bool) {
	e.Eventually(e.Units(20)+2*time.Second, "the key is free", func() bool {
		e.Pass(0.25)
		runtime.GC()
		return free()
	})
}

// leaveBehind acquires a lease, uses it, and drops it without a release.
//
//go:noinline
func leaveBehind(e *env, p *process, use func(*lock.Lease), opts ...lock.Option) uint64 {
	lease, err := p.Acquire(e.Ctx, e.key("k"), opts...)
	e.Must(err, "acquire")
	use(lease)
	return lease.Fence()
}

func warnedAsGarbage(e *env) {
	a, b := e.process(), e.process()
	var warned <-chan struct{}
	fence := leaveBehind(e, a, func(l *lock.Lease) { warned = l.Warn(time.Millisecond) }, e.ttl(2))
	e.collected(func() bool { return b.isFree(e.key("k")) })
	e.wasForgotten(a, fence)
	e.Await(warned, "the warning at the end of the lease")
}

func slotAsGarbage(e *env) {
	a, b := e.process(), e.process()
	fence := leaveSlotBehind(e, a)
	e.collected(func() bool {
		err := b.WithSlot(e.Ctx, &lock.Pool{Key: e.key("pool"), Size: 1}, func(context.Context, *lock.Slot) error { return nil }, lock.Wait(0))
		return err == nil
	})
	e.wasForgotten(a, fence)
}

// leaveSlotBehind acquires a slot, looks for the end of its context, and drops it
// without a release.
//
//go:noinline
func leaveSlotBehind(e *env, p *process) uint64 {
	slot, err := p.AcquireSlot(e.Ctx, &lock.Pool{Key: e.key("pool"), Size: 1}, e.ttl(2))
	e.Must(err, "a slot")
	select {
	case <-slot.Context().Done():
		e.Fail("the context of the work has ended: %w", context.Cause(slot.Context()))
	default:
	}
	return slot.Fence()
}

func notForgotten(e *env) {
	p := e.process()
	ctx, cancel := context.WithCancel(e.Ctx)
	lease, err := p.Acquire(ctx, e.key("k"), e.ttl(30))
	e.Must(err, "acquire")
	cancel()
	e.Await(lease.Context().Done(), "the lease's context ends")
	e.releases(lease)
	e.Never(e.Units(1)+time.Second, "it was reported as forgotten", func() bool { return len(eventsOf[lock.Forgotten](p)) > 0 })
	p.free(e.key("k"))
}

func leaseFromContext(e *env) {
	p := e.process()
	_, ok := lock.LeaseFrom(e.Ctx)
	e.Want(!ok, "a lease is found where there is none")
	e.Must(p.With(e.Ctx, e.key("outer"), func(ctx context.Context) error {
		return p.With(ctx, e.key("inner"), func(ctx context.Context) error {
			lease, ok := lock.LeaseFrom(context.WithoutCancel(ctx))
			e.Want(ok && lease.Key() == e.key("inner"), "found %v", lease)
			return nil
		})
	}), "with")
}

func lostWhileWaiting(e *env) {
	p := e.process()
	busy, lease := p.acquire(e.key("busy"), e.ttl(100)), p.acquire(e.key("k"), e.ttl(100))
	done := e.Async(func() {
		_, err := p.Acquire(lease.Context(), e.key("busy"), e.long())
		e.Is(err, context.Canceled, "the wait")
		e.Is(err, lock.ErrLost, "the wait")
	})
	e.Soon("the call waits", func() bool { return p.Stats().Waiting == 1 })
	_, err := p.ForceRelease(e.Ctx, e.key("k"), "the test")
	e.Must(err, "force")
	e.Await(done, "the wait ends")
	_ = lease.Release()
	e.releases(busy)
}
