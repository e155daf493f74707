package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// closeGrace is how long Close waits, after it has ended the leases' contexts,
// for those who listen to them to release.
const closeGrace = 250 * time.Millisecond

// Close ends the Locker and its driver. New calls are refused with ErrClosed
// and waiters end with it; holders may finish until ctx ends. Then their
// contexts end with the cause Shutdown, they have a quarter of a second to
// release, and what is still held is left to its TTL.
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

// empty waits for the holders, first kindly, then by ending their contexts.
func (l *Locker) empty(ctx context.Context) error {
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
