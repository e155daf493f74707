package locktest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

var handOverCases = []testCase{
	{rule: "L9", claim: "at most three of two thousand hand-overs wait for a repair", also: []string{"L7"}, run: handOvers},
	{rule: "L7", claim: "a long queue of processes is served in order", run: longQueue},
	{rule: "L7", claim: "waiters keep their places while they wait", run: placesAreKept},
	{rule: "L7", claim: "waiters keep their places while the backend is stopped", remote: true, needs: []fault{"Stop", "Continue"}, run: placesOverStall},
	{rule: "L10", claim: "an outage costs a bounded number of goroutines", alone: true, run: outageIsBounded},
	{rule: "L10", claim: "a queue of ten thousand tickets refuses further ones", also: []string{"L7"}, fake: true, run: fullQueue},
}

// handOvers hands a key over between two processes repeatedly. A hand-over is
// late if it took longer than a quarter of the interval at which lost pushes
// are repaired. A hand-over during which this process was stopped is not
// counted.
func handOvers(e *env) {
	n, most := suite.Scaled(2000), 3
	if e.h.FakeTime {
		n, most = 2000, 0 // it costs nothing
	}
	limit := e.h.Repair / 4
	stalls := e.watchStalls(limit / 4)
	pair := [2]*process{e.process(), e.process()}
	held := pair[0].acquire(e.key("k"), e.ttl(100))
	late, worst := 0, time.Duration(0)
	for i := range n {
		next := pair[(i+1)%2].ask(e.key("k"), e.ttl(100))
		e.Soon("it waits", func() bool { return pair[(i+1)%2].Stats().Waiting == 1 })
		e.hasTicket(pair[(i+1)%2], i)
		before, stalled := time.Now(), stalls()
		e.releases(held)
		held = next.leaseWithin(e.Patience())
		took := next.when.Sub(before)
		if took > limit || took > 0 && e.h.FakeTime {
			if stalls() == stalled {
				late++
				worst = max(worst, took)
			}
		}
		if late > most {
			break
		}
	}
	e.releases(held)
	e.Want(late <= most, "%d of %d hand-overs took longer than %v, one of them %v", late, n, limit, worst)
}

// hasTicket waits until the only waiter of p has its place at the backend. On
// real time it checks only in some rounds, because most requests arrive before
// a check could run.
func (e *env) hasTicket(p *process, round int) {
	if e.h.FakeTime {
		e.Soon("it is queued", func() bool { return len(e.inspect(p.opened, e.key("k")).Waiters) == 1 })
		return
	}
	if round%10 == 0 {
		e.Soon("it is queued", func() bool { return len(e.inspect(p.opened, e.key("k")).Waiters) == 1 })
	}
}

