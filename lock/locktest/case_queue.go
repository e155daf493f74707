package locktest

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

var queueCases = []testCase{
	{rule: "L10", claim: "a thousand waiters of a process are one ticket for other processes", remote: true, run: oneRemoteWaiter},
	{rule: "L10", claim: "under FIFO each waiter is a ticket for other processes", remote: true, run: eachRemoteWaiter},
	{rule: "L10", claim: "a hand-on inside a process costs the backend nothing", remote: true, run: handOnIsFree},
	{rule: "L10", claim: "a waiter that gives up leaves its place to the next one of its process", remote: true, run: placeIsPassedOn},
	{rule: "L10", claim: "each lease has its own token and TTL", run: leasesOfTheirOwn},
	{rule: "L10", claim: "a pool and a lease without renewal are not handed on", remote: true, also: []string{"L15"}, run: notHandedOn},
	{rule: "L10", claim: "an outage answers all waiters at once", remote: true, run: outageAnswersAll},
	{rule: "L10", claim: "other processes see the holder and its waiters", remote: true, run: seenFromInside},
	{rule: "L10", claim: "the number of connections does not depend on the number of waiters", needs: []fault{"Connections"}, run: fixedConnections},
	{rule: "L10", claim: "thousands of keys can have waiters", run: manyKeys},
}

func oneRemoteWaiter(e *env) {
	a, b, d := e.process(), e.process(), e.driver()
	n := suite.Scaled(1000)
	holder := a.acquire(e.key("k"))
	before := b.plan.Calls(Any)
	var done atomic.Int64
	for range n {
		e.Async(func() {
			lease, err := b.Acquire(e.Ctx, e.key("k"))
			e.Must(err, "acquire")
			e.releases(lease)
			done.Add(1)
		})
	}
	e.Soon("all wait", func() bool { return b.Stats().Waiting == int64(n) })
	waiters := func() int { return len(e.inspect(d, e.key("k")).Waiters) }
	e.Soon("one waits at the backend", func() bool { return waiters() == 1 })
	e.Never(e.Units(1), "more than one waits at the backend", func() bool { return waiters() > 1 })
	e.Want(b.plan.Calls(Any)-before <= 2, "%d waiters made %d calls", n, b.plan.Calls(Any)-before)
	e.releases(holder)
	e.Eventually(4*e.Patience(), "all are served", func() bool { return done.Load() == int64(n) })
	used := b.plan.Calls(Any) - before
	e.Want(used <= 2*n/8+10, "%d leases in a row cost %d calls", n, used)
	a.free(e.key("k"))
}

func eachRemoteWaiter(e *env) {
	a, b, d := e.process(), e.process(), e.driver()
	holder := a.acquire(e.key("k"), lock.FIFO())
	var calls []*asked
	for i := range 5 {
		calls = append(calls, b.queue(e.key("k"), fmt.Sprint(i), lock.FIFO()))
	}
	waiters := e.inspect(d, e.key("k")).Waiters
	e.Want(len(waiters) == 5, "%d wait at the backend, want 5", len(waiters))
	e.serveInOrder(holder, calls)
}

func handOnIsFree(e *env) {
	p := e.process()
	before := p.plan.Calls(Any)
	holder := p.acquire(e.key("k"), e.ttl(60))
	var done atomic.Int64
	for range 16 {
		e.Async(func() {
			lease, err := p.Acquire(e.Ctx, e.key("k"), e.ttl(60))
			e.Must(err, "acquire")
			e.releases(lease)
			done.Add(1)
		})
	}
	e.Soon("all wait", func() bool { return p.Stats().Waiting == 16 })
	e.releases(holder)
	e.Soon("all are served", func() bool { return done.Load() == 16 })
	handed := 0
	for _, a := range eventsOf[lock.Acquired](p) {
		if a.Handed {
			handed++
		}
	}
	calls := p.plan.Calls(Any) - before
	e.Want(calls <= 2*(17-handed)+2, "17 leases, %d of them handed on, cost %d calls", handed, calls)
	if e.h.FakeTime { // otherwise the turn may end first
		e.Want(handed == 16, "%d of 16 were handed on", handed)
	}
}

func placeIsPassedOn(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	holder := a.acquire(e.key("k"))
	first := b.queue(e.key("k"), "first of b")
	second := b.queue(e.key("k"), "second of b")
	other := c.queue(e.key("k"), "other")
	first.cancel()
	_ = first.refused()
	e.serveInOrder(holder, []*asked{second, other})
}

