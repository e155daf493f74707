package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

var circleCases = []testCase{
	{rule: "A5", claim: "of a circle of two the wait that ends first gets ErrDeadlock at once", run: circleOfTwo},
	{rule: "A5", claim: "on a tie the younger wait gives up", fake: true, run: youngerGivesUp},
	{rule: "A5", claim: "a circle through AcquireAll is found", run: circleThroughSet},
	{rule: "A5", claim: "work off the chain is in no circle", run: offTheChain},
	{rule: "A5", claim: "a pool is in no circle", also: []string{"L15"}, run: poolInNoCircle},
	{rule: "A5", claim: "a lease that has ended is in no circle", run: endedInNoCircle},
	{rule: "A5", claim: "acquisitions in one order cause no report", run: noFalseCircle},
}

// crossed makes two calls hold x and y, and then wait for the other key. It
// returns their errors. The second call waits after the first one.
func (p *process) crossed(ctx func(context.Context) context.Context, waits [2]lock.Option, opts ...lock.Option) (errs [2]error) {
	e := p.e
	keys := e.keys("x", "y")
	yHeld, xWaits := make(chan struct{}), make(chan struct{})
	e.All(2, func(i int) {
		lease, err := p.Acquire(e.Ctx, keys[i], e.ttl(100))
		e.Must(err, "acquire %q", keys[i])
		if i == 1 {
			close(yHeld)
			e.Await(xWaits, "the first call waits")
		} else {
			e.Await(yHeld, "the second key is held")
			e.Async(func() {
				defer close(xWaits)
				e.Soon("the first call waits", func() bool { return p.Stats().Waiting > 0 })
				e.Pass(0.5) // it is counted before it is in the graph
			})
		}
		other, err := p.Acquire(ctx(lease.Context()), keys[1-i], append(opts, waits[i])...)
		errs[i] = err
		if err == nil {
			e.releases(other)
		}
		e.releases(lease)
	})
	return errs
}

func onChain(ctx context.Context) context.Context { return ctx }

func circleOfTwo(e *env) {
	for victim := range 2 {
		p := e.process()
		waits := [2]lock.Option{lock.Wait(e.Units(2000)), lock.Wait(e.Units(2000))}
		waits[victim] = lock.Wait(e.Units(1000))
		start := time.Now()
		errs := p.crossed(onChain, waits)
		if e.h.FakeTime { // the rest is the polling of the case
			e.Want(time.Since(start) < e.Units(1), "it took %v", time.Since(start))
		}
		e.Must(errs[1-victim], "the other call")
		var circle *lock.DeadlockError
		e.Is(errs[victim], lock.ErrDeadlock, "the call that would end first")
		e.Want(errors.As(errs[victim], &circle) && len(circle.Circle) == 2, "the error is %v", errs[victim])
		keys := e.keys("x", "y")
		own, other := circle.Circle[0], circle.Circle[1]
		e.Want(own.Holds == keys[victim] && own.Key == keys[1-victim], "the call's own part is %+v", own)
		e.Want(other.Holds == own.Key && other.Key == own.Holds, "the other part is %+v", other)
		for _, w := range circle.Circle {
			e.Want(strings.Contains(w.Site, "locktest/case_circle.go:"), "the call site is %q", w.Site)
		}
		e.Want(p.Stats().Waiting == 0, "%d calls wait", p.Stats().Waiting)
	}
}

func youngerGivesUp(e *env) {
	errs := e.process().crossed(onChain, [2]lock.Option{e.long(), e.long()})
	if !e.h.FakeTime && errs[0] != nil { // the first call was delayed before its wait began
		errs[0], errs[1] = errs[1], errs[0]
	}
	e.Must(errs[0], "the older call")
	e.Is(errs[1], lock.ErrDeadlock, "the younger call")
}

func circleThroughSet(e *env) {
	p := e.process()
	lease := p.acquire(e.key("b"), e.ttl(100))
	done := e.Async(func() {
		e.Must(p.WithAll(e.Ctx, e.keys("a", "b"), func(context.Context) error { return nil }, e.long(), e.ttl(100)), "with all")
	})
	e.Soon("the set waits", func() bool { return p.Stats().Active == 2 && p.Stats().Waiting == 1 })
	_, err := p.Acquire(lease.Context(), e.key("a"), lock.Wait(e.Units(1000)))
	e.Is(err, lock.ErrDeadlock, "the call under the set's second key")
	e.releases(lease)
	e.Await(done, "the set goes on")
}

func offTheChain(e *env) {
	brief := lock.Wait(e.Units(1)) // longer than the time between the two calls, so that both wait at once
	for i, err := range e.process().crossed(lock.WithoutLease, [2]lock.Option{brief, brief}) {
		e.Want(!errors.Is(err, lock.ErrDeadlock), "call %d: %v", i, err)
	}
}

func poolInNoCircle(e *env) {
	p := e.process()
	pool, brief := lock.Slots(2), lock.Wait(e.Units(1))
	slots := []*lock.Lease{p.acquire(e.key("pool"), pool, e.ttl(100)), p.acquire(e.key("pool"), pool, e.ttl(100))}
	lease := p.acquire(e.key("k"), e.ttl(100))
	done := e.Async(func() {
		slot, err := p.Acquire(lease.Context(), e.key("pool"), pool, e.long())
		e.Must(err, "wait for a slot")
		e.releases(slot)
	})
	e.Soon("a call waits for a slot", func() bool { return p.Stats().Waiting == 1 })
	_, err := p.Acquire(slots[0].Context(), e.key("k"), brief)
	e.Is(err, lock.ErrNotAcquired, "the wait under a slot")
	e.releases(slots...)
	e.Await(done, "the wait for a slot ends")
	e.releases(lease)
}

func endedInNoCircle(e *env) {
	p := e.process()
	ended, lease := p.acquire(e.key("x"), e.ttl(100)), p.acquire(e.key("y"), e.ttl(100))
	e.releases(ended)
	x := p.acquire(e.key("x"), e.ttl(100))
	ctx := context.WithoutCancel(ended.Context())
	waits := p.askWith(ctx, e.key("y"), e.long())
	e.Soon("a call waits under the ended lease", func() bool { return p.Stats().Waiting == 1 })
	_, err := p.Acquire(lease.Context(), e.key("x"), lock.Wait(e.Units(0.5)))
	e.Is(err, lock.ErrNotAcquired, "the wait for a key that another lease holds")
	e.releases(lease, x)
	e.releases(waits.lease())
}

func noFalseCircle(e *env) {
	p := e.process()
	names := e.keys("a", "b", "c", "d", "e", "f")
	var nest func(ctx context.Context, keys []string) error
	nest = func(ctx context.Context, keys []string) error {
		if len(keys) == 0 {
			return nil
		}
		return p.With(ctx, keys[0], func(ctx context.Context) error { return nest(ctx, keys[1:]) }, e.ttl(100))
	}
	e.All(16, func(int) {
		for range suite.Scaled(150) { // about 3 acquisitions each
			keys := slices.Clone(names)
			for len(keys) > 1+rand.IntN(5) {
				i := rand.IntN(len(keys))
				keys = slices.Delete(keys, i, i+1)
			}
			e.Must(nest(e.Ctx, keys), "acquire %q", keys)
		}
	})
}
