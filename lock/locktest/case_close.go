package locktest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var closeCases = []testCase{
	{rule: "L17", claim: "calls after Close are ErrClosed", run: afterClose},
	{rule: "L17", claim: "Close ends the waiters", run: closeEndsWaiters},
	{rule: "L17", claim: "Close lets holders finish", run: closeLetsFinish},
	{rule: "L17", claim: "at the end of its context Close ends the contexts of holders without waiting", run: closeGivesUp},
	{rule: "L17", claim: "nothing is released before its fn has returned", run: closeReleasesLast},
	{rule: "L17", claim: "leases that Close left are not renewed", run: closeLeavesToTTL},
	{rule: "L17", claim: "Close is idempotent, and safe with every other call", run: closeMeetsAll},
	{rule: "L17", claim: "the driver ends its waiters when it is closed", also: []string{"L7"}, run: driverCloses},
}

func afterClose(e *env) {
	p := e.process()
	e.Must(p.Close(e.Ctx), "close")
	for call, err := range p.calls(e.key("k")) {
		e.Is(err, lock.ErrClosed, "%s", call)
	}
	_, err := p.ForceRelease(e.Ctx, e.key("k"), "test")
	e.Is(err, lock.ErrClosed, "force")
	_, err = p.Inspect(e.Ctx, e.key("k"))
	e.Is(err, lock.ErrClosed, "inspect")
	_, err = p.List(e.Ctx, "")
	e.Is(err, lock.ErrClosed, "list")
	e.Must(p.Close(e.Ctx), "close again")
	_ = p.Stats()
}

func closeEndsWaiters(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	holder := a.acquire(e.key("k"))
	waiters := []*asked{b.queue(e.key("k"), "one"), b.queue(e.key("k"), "two")}
	if e.keeps("L7") {
		waiters = append(waiters, b.queue(e.key("k"), "strict", lock.FIFO()))
	}
	next := c.queue(e.key("k"), "next")
	ctx, cancel := e.Bounded()
	defer cancel()
	e.Must(b.Close(ctx), "close")
	for _, w := range waiters {
		err := w.refused()
		e.Is(err, lock.ErrClosed, "a waiter")
		e.Want(!errors.Is(err, lock.ErrUnavailable), "a waiter got %v", err)
	}
	e.releases(holder)
	e.releases(next.lease())
}

func closeLetsFinish(e *env) {
	a, b := e.process(), e.process()
	inside, finish := make(chan struct{}), make(chan struct{})
	var finished atomic.Bool
	e.Async(func() {
		e.Must(a.With(e.Ctx, e.key("k"), func(ctx context.Context) error {
			close(inside)
			e.Await(finish, "it may finish")
			finished.Store(true)
			return ctx.Err()
		}, e.ttl(2)), "with, while it is closed")
	})
	e.Await(inside, "fn runs")
	closed := make(chan error, 1)
	e.Async(func() { closed <- a.Close(e.Ctx) })
	e.Soon("new work is refused", func() bool {
		lease, err := a.TryAcquire(e.Ctx, e.key("other"))
		if err == nil {
			e.releases(lease)
		}
		return errors.Is(err, lock.ErrClosed)
	})
	e.Pass(4) // two TTLs
	b.busy(e.key("k"))
	e.Want(len(closed) == 0, "Close did not wait")
	close(finish)
	select {
	case err := <-closed:
		e.Must(err, "close")
	case <-time.After(e.Patience()):
		e.Fail("Close does not return")
	}
	e.Want(finished.Load(), "Close did not wait for fn")
	b.freeWithin(e.Units(1)+e.slack(), e.key("k"))
}

// closing starts fn under a lease of a, and closes a with a context that soon
// ends. It returns after Close has returned.
func (e *env) closing(a *process, key string, fn func(context.Context)) (with <-chan error) {
	inside, done := make(chan struct{}), make(chan error, 1)
	e.Async(func() {
		done <- a.With(e.Ctx, key, func(ctx context.Context) error {
			close(inside)
			fn(ctx)
			return nil
		}, e.ttl(30))
	})
	e.Await(inside, "fn runs")
	ctx, cancel := context.WithTimeout(e.Ctx, e.Units(1))
	defer cancel()
	before := time.Now()
	err := a.Close(ctx)
	e.Want(time.Since(before) < e.Units(1)+e.Patience(), "Close took %v", time.Since(before))
	e.Is(err, context.DeadlineExceeded, "close while fn runs")
	return done
}

