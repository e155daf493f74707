package locktest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var orderCases = []testCase{
	{rule: "L7", claim: "the waiters of one process are served in order", run: orderInOneProcess},
	{rule: "L7", claim: "under FIFO the waiters of all processes are served in order", run: orderAcrossProcesses},
	{rule: "L7", claim: "the driver serves requests in order", run: driverServesInOrder},
	{rule: "L7", claim: "the first waiters of several processes are served in order", run: firstOfEachInOrder},
	{rule: "L7", claim: "at most 16 of a process follow one another while another process waits", remote: true, run: sixteenInARow},
	{rule: "L7", claim: "a process hands on its lock for at most 100 ms", remote: true, run: turnIsOver},
	{rule: "L7", claim: "a call without a wait does not jump the queue", run: tryDoesNotJump},
	{rule: "L7", claim: "a waiter in the middle that gives up leaves the order as it was", run: middleGivesUp},
	{rule: "L7", claim: "every waiter gets a share", run: everyoneHasAShare},
	{rule: "L7", claim: "a waiter of ten minutes is still served, in order", run: tenMinutes},
	{rule: "L7", claim: "a queue of pool requests is served in order", also: []string{"L15"}, run: poolInOrder},
	{rule: "L7", claim: "a wait for one key does not delay another", run: keysAreApart},
}

// serveInOrder releases the holder, then each waiter as it is served, and
// fails the case if they are not served in the order given.
func (e *env) serveInOrder(holder *lock.Lease, waiters []*asked) {
	for i, w := range waiters {
		for _, later := range waiters[i:] {
			e.Want(!later.over(), "a waiter was served while the lease before it was held")
		}
		e.releases(holder)
		next := w.lease()
		e.Want(next.Fence() > holder.Fence(), "fence %d follows %d", next.Fence(), holder.Fence())
		holder = next
	}
	e.releases(holder)
}

func orderInOneProcess(e *env) {
	p := e.process()
	holder := p.acquire(e.key("k"))
	waiters := make([]*asked, 8)
	for i := range waiters {
		waiters[i] = p.queue(e.key("k"), fmt.Sprint("waiter-", i))
	}
	e.serveInOrder(holder, waiters)
}

func orderAcrossProcesses(e *env) {
	processes := e.processes(3)
	holder := processes[0].acquire(e.key("k"), lock.FIFO())
	waiters := make([]*asked, 9)
	for i := range waiters {
		// The order is neither grouped by process nor alternating.
		waiters[i] = processes[i*i%3].queue(e.key("k"), fmt.Sprint("waiter-", i), lock.FIFO())
	}
	e.serveInOrder(holder, waiters)
}

func firstOfEachInOrder(e *env) {
	processes := e.processes(4)
	holder := processes[0].acquire(e.key("k"))
	var waiters []*asked
	for _, i := range []int{2, 1, 3} {
		waiters = append(waiters, processes[i].queue(e.key("k"), fmt.Sprint("waiter-", i)))
	}
	e.serveInOrder(holder, waiters)
}

func driverServesInOrder(e *env) {
	a, b := e.driver(), e.driver()
	held := e.grant(a, e.longRequest(e.key("k")))
	served := make(chan int, 6)
	grants := make([]driver.Grant, 6)
	for i := range grants {
		r := e.longRequest(held.Key)
		r.Wait, r.FIFO = -1, true
		e.Async(func() {
			g, err := []driver.Driver{a, b}[i%2].Acquire(e.Ctx, r)
			e.Must(err, "wait")
			grants[i] = g
			served <- i
		})
		e.Soon("it is queued", func() bool { return len(e.inspect(a, r.Key).Waiters) == i+1 })
	}
	for want := range grants {
		e.Must(e.release(a, held), "release")
		select {
		case got := <-served:
			e.Want(got == want, "number %d was served, want %d", got, want)
			held = grants[got]
		case <-time.After(e.Patience()):
			e.Fail("nobody was served")
		}
	}
	e.Must(e.release(a, held), "release")
}

