package locktest

import (
	"fmt"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

var wakeCases = []testCase{
	{rule: "L9", claim: "a release wakes the next one up at once", run: wokenAtOnce},
	{rule: "L9", claim: "waiting makes no calls", run: waitingIsIdle},
	{rule: "L9", claim: "waiting costs the backend next to nothing", needs: []fault{"Commands"}, run: waitingIsCheap},
	{rule: "L9", claim: "a lost push is repaired", needs: []fault{"BreakPush"}, run: lostPush},
	{rule: "L9", claim: "many lost pushes at once are repaired", needs: []fault{"BreakPush"}, run: manyLostPushes},
	{rule: "L9", claim: "a release that meets the beginning of a wait is not missed", run: releaseMeetsWait},
}

func wokenAtOnce(e *env) {
	a, b := e.process(), e.process()
	key, size := e.key("k"), lock.Slots(1)
	for i := range 20 {
		if i == 10 {
			if !e.keeps("L15") {
				return
			}
			key, size = e.key("pool"), lock.Slots(2)
			a.acquire(key, size, e.ttl(100))
		}
		holder := a.acquire(key, size, e.ttl(60))
		next := b.queue(key, "next", size, e.ttl(60))
		before := time.Now()
		e.releases(holder)
		e.releases(next.leaseWithin(e.Units(10)))
		took := next.when.Sub(before)
		e.Want(took == 0 || !e.h.FakeTime, "on a clock that stands still it took %v", took)
	}
}

// waitingIsIdle counts the calls of a process that only waits: it sends one
// request to the backend and does not poll.
func waitingIsIdle(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"))
	for i := range 20 {
		b.queue(e.key("k"), fmt.Sprint(i))
	}
	looks := b.plan.Calls(Inspect)
	before := b.plan.Calls(Any)
	e.Pass(12)
	more := b.plan.Calls(Any) - before - (b.plan.Calls(Inspect) - looks)
	e.Want(more <= 1, "20 idle waiters have made %d calls", more)
	e.releases(holder)
}

func waitingIsCheap(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"), lock.TTL(time.Hour))
	for i := range 200 {
		b.ask(e.key("k"), lock.Label(fmt.Sprint(i)))
	}
	e.Soon("all wait", func() bool { return b.Stats().Waiting == 200 })
	b.isQueued(e.key("k"), "0")
	const span = 5 * time.Second
	began := time.Now()
	before, err := e.h.Faults.Commands()
	e.Must(err, "count commands")
	e.Sleep(span)
	after, err := e.h.Faults.Commands()
	e.Must(err, "count commands")
	took := time.Since(began)
	e.Want(after-before <= 2*int(took.Seconds())+4, "200 idle waiters have cost %d commands in %v", after-before, took)
	e.releases(holder)
}

func lostPush(e *env) {
	a, b := e.process(), e.process()
	for range 3 {
		holder := a.acquire(e.key("k"), e.ttl(60))
		next := b.queue(e.key("k"), "next", e.ttl(60))
		e.Must(e.h.Faults.BreakPush(), "break push")
		e.releases(holder)
		e.releases(next.leaseWithin(5 * time.Second))
	}
}

func manyLostPushes(e *env) {
	a, b := e.process(), e.process()
	const n = 100
	var holders []*lock.Lease
	var waiters []*asked
	for i := range n {
		key := e.key(fmt.Sprint("k", i))
		holders = append(holders, a.acquire(key, e.ttl(100)))
		waiters = append(waiters, b.ask(key, e.ttl(100)))
	}
	e.Soon("all wait", func() bool { return b.Stats().Waiting == n })
	e.Must(e.h.Faults.BreakPush(), "break push")
	e.releases(holders...)
	for _, w := range waiters {
		e.releases(w.leaseWithin(10 * time.Second))
	}
}

// releaseMeetsWait releases a lease while the next request is on its way to the
// queue.
func releaseMeetsWait(e *env) {
	a, b := e.process(), e.process()
	for range suite.Scaled(50) {
		holder := a.acquire(e.key("k"), e.ttl(100))
		next := b.ask(e.key("k"), e.ttl(100))
		e.releases(holder)
		e.releases(next.leaseWithin(e.Units(10)))
	}
}
