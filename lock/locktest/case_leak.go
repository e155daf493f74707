package locktest

import (
	"context"
	"fmt"
	"runtime"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var leakCases = []testCase{
	{rule: "L18", claim: "leases, cancelled waits and failures leave nothing behind", alone: true, run: everythingIsBack},
	{rule: "L18", claim: "thousands of waiters on one key leave nothing behind", alone: true, run: waitersLeaveNothing},
	{rule: "L18", claim: "the statistics add up", run: statsAddUp},
	{rule: "L18", claim: "connections come back", needs: []fault{"Connections"}, run: connectionsComeBack},
}

// life takes n leases, each of a new key, through all events that a lease can
// have.
func (e *env) life(p *process, n int) {
	round := token()
	e.All(8, func(g int) {
		for i := range n / 8 {
			e.oneLife(p, round, g, i)
		}
	})
}

func (e *env) oneLife(p *process, round string, g, i int) {
	key := e.key(fmt.Sprint(round, "-", g, "-", i))
	switch i % 5 {
	case 0, 1:
		e.Must(p.With(e.Ctx, key, func(ctx context.Context) error { return ctx.Err() }), "with")
	case 2:
		_, err := p.Acquire(e.Ctx, "not legal")
		e.Is(err, lock.ErrInvalid, "acquire")
	case 3: // a cancelled wait
		lease, err := p.Acquire(e.Ctx, key)
		e.Must(err, "acquire")
		ctx, cancel := context.WithCancel(e.Ctx)
		cancel()
		_, err = p.Acquire(ctx, key)
		e.Is(err, context.Canceled, "acquire")
		e.releases(lease)
	case 4: // a busy key
		lease, err := p.Acquire(e.Ctx, key)
		e.Must(err, "acquire")
		_, err = p.Acquire(e.Ctx, key, lock.Wait(e.Unit/256))
		e.Is(err, lock.ErrNotAcquired, "acquire")
		e.Must(lease.Extend(lease.Context(), e.Units(4)), "extend")
		e.releases(lease)
	}
}

func everythingIsBack(e *env) {
	p := e.process()
	e.life(p, 800) // all pools and caches have reached their size
	p.events.forget()
	goroutines, heap := suite.Goroutines(0), heapInUse()
	e.life(p, suite.Scaled(8000))
	p.events.forget()
	e.Soon("the goroutines are back", func() bool { return suite.Goroutines(goroutines+2) <= goroutines+2 })
	e.Want(heapInUse() <= heap+1<<20, "%d bytes more are in use than before", heapInUse()-heap)
	states, err := p.List(e.Ctx, e.key(""))
	e.Must(err, "list")
	e.Want(len(states) == 0, "%d keys are left: %+v", len(states), states)
	s := p.Stats()
	e.Want(s.Active == 0 && s.Waiting == 0, "%d active, %d waiting", s.Active, s.Waiting)
}

func waitersLeaveNothing(e *env) {
	a, b := e.process(), e.process()
	n := min(suite.Scaled(2000), driver.MaxTickets)
	e.crowd(a, b, min(n, 200)) // opens the connections that a crowd needs
	before := suite.Goroutines(0)
	e.crowd(a, b, n)
	// A client may keep a few connections more than for the smaller crowd, each
	// with goroutines of its own. What a waiter leaves behind is there n times.
	most := before + 4 + n/10
	e.Soon("the goroutines are back", func() bool { return suite.Goroutines(most) <= most })
	b.free(e.key("k"))
}

// crowd makes n waiters of one process give up.
func (e *env) crowd(holding, waiting *process, n int) {
	holder := holding.acquire(e.key("k"))
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	var calls []*asked
	for range n {
		calls = append(calls, waiting.askWith(ctx, e.key("k")))
	}
	e.Soon("all wait", func() bool { return waiting.Stats().Waiting == int64(n) })
	cancel()
	for _, c := range calls {
		e.Is(c.refused(), context.Canceled, "a cancelled call")
	}
	e.Want(waiting.Stats().Waiting == 0, "%d wait", waiting.Stats().Waiting)
	e.releases(holder)
}

func statsAddUp(e *env) {
	a, b := e.process(), e.process()
	held := a.acquire(e.key("k"))
	e.Want(a.Stats().Active == 1, "%d active, want 1", a.Stats().Active)
	w := b.queue(e.key("k"), "waiter")
	e.Want(b.Stats().Waiting == 1, "%d waiting, want 1", b.Stats().Waiting)
	_, err := b.Acquire(e.Ctx, e.key("k"), lock.Wait(e.Unit/8))
	e.Is(err, lock.ErrNotAcquired, "acquire")
	_, err = b.try(e.key("k"))
	e.Is(err, lock.ErrNotAcquired, "try")
	e.releases(held)
	e.releases(w.lease())
	s := b.Stats()
	e.Want(s.Driver == e.info.Name, "the driver is called %q", s.Driver)
	e.Want(s.Active == 0 && s.Waiting == 0 && s.Acquired == 1, "%d active, %d waiting, %d acquired", s.Active, s.Waiting, s.Acquired)
	e.Want(s.TimedOut == 1, "%d timed out, want 1", s.TimedOut)
	e.Want(s.Contended == 3, "%d contended, want 3", s.Contended)
	e.Want(s.Wait.Count() == 1 && s.Hold.Count() == 1, "%d waits, %d holds are counted, want 1 of each", s.Wait.Count(), s.Hold.Count())
	e.Want(len(eventsOf[lock.Acquired](b)) == 1 && len(eventsOf[lock.Released](b)) == 1 && len(eventsOf[lock.NotAcquired](b)) == 2, "the observer has other events")
}

func connectionsComeBack(e *env) {
	p := e.process()
	e.life(p, 400)
	e.Soon("at most five connections are left", func() bool {
		n, err := e.h.Faults.Connections(p.opened)
		e.Must(err, "count connections")
		return n <= 5
	})
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
