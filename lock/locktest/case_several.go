package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

var severalCases = []testCase{
	{rule: "A1", claim: "duplicates count once", run: duplicatesCountOnce},
	{rule: "A1", claim: "a list that is empty, too long or invalid is refused before the driver is called", run: invalidLists},
	{rule: "L13", claim: "a set with a key of the context's lease gets ErrDeadlock before its first key is acquired", run: setWithAHeldKey},
	{rule: "A2", claim: "after a failure no key is held", run: allOrNone},
	{rule: "A2", claim: "one Wait bounds the waits for all keys", fake: true, run: oneWaitForAll},
	{rule: "A2", claim: "a lease that is lost while the next key is busy is ErrLost", run: lostOnTheWay},
	{rule: "A2", claim: "a hanging backend delays the release of all keys by one second together", remote: true, run: releasedTogether},
	{rule: "A3", claim: "calls with the same keys in different orders all succeed", run: anyOrderOfKeys},
	{rule: "A4", claim: "the context ends with the loss of any lease, and its cause names the key", run: endsWithAnyLease},
	{rule: "A4", claim: "a panic of fn releases all keys", run: panicReleasesAll},
	{rule: "A4", claim: "Goexit in fn releases all keys", run: goexitReleasesAll},
	{rule: "A4", claim: "values and the end of the context carry over, and forgotten leases are taken back", run: setLivesOnContext},
}

func (e *env) keys(names ...string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = e.key(name)
	}
	return keys
}

func duplicatesCountOnce(e *env) {
	p := e.process()
	for _, keys := range [][]string{{"b", "a", "b", "a"}, {"a", "a", "b", "b"}} {
		set, err := p.AcquireAll(e.Ctx, e.keys(keys...), e.ttl(30))
		e.Must(err, "acquire %v", keys)
		e.Want(p.Stats().Active == 2, "%d leases are active, want 2", p.Stats().Active)
		e.Want(set.Fence(e.key("a")) > 0 && set.Fence(e.key("b")) > 0 && set.Fence(e.key("c")) == 0, "the fences are %d, %d and %d",
			set.Fence(e.key("a")), set.Fence(e.key("b")), set.Fence(e.key("c")))
		e.Want(len(lock.LeasesFrom(set.Context())) == 2, "%d leases are on the context", len(lock.LeasesFrom(set.Context())))
		e.Must(set.Release(), "release")
		e.Must(set.Release(), "release again")
		p.free(e.key("a"))
		p.free(e.key("b"))
	}
}

func setWithAHeldKey(e *env) {
	p := e.process()
	e.Must(p.With(e.Ctx, e.key("b"), func(ctx context.Context) error {
		had := p.Stats().Acquired
		_, err := p.AcquireAll(ctx, e.keys("a", "b"))
		e.Is(err, lock.ErrDeadlock, "a set with the held key")
		e.Want(p.Stats().Acquired == had, "%d leases were acquired for it", p.Stats().Acquired-had)
		return p.WithAll(ctx, e.keys("a", "c"), func(ctx context.Context) error {
			e.Want(len(lock.LeasesFrom(ctx)) == 3, "%d leases are on the context, want 3", len(lock.LeasesFrom(ctx)))
			return nil
		})
	}), "with")
	for _, key := range e.keys("a", "b", "c") {
		p.free(key)
	}
}

func invalidLists(e *env) {
	p := e.process()
	long := make([]string, 65) // A1: one more than the rule allows
	for i := range long {
		long[i] = e.key(fmt.Sprint(i))
	}
	for _, keys := range [][]string{nil, {}, long, {e.key("a"), ""}, {e.key("a"), "a b"}} {
		_, err := p.AcquireAll(e.Ctx, keys)
		e.Is(err, lock.ErrInvalid, "%d keys", len(keys))
	}
	for _, n := range []int{0, 1, 2} {
		_, err := p.AcquireAll(e.Ctx, e.keys("a", "b"), lock.Slots(n))
		e.Is(err, lock.ErrInvalid, "Slots(%d)", n)
	}
	e.Want(p.plan.Calls(Acquire) == 0, "the driver was called")
	set, err := p.AcquireAll(e.Ctx, append(long[1:], long[1]))
	e.Must(err, "%d keys and a duplicate", len(long)-1)
	e.Must(set.Release(), "release")
}

func allOrNone(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("b"), e.ttl(100))
	_, err := b.AcquireAll(e.Ctx, e.keys("c", "b", "a"), lock.Wait(e.Units(0.5)))
	e.Is(err, lock.ErrNotAcquired, "one of the keys is busy")
	e.Want(b.Stats().Active == 0, "%d leases are active", b.Stats().Active)
	a.free(e.key("a"))
	a.free(e.key("c"))
	e.releases(lease)
	called := false
	e.Must(b.WithAll(e.Ctx, e.keys("c", "b", "a"), func(context.Context) error { called = true; return nil }), "with all")
	e.Want(called, "fn was not called")
	a.free(e.key("b"))
}

