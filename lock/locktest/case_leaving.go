package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

var leavingCases = []testCase{
	{rule: "L8", claim: "a call with an ended context does not call the driver", run: endedBefore},
	{rule: "L8", claim: "a waiter whose context ends leaves nothing behind and returns the cause", run: cancelledWaiter},
	{rule: "L8", claim: "a waiter whose wait has passed returns the holders", run: timedOutWaiter},
	{rule: "L8", claim: "a deadline of the context differs from the end of the wait", run: contextDeadline},
	{rule: "L8", claim: "a wait that ends at the moment of the grant loses nothing", run: timeoutMeetsGrant},
	{rule: "L8", claim: "a cancellation at the moment of the grant loses nothing", run: cancelMeetsGrant},
	{rule: "L8", claim: "a process without waiters has no ticket", also: []string{"L7"}, run: allGiveUp},
	{rule: "L8", claim: "a holder that crashes is succeeded at its TTL", needs: []fault{"Crash"}, run: crashedHolder},
	{rule: "L8", claim: "any number of dead waiters delay the next one by one grant window", remote: true, also: []string{"L7"}, needs: []fault{"Crash"}, run: deadWaiters},
	{rule: "L8", claim: "a dead waiter is out of the queue, of Inspect and of List within 10 s", remote: true, also: []string{"L7"}, needs: []fault{"Crash"}, run: deadWaiterIsForgotten},
}

func endedBefore(e *env) {
	p := e.process()
	ctx, cancel := context.WithCancelCause(e.Ctx)
	cause := errors.New("the user has gone")
	cancel(cause)
	_, err := p.Acquire(ctx, e.key("k"))
	e.Is(err, context.Canceled, "acquire")
	e.Is(err, cause, "acquire")
	_, err = p.TryAcquire(ctx, e.key("k"))
	e.Is(err, context.Canceled, "try")
	called := false
	err = p.With(ctx, e.key("k"), func(context.Context) error { called = true; return nil })
	e.Is(err, context.Canceled, "with")
	e.Want(!called, "fn was called")
	s, err := p.Inspect(e.Ctx, e.key("k"))
	e.Must(err, "inspect")
	e.Want(len(s.Holders)+len(s.Waiters) == 0, "left %+v", s)
}

func cancelledWaiter(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	holder := a.acquire(e.key("k"))
	ctx, cancel := context.WithCancelCause(e.Ctx)
	cause := errors.New("the user has gone")
	gone := b.askWith(ctx, e.key("k"), lock.Label("gone"))
	b.isQueued(e.key("k"), "gone")
	next := c.queue(e.key("k"), "next")
	cancel(cause)
	err := gone.refused()
	e.Is(err, context.Canceled, "the cancelled call")
	e.Is(err, cause, "the cancelled call")
	e.Want(!errors.Is(err, lock.ErrUnavailable), "a cancellation was taken for an outage: %v", err)
	e.Want(b.Stats().Waiting == 0, "%d wait", b.Stats().Waiting)
	if e.keeps("L7") {
		e.Soon("it is not queued", func() bool {
			s, err := a.Inspect(e.Ctx, e.key("k"))
			e.Must(err, "inspect")
			return len(s.Waiters) == 1
		})
	}
	e.releases(holder)
	e.releases(next.lease())
	c.free(e.key("k"))
}

func timedOutWaiter(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"), lock.Label("the holder"))
	before := time.Now()
	_, err := b.Acquire(e.Ctx, e.key("k"), lock.Wait(e.Units(1.5)))
	took := time.Since(before)
	e.Is(err, lock.ErrNotAcquired, "the call whose wait has passed")
	e.Want(!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lock.ErrUnavailable), "got %v", err)
	e.Want(e.Units(1) <= took && took < e.Units(1)+e.Patience(), "it took %v", took)
	var busy *lock.NotAcquiredError
	e.Want(errors.As(err, &busy), "got %T, want a *NotAcquiredError", err)
	e.Want(busy.Key == e.key("k") && busy.Waited >= e.Units(1), "the error has %+v", busy)
	e.Want(len(busy.Holders) == 1 && busy.Holders[0].Label == "the holder", "the error names the holder %+v", busy.Holders)
	if e.keeps("L7") {
		e.Want(busy.Position == 1, "its position is %d", busy.Position)
	}
	_, err = b.try(e.key("k"))
	e.Want(errors.As(err, &busy) && len(busy.Holders) == 1, "a call without a wait returned %v", err)
	e.releases(holder)
	b.free(e.key("k"))
}

func contextDeadline(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"))
	ctx, cancel := context.WithTimeout(e.Ctx, e.Units(1))
	defer cancel()
	_, err := b.Acquire(ctx, e.key("k"), e.long())
	e.Is(err, context.DeadlineExceeded, "the call whose context has ended")
	e.Want(!errors.Is(err, lock.ErrUnavailable), "it was taken for an outage: %v", err)
	e.releases(holder)
	b.free(e.key("k"))
}