func closeGivesUp(e *env) {
	a, b := e.process(), e.process()
	var cause error
	with := e.closing(a, e.key("k"), func(ctx context.Context) {
		e.Await(ctx.Done(), "fn's context ends")
		cause = context.Cause(ctx)
	})
	select {
	case err := <-with:
		e.Is(err, lock.ErrLost, "with")
	case <-time.After(e.Patience()):
		e.Fail("fn's context has not ended")
	}
	var lost *lock.LostError
	e.Want(errors.As(cause, &lost) && lost.Cause == lock.Shutdown, "the cause is %v, want shutdown", cause)
	_ = b
}

func closeReleasesLast(e *env) {
	a, b := e.process(), e.process()
	var returned atomic.Bool
	with := e.closing(a, e.key("k"), func(ctx context.Context) {
		e.Await(ctx.Done(), "fn's context ends")
		e.Pass(3) // fn does not return at once
		returned.Store(true)
	})
	e.Never(e.Units(2), "another was granted the key while fn ran", func() bool {
		lease, err := b.try(e.key("k"))
		if err != nil {
			return false
		}
		e.releases(lease)
		return !returned.Load()
	})
	select {
	case err := <-with:
		e.Is(err, lock.ErrLost, "with")
	case <-time.After(e.Patience()):
		e.Fail("With does not return")
	}
}

func closeLeavesToTTL(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(4))
	ctx, cancel := context.WithTimeout(e.Ctx, e.Units(1))
	defer cancel()
	e.Is(a.Close(ctx), context.DeadlineExceeded, "close while a lease is held")
	e.Want(lease.Context().Err() != nil, "the lease has not ended")
	b.busy(e.key("k"))
	calls := a.plan.Calls(Renew)
	b.freeWithin(e.Units(5)+time.Second, e.key("k"))
	e.Want(a.plan.Calls(Renew) == calls, "it was renewed")
}

func closeMeetsAll(e *env) {
	for range suite.Scaled(5) {
		p := e.process()
		var users sync.WaitGroup
		for i := range 6 {
			users.Add(1)
			e.Async(func() {
				defer users.Done()
				for n := 0; ; n++ {
					err := p.With(e.Ctx, e.key(string(rune('a'+n%3))), func(context.Context) error { return nil })
					if errors.Is(err, lock.ErrClosed) {
						return
					}
					e.Must(err, "with, in goroutine %d", i)
					e.Sleep(e.Unit / 1024)
				}
			})
		}
		e.Sleep(e.Unit / 32)
		ctx, cancel := e.Bounded()
		e.All(8, func(int) { e.Must(p.Close(ctx), "close") })
		cancel()
		users.Wait()
		e.Want(p.Stats().Active == 0 && p.Stats().Waiting == 0, "after Close %+v", p.Stats())
	}
	p := e.process()
	for _, key := range []string{"a", "b", "c"} {
		p.freeWithin(e.Units(1)+e.slack(), e.key(key))
	}
}

func driverCloses(e *env) {
	a, b := e.driver(), e.driver()
	held := e.grant(a, e.longRequest(e.key("k")))
	r := e.longRequest(held.Key)
	r.Wait = -1
	done := make(chan error, 1)
	e.Async(func() {
		_, err := b.Acquire(e.Ctx, r)
		done <- err
	})
	e.Soon("it is queued", func() bool { return len(e.inspect(a, r.Key).Waiters) == 1 })
	e.Must(closeBounded(b), "close")
	select {
	case err := <-done:
		e.Is(err, driver.ErrClosed, "the waiter")
	case <-time.After(e.Patience()):
		e.Fail("the waiter of a closed driver waits on")
	}
	e.Must(closeBounded(b), "close again")
	_, err := b.Acquire(e.Ctx, e.request(e.key("other")))
	e.Is(err, driver.ErrClosed, "acquire after close")
	e.Must(e.release(a, held), "release")
	e.Eventually(3*time.Second, "nothing of the closed driver is queued or holds", func() bool {
		s := e.inspect(a, r.Key)
		return len(s.Waiters)+len(s.Holders) == 0
	})
}
