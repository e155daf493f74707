package lock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Warn returns a channel that is closed d before Deadline, when no renewal has
// moved the deadline by then, and at the latest when the lease is over. An
// [Lease.Extend] to less than d closes it at once. A negative d counts as 0. The
// channel stays closed if a later renewal succeeds.
func (l *Lease) Warn(d time.Duration) <-chan struct{} {
	w := &warning{hold: l.hold, fence: l.fence, ahead: max(d, 0), due: make(chan struct{})}
	w.mu.Lock()
	w.hold.addWarning(w) // before it reads the deadline, which an Extend may move
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
	w.hold.removeWarning(w)
	if w.leave != nil {
		w.leave()
	}
}

func (h *hold) addWarning(w *warning) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.warnings == nil {
		h.warnings = make(map[*warning]struct{})
	}
	h.warnings[w] = struct{}{}
}

func (h *hold) removeWarning(w *warning) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.warnings, w)
}

// checkWarnings gives the warnings that are due, or sets their timers again,
// after the deadline has moved to an earlier time.
func (h *hold) checkWarnings() {
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.warnings))
	h.mu.Unlock()
	for _, w := range all {
		w.check()
	}
}
