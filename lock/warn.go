package lock

import (
	"context"
	"sync"
	"time"
)

// Warn returns a channel that is closed d before Deadline, when no renewal has
// moved the deadline by then, and at the latest when the lease is over. A
// negative d counts as 0. The channel stays closed if a later renewal succeeds.
func (l *Lease) Warn(d time.Duration) <-chan struct{} {
	w := &warning{hold: l.hold, fence: l.fence, ahead: max(d, 0), due: make(chan struct{})}
	w.mu.Lock()
	w.timer = time.AfterFunc(w.wait(), w.check)
	w.mu.Unlock()
	w.endWith(l.innerContext()) // not l.Context(), which is the lease
	return w.due
}

// warning is one call of Warn. Like ending, it does not keep the lease
// reachable.
type warning struct {
	hold  *hold
	fence uint64
	ahead time.Duration
	due   chan struct{}

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	given bool
	leave func() bool // leaves the lease's context; nil before endWith
}

// endWith gives the warning at the end of ctx. A warning that was given leaves ctx,
// which lasts as long as the lease.
func (w *warning) endWith(ctx context.Context) {
	leave := context.AfterFunc(ctx, w.give)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given {
		leave()
	}
	w.leave = leave
}

// wait returns the time until the next check. It is at least 1 ns, see
// schedule.arm.
func (w *warning) wait() time.Duration {
	h := w.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	wait := max(h.deadline.sub(h.locker.clock.now())-w.ahead, 1)
	if nap := h.locker.schedule.nap; nap > 0 {
		wait = min(wait, nap)
	}
	return wait
}

// check gives the warning, or waits on if a renewal has moved the deadline.
func (w *warning) check() {
	h := w.hold
	h.mu.Lock()
	due := h.ended || h.fence != w.fence || h.deadline.sub(h.locker.clock.now()) <= w.ahead
	h.mu.Unlock()
	if due {
		w.give()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.given {
		w.timer.Reset(w.wait())
	}
}

func (w *warning) give() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	if w.given {
		return
	}
	w.given = true
	close(w.due)
	if w.leave != nil {
		w.leave()
	}
}