// row starts 40 waiters of one process and one waiter of another, and returns
// how many of the 40 are served before the one.
func (e *env) row(hold time.Duration) int64 {
	many, one := e.process(), e.process()
	holder := many.acquire(e.key("k"))
	other := one.queue(e.key("k"), "the other")
	var served, done, before atomic.Int64
	const n = 40
	for range n {
		e.Async(func() {
			lease, err := many.Acquire(e.Ctx, e.key("k"))
			e.Must(err, "acquire")
			served.Add(1)
			if hold > 0 {
				e.Sleep(hold)
			}
			e.releases(lease)
			done.Add(1)
		})
	}
	e.Soon("all wait", func() bool { return many.Stats().Waiting == n })
	e.Async(func() {
		lease := other.leaseWithin(4 * e.Patience())
		before.Store(served.Load())
		e.releases(lease)
	})
	e.releases(holder)
	e.Eventually(4*e.Patience(), "all are served", func() bool { return done.Load() == n && one.Stats().Active == 0 })
	return before.Load()
}

func sixteenInARow(e *env) {
	n := e.row(0)
	e.Want(n <= 16, "%d of one process were served before the other's turn", n)
	e.Want(n > 0 || !e.h.FakeTime, "none was handed on within the turn")
}

func turnIsOver(e *env) {
	const hold = 30 * time.Millisecond
	n := e.row(hold)
	e.Want(n <= 5, "%d holders of %v were served before the other's turn", n, hold)
}

func tryDoesNotJump(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	for range suite.Scaled(20) {
		holder := a.acquire(e.key("k"))
		next := b.queue(e.key("k"), "next")
		e.releases(holder)
		if lease, err := c.TryAcquire(e.Ctx, e.key("k")); err == nil {
			// The waiter may already have been served and finished.
			e.Want(next.over(), "a newcomer has overtaken the waiter")
			e.releases(lease)
		}
		e.releases(next.lease())
	}
}

func middleGivesUp(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"), lock.FIFO())
	var waiters []*asked
	for i := range 5 {
		p := []*process{a, b}[i%2]
		waiters = append(waiters, p.queue(e.key("k"), fmt.Sprint("waiter-", i), lock.FIFO()))
	}
	waiters[2].cancel()
	_ = waiters[2].refused()
	waiters[0].cancel()
	_ = waiters[0].refused()
	e.serveInOrder(holder, []*asked{waiters[1], waiters[3], waiters[4]})
}

func everyoneHasAShare(e *env) {
	processes := e.processes(3)
	each := max(suite.Scaled(60), 40) // several turns of 16
	const n = 6
	var counts [n]atomic.Int64
	var first atomic.Bool
	e.All(n, func(i int) {
		for range each {
			lease, err := processes[i%3].Acquire(e.Ctx, e.key("k"))
			e.Must(err, "acquire")
			e.Sleep(100 * time.Microsecond)
			e.releases(lease)
			counts[i].Add(1)
		}
		if first.CompareAndSwap(false, true) {
			for other := range counts {
				got := counts[other].Load()
				e.Want(got >= int64(each)/4, "one had %d turns when another had %d", got, each)
			}
		}
	})
}

func tenMinutes(e *env) {
	wait := 10 * time.Minute
	if !e.h.FakeTime {
		wait = e.Units(10)
	}
	a, b, c := e.process(), e.process(), e.process()
	holder := a.acquire(e.key("k"))
	first := b.queue(e.key("k"), "first")
	e.Sleep(wait)
	second := c.queue(e.key("k"), "second")
	e.serveInOrder(holder, []*asked{first, second})
}

func poolInOrder(e *env) {
	p := e.process()
	pool := lock.Slots(2)
	held := []*lock.Lease{p.acquire(e.key("pool"), pool), p.acquire(e.key("pool"), pool)}
	var waiters []*asked
	for i := range 6 {
		waiters = append(waiters, p.queue(e.key("pool"), fmt.Sprint("waiter-", i), pool))
	}
	for i, w := range waiters {
		e.releases(held[i%2])
		held[i%2] = w.lease()
		if i+1 < len(waiters) {
			e.Want(!waiters[i+1].over(), "two were served for one slot")
		}
	}
	e.releases(held...)
}

func keysAreApart(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("held"))
	next := b.queue(e.key("held"), "next")
	for i := range 10 {
		e.releases(b.acquire(e.key(fmt.Sprint("free-", i))))
	}
	e.Want(!next.over(), "the waiter was served while the key was held")
	e.releases(holder)
	e.releases(next.lease())
}
