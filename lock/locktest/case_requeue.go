package locktest

import (
	"context"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock"
)

var requeueCases = []testCase{
	{rule: "L7", claim: "waiters that the backend has lost return to their places", remote: true, needs: []fault{"Flush"}, run: placesOverFlush},
	{rule: "L8", claim: "a silently disconnected waiter delays the next one by one grant window", remote: true, also: []string{"L7"}, needs: []fault{"Partition"}, run: silentWaiter},
}

// placesOverFlush makes the backend forget the queue. A newcomer acquires the
// key, so that the waiters, which return one by one, queue again. It does so twice,
// because they may return in the order of their places by chance.
func placesOverFlush(e *env) {
	const waiters, rounds = 6, 20
	processes, served := e.processes(waiters+2), 0
	for round := 0; round < rounds && served < 2; round++ {
		key := e.key(fmt.Sprint("k", round))
		processes[0].acquire(key, e.ttl(200), lock.NoRenew())
		queue := make([]*asked, waiters)
		for i := range queue {
			queue[i] = processes[i+1].queue(key, fmt.Sprint("waiter-", i), e.ttl(100))
		}
		e.untilQueued()
		newcomer := processes[waiters+1]
		e.Must(e.h.Faults.Flush(), "flush")
		holder, err := newcomer.try(key, e.ttl(200))
		if err != nil { // a waiter was faster; on a busy machine this happens
			e.leave(queue)
			continue
		}
		e.Soon("all waiters are back", func() bool { return len(e.inspect(newcomer.opened, key).Waiters) == waiters })
		e.serveInOrder(holder, queue)
		served++
	}
	e.Want(served > 0, "in %d rounds a waiter was served before the others were back", rounds)
}

// leave ends calls, with or without a lease.
func (e *env) leave(calls []*asked) {
	for _, c := range calls {
		c.cancel()
	}
	for _, c := range calls {
		c.wait(e.Patience())
		if c.err == nil {
			_ = c.got.Release() // lost or not, the key is not used again
		}
	}
}

// silentWaiter cuts off the first waiter and frees the key at once, so that the
// backend grants it to a process that cannot receive the grant.
func silentWaiter(e *env) {
	holder, cut, next := e.process(), e.process(), e.process()
	lease := holder.acquire(e.key("k"), e.ttl(100))
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	first := cut.askWith(ctx, e.key("k"), e.ttl(2))
	e.Soon("it is queued", func() bool { return len(e.inspect(holder.opened, e.key("k")).Waiters) == 1 })
	second := next.queue(e.key("k"), "next", e.ttl(100))
	e.untilQueued()
	heal, err := e.h.Faults.Partition(cut.opened)
	e.Must(err, "partition")
	start := time.Now()
	e.releases(lease)
	got := second.leaseWithin(2 * e.Patience())
	took := time.Since(start)
	e.Want(took < 2*time.Second+e.Patience()/2, "the next waiter was served after %v", took)
	e.releases(got)
	cancel()
	e.Must(heal(), "heal")
	_ = first.refused()
}
