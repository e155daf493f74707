package locktest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var fenceCases = []testCase{
	{rule: "L2", claim: "fences grow over release, expiry and force", run: fencesGrow},
	{rule: "L2", claim: "fences grow in the order of the grants, also under load", run: fencesGrowUnderLoad},
	{rule: "L2", claim: "fences of a pool grow over all its slots", also: []string{"L15"}, run: fencesOfAPool},
	{rule: "L2", claim: "renewal and extension do not change a fence", run: renewalKeepsFence},
	{rule: "L2", claim: "fences are on the scale of microseconds since 1970", run: fenceScale},
	{rule: "L2", claim: "the driver grants the fences of a span to no other request", run: spanIsReserved},
	{rule: "L2", claim: "the driver answers a repeated request with the same fence", run: sameFenceAgain},
	{rule: "L2", claim: "fences continue after all processes were closed", run: fencesOutliveProcesses},
	{rule: "L2", claim: "fences grow over a restart of the backend", needs: []fault{"Kill", "Restart"}, run: fencesOverRestart},
	{rule: "L2", claim: "fences grow over the loss of all data", needs: []fault{"Flush"}, run: fencesOverFlush},
}

// rising fails the case when a fence is not above the one before.
type rising struct {
	e    *env
	last uint64
}

func (r *rising) next(fence uint64, after string) {
	r.e.Want(fence > r.last, "fence %d after %s follows %d", fence, after, r.last)
	r.last = fence
}

func fencesGrow(e *env) {
	a, b := e.process(), e.process()
	key := e.key("k")
	fences := rising{e: e}
	lease := a.acquire(key)
	fences.next(lease.Fence(), "nothing")
	e.releases(lease)
	lease = b.acquire(key, lock.NoRenew(), e.ttl(1))
	fences.next(lease.Fence(), "a release")
	lease = a.acquire(key)
	fences.next(lease.Fence(), "an expiry")
	_, err := b.ForceRelease(e.Ctx, key, "test")
	e.Must(err, "force")
	lease = b.acquire(key)
	fences.next(lease.Fence(), "a force")
	e.releases(lease)
}

func fencesGrowUnderLoad(e *env) {
	processes := e.processes(3)
	var last atomic.Uint64
	e.All(12, func(i int) {
		for range suite.Scaled(15) {
			lease, err := processes[i%3].Acquire(e.Ctx, e.key("k"))
			e.Must(err, "acquire")
			before := last.Swap(lease.Fence())
			e.Want(lease.Fence() > before, "fence %d follows %d", lease.Fence(), before)
			e.Sleep(time.Millisecond) // so that other calls wait
			e.releases(lease)
		}
	})
}

func fencesOfAPool(e *env) {
	processes := e.processes(2)
	fences := rising{e: e}
	var held []*lock.Lease
	for i := range 12 {
		lease := processes[i%2].acquire(e.key("pool"), lock.Slots(4))
		fences.next(lease.Fence(), "another slot")
		if held = append(held, lease); len(held) == 4 {
			e.releases(held[i%4])
			held = append(held[:i%4:i%4], held[i%4+1:]...)
		}
	}
	e.releases(held...)
}

func renewalKeepsFence(e *env) {
	p := e.process()
	lease := p.acquire(e.key("k"), e.ttl(3))
	fence, token := lease.Fence(), lease.Token()
	e.Soon("it is renewed twice", func() bool { return p.plan.Calls(Renew) >= 2 })
	e.Must(lease.Extend(e.Ctx, e.Units(4)), "extend")
	e.Want(lease.Fence() == fence && lease.Token() == token, "fence %d became %d", fence, lease.Fence())
	s, err := p.Inspect(e.Ctx, lease.Key())
	e.Must(err, "inspect")
	e.Want(len(s.Holders) == 1 && s.Holders[0].Fence == fence, "others see %+v, want fence %d", s.Holders, fence)
	e.releases(lease)
}

func fenceScale(e *env) {
	p := e.process()
	// The backend's clock may be the clock of another machine.
	floor := uint64(time.Now().Add(-time.Minute).UnixMicro())
	for range 5 {
		lease := p.acquire(e.key("k"))
		e.Want(lease.Fence() >= floor, "fence %d is below the time of day, %d", lease.Fence(), floor)
		e.Want(lease.Fence() < 1<<53, "fence %d does not fit into 53 bits", lease.Fence())
		e.releases(lease)
	}
}

func spanIsReserved(e *env) {
	a, b := e.driver(), e.driver()
	r := e.longRequest(e.key("k"))
	r.Fences = 17
	var end uint64
	for i := range 40 {
		d := []driver.Driver{a, b}[i%2]
		r.Token, r.Fences = token(), []int{17, 1, 5}[i%3]
		g := e.grant(d, r)
		e.Want(g.Fences == r.Fences, "asked for %d fences, got %d", r.Fences, g.Fences)
		e.Want(g.Fence >= end, "fence %d is in the span before, which ends below %d", g.Fence, end)
		end = g.Fence + uint64(g.Fences)
		e.Must(e.release(d, g), "release")
	}
}

func sameFenceAgain(e *env) {
	d := e.driver()
	r := e.longRequest(e.key("k"))
	first := e.grant(d, r)
	again := e.grant(d, r)
	e.Want(first.Fence == again.Fence, "fence %d, and again %d", first.Fence, again.Fence)
	e.Must(e.release(d, first), "release")
}

func fencesOutliveProcesses(e *env) {
	fences := rising{e: e}
	for range 3 {
		p := e.process()
		lease := p.acquire(e.key("k"))
		fences.next(lease.Fence(), "a new process")
		e.releases(lease)
		e.Must(p.Close(e.Ctx), "close")
	}
}

func fencesOverRestart(e *env) {
	p := e.process()
	fences := rising{e: e}
	lease := p.acquire(e.key("k"))
	fences.next(lease.Fence(), "nothing")
	_ = lease.Release()
	e.Must(e.h.Faults.Kill(), "kill")
	e.Must(e.h.Faults.Restart(), "restart")
	fences.next(e.comeBack(p, e.key("k")).Fence(), "a restart")
}

func fencesOverFlush(e *env) {
	p, other := e.process(), e.process()
	fences := rising{e: e}
	for range 5 {
		lease := p.acquire(e.key("k"))
		fences.next(lease.Fence(), "a flush")
		e.Must(e.h.Faults.Flush(), "flush")
		next := other.acquire(e.key("k"))
		fences.next(next.Fence(), "a flush under a holder")
		_ = lease.Release()
		e.releases(next)
	}
}

// comeBack acquires a lease when the backend serves again, and releases it.
func (e *env) comeBack(p *process, key string) (lease *lock.Lease) {
	e.Eventually(3*e.Patience(), "the backend is back", func() bool {
		ctx, cancel := context.WithTimeout(e.Ctx, e.Patience())
		defer cancel()
		var err error
		lease, err = p.Acquire(ctx, key)
		return err == nil
	})
	_ = lease.Release()
	return lease
}