func leasesOfTheirOwn(e *env) {
	p := e.process()
	holder := p.acquire(e.key("k"), e.ttl(3))
	same := p.queue(e.key("k"), "same", e.ttl(3))
	longer := p.queue(e.key("k"), "longer", e.ttl(30))
	tokens := map[string]bool{holder.Token(): true}
	e.releases(holder)
	second := same.lease()
	tokens[second.Token()] = true
	e.releases(second)
	third := longer.lease()
	tokens[third.Token()] = true
	e.Want(len(tokens) == 3, "three leases have %d tokens", len(tokens))
	e.Soon("the longer one has its own TTL", func() bool { return time.Until(third.Deadline()) > e.Units(10) })
	e.releases(third)
}

func notHandedOn(e *env) {
	p := e.process()
	for name, opt := range map[string]lock.Option{"pool": lock.Slots(2), "unrenewed": lock.NoRenew()} {
		key := e.key(name)
		first, second := p.acquire(key, e.ttl(5), opt), (*lock.Lease)(nil)
		if name == "pool" {
			second = p.acquire(key, e.ttl(5), opt)
		}
		next := p.queue(key, "next", e.ttl(5), opt)
		e.releases(first)
		got := next.lease()
		// A driver may first grant less than the TTL, until the first renewal.
		e.Soon(name+": it has a TTL of its own", func() bool { return time.Until(got.Deadline()) > e.Units(4) })
		e.releases(got)
		if second != nil {
			e.releases(second)
		}
	}
	for _, a := range eventsOf[lock.Acquired](p) {
		e.Want(!a.Handed, "%q was handed on", a.Key)
	}
}

func outageAnswersAll(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"))
	hold := make(chan struct{})
	b.plan.Add(Step{Op: Acquire, Hold: hold, Err: errUnreachable, Times: 1})
	var calls []*asked
	for range 10 {
		calls = append(calls, b.ask(e.key("k")))
	}
	e.Soon("all wait", func() bool { return b.Stats().Waiting == 10 })
	close(hold)
	for _, c := range calls {
		err := c.refused()
		e.Want(isUnavailable(err), "a waiter got %v, want ErrUnavailable", err)
	}
	e.releases(holder)
	b.free(e.key("k"))
}

func seenFromInside(e *env) {
	a := e.process(func(c *lock.Config) {
		c.Identify = func(_ context.Context, h *lock.Holder) { h.App, h.Worker, h.Request = "web", 2, "r-1" }
	})
	b := e.process()
	holder := a.acquire(e.key("k"), lock.Label("holder"))
	b.queue(e.key("k"), "other")
	for _, label := range []string{"one", "two"} {
		a.queue(e.key("k"), label)
	}
	var s lock.State
	// At the end of a turn the ticket of a's waiters is under way, and no look shows them.
	e.Soon("it shows its waiters", func() bool {
		var err error
		s, err = a.Inspect(e.Ctx, e.key("k"))
		e.Must(err, "inspect")
		seen := make(map[string]bool)
		for _, w := range s.Waiters {
			seen[w.Label] = true
		}
		return seen["one"] && seen["two"] && seen["other"]
	})
	e.Want(len(s.Holders) == 1 && s.Holders[0].Label == "holder" && s.Holders[0].Fence == holder.Fence(), "the holders are %+v", s.Holders)
	h := s.Holders[0].Holder
	e.Want(h.App == "web" && h.Worker == 2 && h.Request == "r-1" && h.PID == os.Getpid() && !h.Since.IsZero(), "the holder is %+v", h)
	e.releases(holder)
}

func fixedConnections(e *env) {
	a, b := e.process(), e.process()
	count := func() int {
		n, err := e.h.Faults.Connections(b.opened)
		e.Must(err, "count connections")
		return n
	}
	holder := a.acquire(e.key("k"))
	b.free(e.key("warm"))
	for range 500 {
		b.ask(e.key("k"))
	}
	e.Soon("all wait", func() bool { return b.Stats().Waiting == 500 })
	e.Want(count() <= 5, "500 waiters have %d connections", count())
	e.releases(holder)
}

func manyKeys(e *env) {
	a, b := e.process(), e.process()
	n := suite.Scaled(300)
	holders, waiters := make([]*lock.Lease, n), make([]*asked, n)
	for i := range n {
		key := e.key(fmt.Sprint("k", i))
		holders[i] = a.acquire(key, e.ttl(100))
		waiters[i] = b.ask(key, e.ttl(100))
	}
	e.Soon("all wait", func() bool { return b.Stats().Waiting == int64(n) })
	e.releases(holders...)
	for _, w := range waiters {
		e.releases(w.leaseWithin(2 * e.Patience()))
	}
	e.Soon("nothing is left", func() bool {
		states, err := a.List(e.Ctx, e.key(""))
		e.Must(err, "list")
		return len(states) == 0
	})
}