// timeoutMeetsGrant releases the lease at the instant at which the waiter gives
// up.
func timeoutMeetsGrant(e *env) {
	a, b := e.process(), e.process()
	for i := range e.rounds() {
		holder := a.acquire(e.key("k"))
		wait := e.Unit / 8
		call := b.ask(e.key("k"), lock.Wait(wait))
		e.Sleep(wait - e.jitter(i))
		e.releases(holder)
		e.settles(call)
	}
}

func cancelMeetsGrant(e *env) {
	a, b := e.process(), e.process()
	for i := range e.rounds() {
		// In one process, the waiter is served before it detects the end of its
		// wait.
		holder := b.acquire(e.key("k"))
		call := b.queue(e.key("k"), "waiter")
		call.cancel()
		e.releases(holder)
		e.settles(call)

		holder = a.acquire(e.key("k"))
		call = b.queue(e.key("k"), "waiter")
		time.AfterFunc(e.Unit/16, call.cancel)
		e.Sleep(e.Unit/16 - e.jitter(i))
		e.releases(holder)
		e.settles(call)
	}
}

// rounds returns the number of attempts for a race; attempts are cheap on fake
// time.
func (e *env) rounds() int {
	if e.h.FakeTime {
		return suite.Scaled(200)
	}
	return suite.Scaled(20)
}

// jitter returns 0 in every other round, so that both events happen at the same
// instant on fake time.
func (e *env) jitter(i int) time.Duration {
	if i%2 == 0 {
		return 0
	}
	return rand.N(e.Unit / 64)
}

// settles fails the case unless the call holds the key or the key is free.
func (e *env) settles(call *asked) {
	call.wait(e.Patience())
	if call.err == nil {
		_ = call.got.Release()
	} else {
		e.Want(errors.Is(call.err, lock.ErrNotAcquired) || errors.Is(call.err, context.Canceled), "the call ended with %v", call.err)
	}
	e.outsider().freeWithin(e.Patience(), call.key)
}

// outsider returns a separate process that only inspects keys.
func (e *env) outsider() *process {
	if e.looker == nil {
		e.looker = e.process()
	}
	return e.looker
}

func allGiveUp(e *env) {
	a, b := e.process(), e.process()
	d := e.driver()
	holder := a.acquire(e.key("k"))
	var calls []*asked
	for i := range 50 {
		calls = append(calls, b.ask(e.key("k"), lock.Label(fmt.Sprint(i))))
	}
	e.Soon("all wait", func() bool { return b.Stats().Waiting == 50 && len(e.inspect(d, e.key("k")).Waiters) > 0 })
	for _, c := range calls {
		c.cancel()
	}
	for _, c := range calls {
		e.Is(c.refused(), context.Canceled, "a cancelled call")
	}
	e.Soon("nothing is queued", func() bool { return len(e.inspect(d, e.key("k")).Waiters) == 0 })
	e.releases(holder)
	a.free(e.key("k"))
}

func crashedHolder(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(3))
	next := b.queue(e.key("k"), "next")
	e.Must(e.h.Faults.Crash(a.opened), "crash")
	crashed := time.Now()
	got := next.leaseWithin(e.Units(3) + e.Patience())
	took := next.when.Sub(crashed)
	e.Want(took <= e.Units(3)+2*time.Second, "the next had it %v after the crash of a holder whose TTL is %v", took, e.Units(3))
	e.Want(got.Fence() > lease.Fence(), "fence %d follows %d", got.Fence(), lease.Fence())
	e.releases(got)
}

func deadWaiters(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"), e.ttl(100))
	for i := range 5 {
		dead := e.process()
		dead.queue(e.key("k"), fmt.Sprint("dead-", i), e.ttl(100))
		e.Must(e.h.Faults.Crash(dead.opened), "crash")
	}
	next := b.queue(e.key("k"), "next")
	e.releases(holder)
	free := time.Now()
	got := next.leaseWithin(e.Units(60))
	took := next.when.Sub(free)
	e.Want(took <= 2*time.Second+e.Unit, "five dead waiters cost the next one %v", took)
	e.releases(got)
}

// deadWaiterIsForgotten has a waiter die between the holder and another waiter.
func deadWaiterIsForgotten(e *env) {
	a, dead, b := e.process(), e.process(), e.process()
	holder := a.acquire(e.key("k"), e.ttl(100))
	dead.queue(e.key("k"), "dead")
	next := b.queue(e.key("k"), "next")
	e.Must(e.h.Faults.Crash(dead.opened), "crash")
	e.Eventually(10*time.Second+e.slack(), "only the other waiter is shown", func() bool {
		s, err := a.Inspect(e.Ctx, e.key("k"))
		e.Must(err, "inspect")
		all, err := a.List(e.Ctx, e.key("k"))
		e.Must(err, "list")
		e.Want(len(all) == 1, "%d keys are listed, want 1", len(all))
		return len(s.Waiters) == 1 && len(all[0].Waiters) == 1
	})
	e.releases(holder)
	e.releases(next.lease())
}
