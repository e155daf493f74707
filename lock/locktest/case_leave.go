package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

var leaveCases = []testCase{
	{rule: "L1", claim: "a backend that leaves in order keeps its leases", remote: true, needs: []fault{"Leave"}, run: leaveWhileHolding},
	{rule: "L2", claim: "fences grow when the backend leaves in order", remote: true, needs: []fault{"Leave"}, run: fencesOverLeave},
	{rule: "L5", claim: "work that has finished is not lost because the backend leaves in order", remote: true, needs: []fault{"Leave"}, run: leaveWhileReleasing},
	{rule: "L7", claim: "waiters keep their order when the backend leaves in order", remote: true, needs: []fault{"Leave"}, run: leaveWhileWaiting},
}

func leaveWhileHolding(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), lock.TTL(time.Hour))
	next := b.queue(e.key("k"), "next", lock.TTL(time.Hour))
	for range 2 {
		e.Must(e.h.Faults.Leave(), "replace the backend")
		e.Eventually(3*e.Patience(), "it is busy again", func() bool {
			_, err := b.try(e.key("k"))
			e.Want(err != nil, "another was granted the key")
			return errors.Is(err, lock.ErrNotAcquired)
		})
		e.Want(!next.over(), "the waiter was granted the key")
		e.live(lease)
	}
	e.releases(lease)
	e.releases(next.leaseWithin(2 * e.Patience()))
}

// fencesOverLeave has the last backend grant a lease that is held, and one that
// was released.
func fencesOverLeave(e *env) {
	a, b := e.process(), e.process()
	fences := rising{e: e}
	for range 3 {
		held := a.acquire(e.key("k"), lock.TTL(time.Hour))
		fences.next(held.Fence(), "the end of a backend without a holder")
		e.Must(e.h.Faults.Leave(), "replace the backend")
		next := b.queue(e.key("k"), "next", lock.TTL(time.Hour))
		e.releases(held)
		lease := next.leaseWithin(2 * e.Patience())
		fences.next(lease.Fence(), "the end of a backend under a holder")
		e.releases(lease)
		e.Must(e.h.Faults.Leave(), "replace the backend")
	}
}

// leaveWhileReleasing makes two processes use a key continuously while the
// backend is replaced.
func leaveWhileReleasing(e *env) {
	all := e.processes(2)
	load, stop := context.WithCancel(e.Ctx)
	defer stop()
	done := make(chan error, len(all))
	for _, p := range all {
		go func() {
			var err error
			for load.Err() == nil && err == nil {
				err = p.With(e.Ctx, e.key("k"), func(context.Context) error { return nil })
				time.Sleep(e.Unit / 1000) // fake time passes only while nothing runs
			}
			done <- err
		}()
	}
	for range suite.Scaled(4) {
		had := all[0].Stats().Acquired
		e.Soon("locks are used", func() bool { return all[0].Stats().Acquired > had+20 })
		e.Must(e.h.Faults.Leave(), "replace the backend")
	}
	stop()
	for range all {
		e.Must(<-done, "work that has finished")
	}
}

func leaveWhileWaiting(e *env) {
	a := e.process()
	holder := a.acquire(e.key("k"), lock.TTL(lock.MaxTTL))
	var waiters []*asked
	for i, p := range e.processes(4) {
		waiters = append(waiters, p.queue(e.key("k"), string(rune('a'+i))))
		if i == 1 {
			e.Must(e.h.Faults.Leave(), "replace the backend")
		}
	}
	e.Must(e.h.Faults.Leave(), "replace the backend")
	e.releases(holder)
	for i, w := range waiters {
		lease := w.lease()
		for _, later := range waiters[i+1:] {
			select {
			case <-later.done:
				e.Fail("%q was served before waiter %d", e.key("k"), i)
			default:
			}
		}
		e.releases(lease)
	}
}
