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

// closeGrace is how long Close waits, after it has ended the leases' contexts,
// for those who listen to them to release.
const closeGrace = 250 * time.Millisecond

// closeSilence is how long Close waits before it reports what it waits for.
const closeSilence = 10 * time.Second

// Close ends the Locker and its driver. New calls are refused with ErrClosed
// and waiters end with it; holders may finish until ctx ends. Then their
// contexts end with the cause Shutdown, they have a quarter of a second to
// release, and what is still held is left to its TTL. After 10 s the observer
// hears of each lease that Close waits for, as StillHeld with its call site.
//
// It returns nil if nothing was left, and otherwise an error that wraps ctx's
// and names the keys. It may be called again, and at once from several
// goroutines: each call returns when all is over.
func (l *Locker) Close(ctx context.Context) error {
	l.gate.close() // L17
	left := l.empty(ctx)
	l.cleaner.flush(closeGrace)
	l.crew.close()
	l.schedule.timer.Stop() // after the last tick, which may have set it
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.CallTimeout)
	defer cancel()
	err := l.driver.Close(bounded)
	l.closeOnce.Do(func() { close(l.over) })
	if left != nil {
		return fmt.Errorf("close locks: %w", left)
	}
	if err != nil {
		return fmt.Errorf("close locks: %w", err)
	}
	return nil
}

// empty waits for the holders, first kindly, then by ending their contexts (L17).
func (l *Locker) empty(ctx context.Context) error {
	silence := time.AfterFunc(closeSilence, l.reportHeld)
	defer silence.Stop()
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
	return fmt.Errorf("%w: %d leases cut off: %s", contextError(ctx), len(holds), names(holds))
}

// reportHeld reports the leases that Close waits for, also those that were lost
// while With's function still runs.
func (l *Locker) reportHeld() {
	if !l.crew.begin() {
		return
	}
	defer l.crew.work.Done()
	for _, h := range slices.Concat(l.schedule.all(), l.stragglers.all()) {
		if e, ok := h.stillHeld(); ok {
			l.observe(e)
		}
	}
}

// stillHeld describes the current lease of h, if there is one.
func (h *hold) stillHeld() (StillHeld, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.locker.clock.now().sub(h.taken)
	return StillHeld{Key: h.grant.Key, Fence: h.fence, Held: held, Site: h.site.String()}, !h.idle
}

// stragglers are the holds that were lost while the function that With gave
// their lease to still runs.
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

// names lists the keys, not more than a log line can bear.
func names(holds []*hold) string {
	const most = 10
	keys := make([]string, 0, most)
	for _, h := range holds[:min(len(holds), most)] {
		keys = append(keys, h.grant.Key)
	}
	slices.Sort(keys)
	if len(holds) > most {
		keys = append(keys, "…")
	}
	return strings.Join(keys, ", ")
}
