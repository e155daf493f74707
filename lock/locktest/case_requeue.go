package locktest

import (
	"context"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock"
)

var requeueCases = []testCase{
	{rule: "L7", claim: "waiters that the backend has forgotten come back to their places", remote: true, needs: []fault{"Flush"}, run: placesOverFlush},
	{rule: "L8", claim: "a waiter that is cut off silently costs the next one a grant window", remote: true, also: []string{"L7"}, needs: []fault{"Partition"}, run: silentWaiter},
}

// placesOverFlush makes the backend forget the queue. A newcomer acquires the
// key, so that the waiters, which return one by one, queue again.
func placesOverFlush(e *env) {
	const waiters = 6
	processes := e.processes(waiters + 2)
	processes[0].acquire(e.key("k"), e.ttl(200), lock.NoRenew())
	queue := make([]*asked, waiters)
	for i := range queue {
		queue[i] = processes[i+1].queue(e.key("k"), fmt.Sprint("waiter-", i), e.ttl(100))
	}
	e.hearsItIsQueued()
	newcomer := processes[waiters+1]
	var holder *lock.Lease
	for holder == nil { // a waiter that returns at once may be faster
		e.must(e.h.Faults.Flush(), "flush")
		lease, err := newcomer.try(e.key("k"), e.ttl(200))
		if err == nil {
			holder = lease
		}
		for _, w := range queue {
			e.want(!w.over(), "a waiter was served before it was back in the queue")
		}
	}
	e.soon("all waiters are back", func() bool { return len(e.inspect(newcomer.opened, e.key("k")).Waiters) == waiters })
	e.serveInOrder(holder, queue)
}

// silentWaiter cuts off the first waiter and frees the key at once, so that the
// backend grants it to a process that cannot receive the grant.
func silentWaiter(e *env) {
	holder, cut, next := e.process(), e.process(), e.process()
	lease := holder.acquire(e.key("k"), e.ttl(100))
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	first := cut.askWith(ctx, e.key("k"), e.ttl(2))
	e.soon("it is queued", func() bool { return len(e.inspect(holder.opened, e.key("k")).Waiters) == 1 })
	second := next.queue(e.key("k"), "next", e.ttl(100))
	e.hearsItIsQueued()
	heal, err := e.h.Faults.Partition(cut.opened)
	e.must(err, "partition")
	start := time.Now()
	e.releases(lease)
	got := second.leaseWithin(2 * e.patience())
	took := time.Since(start)
	e.want(took < 2*time.Second+e.patience()/2, "the next waiter was served after %v", took)
	e.releases(got)
	cancel()
	e.must(heal(), "heal")
	_ = first.refused()
}
