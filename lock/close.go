package lock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// closeGrace is the time that holders have to release their leases after Close
// has ended the contexts.
const closeGrace = 250 * time.Millisecond

// closeSilence is the time until Close reports the leases that it waits for.
const closeSilence = 10 * time.Second

// Close ends the Locker and its driver. New calls and waiters return ErrClosed;
// holders may finish until ctx ends. Then the contexts of their leases end with
// the cause Shutdown, they have a quarter of a second to release, and the
// remaining leases are left to their TTL. After 10 s the observer receives a
// StillHeld, with the call site, for each lease that Close waits for.
//
// If leases were left, the error wraps ctx's error and names the keys, with their call
// sites if there is an observer.
// Otherwise it is the error with which the driver closed, for example
// ErrUnavailable because its backend did not answer within a second, or nil.
// Close may be called again, and from several goroutines at once: each call
// returns when the Locker is closed.
func (l *Locker) Close(ctx context.Context) error {
	l.gate.close() // L17
	left := l.empty(ctx)
	l.cleaner.Flush(closeGrace)
	l.group.Close(-1)
	l.schedule.timer.Stop() // after the last tick, which may have armed it
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.CallTimeout)
	defer cancel()
	err := l.driver.Close(bounded)
	l.closeOnce.Do(func() { close(l.over) })
	if left != nil {
		return fmt.Errorf("close locks: %w", left)
	}
	if err != nil {
		return fmt.Errorf("close locks: driver %s: %w", l.info.Name, l.unavailable(err, driver.CallTimeout))
	}
	return nil
}

// empty waits for the holders, first until ctx ends, then after it has ended
// their contexts (L17).
func (l *Locker) empty(ctx context.Context) error {
	silence := time.AfterFunc(closeSilence, l.reportHeld)
	defer silence.Stop()
	for _, h := range l.schedule.all() {
		h.watchNow() // L19: without this, Close waits for leases that nobody will release
	}
	select {
	case <-l.gate.empty:
		return nil
	case <-l.over:
		return nil
	case <-ctx.Done():
	}
	holds := l.schedule.cut()
	for _, h := range holds {
		h.lose(&LostError{Cause: Shutdown})
	}
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-l.gate.empty:
	case <-grace.C:
	}
	if len(holds) > 0 {
		return fmt.Errorf("%w: leases cut off (%d): %s", contextError(ctx), len(holds), names(holds))
	}
	select {
	case <-l.gate.empty:
		return nil // the waiters and the releases have ended by themselves
	default:
	}
	if lost := l.stragglers.all(); len(lost) > 0 {
		return fmt.Errorf("%w: functions still run without their leases: %s", contextError(ctx), names(lost))
	}
	return fmt.Errorf("%w: calls still run", contextError(ctx))
}

// reportHeld reports the leases that Close waits for, also lost leases whose
// With function still runs.
func (l *Locker) reportHeld() {
	if !l.group.Begin() {
		return
	}
	defer l.group.Done()
	for _, h := range slices.Concat(l.schedule.all(), l.stragglers.all()) {
		if e, ok := h.stillHeld(); ok {
			l.observe(e)
		}
	}
}

// stillHeld returns the event for the current lease of h, if there is one.
func (h *hold) stillHeld() (StillHeld, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.locker.clock.now().sub(h.taken)
	return StillHeld{Key: h.grant.Key, Fence: h.fence, Held: held, Site: h.site.String()}, !h.idle
}

// stragglers holds the lost holds whose With function still runs.
type stragglers struct {
	mu    sync.Mutex // guards holds
	holds map[*hold]struct{}
}

func (s *stragglers) add(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds == nil {
		s.holds = make(map[*hold]struct{})
	}
	s.holds[h] = struct{}{}
}

func (s *stragglers) remove(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, h)
}

func (s *stragglers) all() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.holds))
}

// names returns the list of the leases, truncated to fit in a log line.
func names(holds []*hold) string {
	const most = 10
	all := make([]string, 0, most)
	for _, h := range holds[:min(len(holds), most)] {
		all = append(all, h.name())
	}
	slices.Sort(all)
	if len(holds) > most {
		all = append(all, "…")
	}
	return strings.Join(all, ", ")
}

// name returns the key of h with the call site of its lease, if that is known.
func (h *hold) name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.site == 0 {
		return h.grant.Key
	}
	return fmt.Sprintf("%s (%v)", h.grant.Key, h.site)
}