// watchStalls returns a function that returns the number of stalls: the times
// that a sleep of one millisecond took longer than limit.
func (e *env) watchStalls(limit time.Duration) func() int {
	if e.h.FakeTime {
		return func() int { return 0 }
	}
	var mu sync.Mutex
	count := 0
	ctx, stop := context.WithCancel(e.Ctx)
	e.AtEnd(stop)
	e.Async(func() {
		for last := time.Now(); ctx.Err() == nil; {
			time.Sleep(time.Millisecond)
			now := time.Now()
			if now.Sub(last) > limit {
				mu.Lock()
				count++
				mu.Unlock()
			}
			last = now
		}
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// longQueue uses a queue that is long enough to trigger rare failures.
func longQueue(e *env) {
	n := max(60, suite.Scaled(60)) // fewer would not notice an order that is swapped now and then
	if e.h.FakeTime {
		n = 120
	}
	processes := e.processes(4)
	holder := processes[0].acquire(e.key("k"), lock.FIFO(), e.ttl(100))
	waiters := make([]*asked, n)
	for i := range waiters {
		waiters[i] = processes[i%4].queue(e.key("k"), fmt.Sprint("waiter-", i), lock.FIFO(), e.ttl(100))
	}
	e.serveInOrder(holder, waiters)
}

// placesAreKept waits for longer than the interval of heartbeats.
func placesAreKept(e *env) {
	processes := e.processes(4)
	holder := processes[0].acquire(e.key("k"), e.ttl(200))
	var waiters []*asked
	for i, p := range processes[1:] {
		waiters = append(waiters, p.queue(e.key("k"), fmt.Sprint("waiter-", i), e.ttl(100)))
	}
	for range 30 { // no waiter leaves the queue in between
		e.Sleep(100 * time.Millisecond)
		queued := len(e.inspect(processes[0].opened, e.key("k")).Waiters)
		e.Want(queued == len(waiters), "%d of %d waiters are in the queue", queued, len(waiters))
	}
	e.serveInOrder(holder, waiters)
}

// placesOverStall stops the backend for longer than a waiter may be silent. A
// newcomer makes the first call when the backend continues.
func placesOverStall(e *env) {
	processes := e.processes(4)
	holder := processes[0].acquire(e.key("k"), lock.TTL(time.Minute))
	var waiters []*asked
	for i, p := range processes[1:3] {
		waiters = append(waiters, p.queue(e.key("k"), fmt.Sprint("waiter-", i), lock.TTL(time.Minute)))
	}
	e.untilQueued()
	for range 2 {
		e.Must(e.h.Faults.Stop(), "stop")
		e.Sleep(3 * time.Second)
		e.Must(e.h.Faults.Continue(), "continue")
		_, err := processes[3].try(e.key("k"))
		e.Want(err != nil, "a newcomer was granted a key that is held and waited for")
	}
	e.releases(holder)
	if lease, err := processes[3].try(e.key("k")); err == nil {
		e.Want(waiters[0].over(), "a newcomer has overtaken the waiters")
		e.releases(lease)
	}
	for i, w := range waiters {
		for _, later := range waiters[i+1:] {
			e.Want(!later.over() || w.over(), "a waiter was served before one that came earlier")
		}
		e.releases(w.leaseWithin(2 * e.Patience()))
	}
}

// outageIsBounded makes calls that fail and whose clean-up hangs.
func outageIsBounded(e *env) {
	p := e.process()
	p.free(e.key("k"))
	heal := []func(){p.plan.Add(Step{Op: Release, Hang: true}), p.plan.Add(Step{Op: Acquire, Err: errUnreachable})}
	const bound = 100
	before, most := suite.Goroutines(0), 0
	for i := range suite.Scaled(2000) {
		_, err := p.try(e.key(fmt.Sprint("k", i)), e.ttl(100))
		e.Want(isUnavailable(err), "got %v, want ErrUnavailable", err)
		most = max(most, suite.Goroutines(before+bound))
	}
	// The clean-ups wait for their timeout: the next ones start while time
	// passes.
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); e.Sleep(e.Unit / 64) {
		most = max(most, suite.Goroutines(before+bound))
	}
	// A clean-up costs up to two goroutines, its own and its context's, and 32 run
	// at once; without a bound there is one for each of the failed calls.
	e.Want(most-before <= bound, "%d goroutines clean up", most-before)
	for _, f := range heal {
		f()
	}
	e.Soon("the goroutines are back", func() bool { return suite.Goroutines(before+2) <= before+2 })
}

func fullQueue(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"), e.ttl(100))
	ctx, cancel := context.WithCancel(e.Ctx)
	calls := make([]*asked, 10_000)
	for i := range calls {
		calls[i] = b.askWith(ctx, e.key("k"), lock.FIFO())
	}
	e.Soon("all wait", func() bool { return len(e.inspect(a.opened, e.key("k")).Waiters) == len(calls) })
	err := b.ask(e.key("k"), lock.FIFO()).refused()
	e.Is(err, lock.ErrNotAcquired, "one more")
	e.hasCode(err, "lock.queue_full")
	cancel()
	for _, c := range calls {
		e.Is(c.refused(), context.Canceled, "a cancelled call")
	}
	e.releases(holder)
	b.free(e.key("k"))
}
