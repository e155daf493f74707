package locktest

import (
	"context"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

var leaveCases = []testCase{
	{rule: "L5", claim: "work that has finished is not lost because the backend leaves in order", remote: true, needs: []fault{"Leave"}, run: leaveWhileReleasing},
	{rule: "L7", claim: "waiters keep their order when the backend leaves in order", remote: true, needs: []fault{"Leave"}, run: leaveWhileWaiting},
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
