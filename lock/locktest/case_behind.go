package locktest

import (
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// Cases about requests that arrive while others wait. A driver may have a shorter
// way into a queue that has waiters, and has to keep the rules there too.
var behindCases = []testCase{
	{rule: "L6", claim: "the driver recognises a repeated request of the holder while others wait", also: []string{"L7"}, run: holderAsksAgain},
	{rule: "L6", claim: "the driver refuses a request that arrives after its release while others wait", also: []string{"L7"}, run: lateBehindOthers},
	{rule: "L7", claim: "a late copy of a queued request leaves it in its place", needs: []fault{"Duplicate"}, run: copyKeepsPlace},
	{rule: "L15", claim: "a pool with waiters drains when it shrinks", also: []string{"L7"}, run: shrunkWithWaiters},
	{rule: "L20", claim: "the driver grants a free key at once after a request was withdrawn, with and without a wait", run: freeAfterWithdrawal},
	{rule: "L21", claim: "the driver refuses a call without a wait at once while others wait", also: []string{"L7"}, run: noWaitBehindOthers},
}

// heldAndWanted returns the grant of a new request r of d, for which a request of
// another driver waits until the end of the case.
func (e *env) heldAndWanted(d driver.Driver, r driver.Request) driver.Grant {
	held := e.grant(d, r)
	other, behind := e.driver(), e.longRequest(r.Key)
	behind.Wait = -1
	e.Async(func() { _, _ = other.Acquire(e.Ctx, behind) })
	e.Soon("it is queued", func() bool { return len(e.inspect(d, r.Key).Waiters) == 1 })
	return held
}

// oneWaits fails the case unless the queue has the waiter of heldAndWanted alone.
func (e *env) oneWaits(d driver.Driver, key string) {
	waiters := e.inspect(d, key).Waiters
	e.Want(len(waiters) == 1, "%d requests wait, want 1: %+v", len(waiters), waiters)
}

func holderAsksAgain(e *env) {
	d := e.driver()
	r := e.longRequest(e.key("k"))
	r.Wait = -1
	held := e.heldAndWanted(d, r)
	again := e.grant(d, r)
	e.Want(again.Fence == held.Fence && !again.Queued, "got %+v, and again %+v", held, again)
	e.oneWaits(d, r.Key)
	e.Must(e.release(d, held), "release")
}

func lateBehindOthers(e *env) {
	d, other := e.driver(), e.driver()
	held := e.heldAndWanted(d, e.longRequest(e.key("k")))
	r := e.longRequest(held.Key)
	r.Wait = -1
	e.Is(e.release(d, driver.Grant{Key: r.Key, Token: r.Token}), driver.ErrLost, "release what was never asked for")
	for _, late := range []driver.Driver{d, other} {
		ctx, cancel := e.Bounded()
		_, err := late.Acquire(ctx, r)
		e.Want(err != nil && ctx.Err() == nil, "a request that was withdrawn was queued: %v", err)
		cancel()
		e.oneWaits(d, r.Key)
	}
	e.Must(e.release(d, held), "release")
}

func copyKeepsPlace(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	holder := a.acquire(e.key("k"))
	late := e.Units(1)
	e.Must(e.h.Faults.Duplicate(b.opened, Acquire, late), "duplicate")
	first := b.queue(e.key("k"), "first")
	second := c.queue(e.key("k"), "second")
	e.Sleep(2 * late)
	e.serveInOrder(holder, []*asked{first, second})
}

func shrunkWithWaiters(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	large, small := lock.Slots(2), lock.Slots(1)
	held := []*lock.Lease{a.acquire(e.key("pool"), large), a.acquire(e.key("pool"), large)}
	next := b.queue(e.key("pool"), "next", large)
	last := c.queue(e.key("pool"), "last", small)
	e.releases(held[1])
	e.Never(e.Units(0.5), "a pool of one was lent while one of the larger pool was held", next.over)
	e.releases(held[0])
	e.releases(next.lease())
	e.releases(last.lease())
}

func freeAfterWithdrawal(e *env) {
	d := e.driver()
	r := e.request(e.key("k"))
	for _, wait := range []time.Duration{time.Millisecond, -1, 0} {
		e.Is(e.release(d, driver.Grant{Key: r.Key, Token: token()}), driver.ErrLost, "release what was never asked for")
		r.Token, r.Wait = token(), wait
		g := e.grant(d, r)
		e.Want(!g.Queued, "a request for a free key with a wait of %v was queued", wait)
		e.Must(e.release(d, g), "release")
	}
}

func noWaitBehindOthers(e *env) {
	d := e.driver()
	held := e.heldAndWanted(d, e.longRequest(e.key("k")))
	ctx, cancel := e.Bounded()
	defer cancel()
	_, err := d.Acquire(ctx, e.longRequest(held.Key))
	e.Is(err, driver.ErrNotAcquired, "a call without a wait")
	e.oneWaits(d, held.Key)
	e.Must(e.release(d, held), "release")
}