func oneWaitForAll(e *env) {
	a, b := e.process(), e.process()
	first, second := a.acquire(e.key("a")), a.acquire(e.key("b"))
	e.Async(func() {
		e.Pass(2)
		e.releases(first)
	})
	start := time.Now()
	_, err := b.AcquireAll(e.Ctx, e.keys("a", "b"), lock.Wait(e.Units(3)))
	e.Is(err, lock.ErrNotAcquired, "the second key stays busy")
	took := time.Since(start)
	e.Want(e.Units(2) < took && took <= e.Units(3.5), "it waited for %v, want %v in all", took, e.Units(3))
	e.releases(second)
}

func lostOnTheWay(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("b"), e.ttl(100))
	_, err := b.AcquireAll(e.Ctx, e.keys("a", "b"), e.long(), e.ttl(1), lock.NoRenew())
	var lost *lock.LostError
	e.Want(errors.As(err, &lost) && lost.Key == e.key("a"), "the error is %v, want the loss of %q", err, e.key("a"))
	e.Want(!errors.Is(err, lock.ErrNotAcquired), "the error is also that of a busy key: %v", err)
	e.releases(lease)
	b.free(e.key("b"))
}

func releasedTogether(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("d"), e.ttl(100))
	b.plan.Add(Step{Op: Release, Hang: true, Times: 3})
	start := time.Now()
	_, err := b.AcquireAll(e.Ctx, e.keys("a", "b", "c", "d"), lock.Wait(0), e.ttl(100))
	e.Is(err, lock.ErrNotAcquired, "one of the keys is busy")
	if e.h.FakeTime {
		e.Want(time.Since(start) < 3*time.Second/2, "it took %v, want 1s for all releases together", time.Since(start))
	}
	for _, key := range e.keys("a", "b", "c") { // released in the background
		a.freeWithin(e.Units(20)+e.Patience(), key)
	}
	e.releases(lease)
}

func anyOrderOfKeys(e *env) {
	both := e.processes(2)
	names := e.keys("a", "b", "c", "d")
	var held [4]int // by the number of the name
	e.All(8, func(i int) {
		for range suite.Scaled(20) {
			keys := slices.Clone(names)
			rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			keys = keys[:2+rand.IntN(3)]
			e.Must(both[i%2].WithAll(e.Ctx, keys, func(context.Context) error {
				for _, key := range keys {
					held[slices.Index(names, key)]++ // the race detector sees a second holder
				}
				return nil
			}, e.ttl(100), lock.Wait(e.Units(100))), "with all of %q", keys)
		}
	})
}

func endsWithAnyLease(e *env) {
	a, b := e.process(), e.process()
	keys := e.keys("a", "b", "c")
	mine := errors.New("gave up")
	for _, key := range keys {
		err := a.WithAll(e.Ctx, keys, func(ctx context.Context) error {
			n, err := b.ForceRelease(e.Ctx, key, "the test")
			e.Must(err, "force")
			e.Want(n == 1, "%d leases of %q were forced", n, key)
			e.Await(ctx.Done(), "the context ends")
			var lost *lock.LostError
			cause := context.Cause(ctx)
			e.Want(errors.As(cause, &lost) && lost.Key == key && lost.Cause == lock.Forced, "the cause is %v, want the force of %q", cause, key)
			return mine
		}, e.ttl(30))
		var lost *lock.LostError
		e.Want(errors.As(err, &lost) && lost.Key == key && errors.Is(err, mine), "with all returned %v", err)
		for _, k := range keys {
			b.free(k)
		}
	}
}

func panicReleasesAll(e *env) {
	a, b := e.process(), e.process()
	func() {
		defer func() {
			e.Want(recover() == "the work's panic", "the panic does not go on")
		}()
		_ = a.WithAll(e.Ctx, e.keys("a", "b"), func(context.Context) error { panic("the work's panic") }, e.ttl(100))
	}()
	b.free(e.key("a"))
	b.free(e.key("b"))
	e.Want(a.Stats().Active == 0, "%d leases are active", a.Stats().Active)
}

func goexitReleasesAll(e *env) {
	a, b := e.process(), e.process()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = a.WithAll(e.Ctx, e.keys("a", "b"), func(context.Context) error { runtime.Goexit(); return nil }, e.ttl(100))
	}()
	e.Await(gone, "the goroutine ends")
	b.free(e.key("a"))
	b.free(e.key("b"))
	e.Want(a.Stats().Active == 0, "%d leases are active", a.Stats().Active)
}

func setLivesOnContext(e *env) {
	a, b := e.process(), e.process()
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(e.Ctx, key{}, "value"))
	set, err := a.AcquireAll(ctx, e.keys("a", "b"), e.ttl(12)) // checked every 4 units
	e.Must(err, "acquire")
	e.Want(set.Context().Value(key{}) == "value", "a value is lost")
	e.Want(set.Context().Err() == nil, "it has ended: %v", set.Context().Err())
	cancel()
	e.Await(set.Context().Done(), "the context of the leases ends")
	for _, k := range e.keys("a", "b") {
		b.freeWithin(e.Units(8), k)
	}
	e.Soon("both are reported as forgotten", func() bool { return len(eventsOf[lock.Forgotten](a)) == 2 })
	runtime.KeepAlive(set)
}
