package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// ForceRelease ends every lease of key in every process and returns their
// number. Their contexts end with a *LostError that has the cause Forced, the
// reason and a description of the caller. The next waiters are served. A lease in its
// [Cooldown] counts, too. The reason must have 1 to 512 bytes. With OnlySlot or
// OnlyFence, it ends one lease; a second option is ErrInvalid. A key without a lease is
// no error.
//
// ForceRelease returns ErrUnavailable when the backend does not answer within a
// second; the leases may then have ended. It returns ErrInvalid also for a key
// at which another program keeps data. ErrUnsupported (OnlySlot), ErrClosed and
// ctx's error are possible, too. The loss of a lease on ctx does not end the call.
func (l *Locker) ForceRelease(ctx context.Context, key, reason string, opts ...ForceOption) (released int, err error) {
	f, err := l.forced(opts)
	if err := cmp.Or(err, l.check(ctx, key, checkReason(reason))); err != nil {
		return 0, fmt.Errorf("force release %q: %w", shorten(key), err)
	}
	bounded, cancel := forceContext(ctx)
	defer cancel()
	f.Reason, f.By = reason, l.holder(ctx, "", time.Now())
	if !f.ByFence || l.queues == nil || !l.queues.handedOn(key, f.Fence) { // L16
		released, err = l.driver.ForceRelease(bounded, key, f)
	}
	if err != nil {
		return released, fmt.Errorf("force release %q: %w", key, l.callError(ctx, err, driver.CallTimeout))
	}
	l.observe(ForcedRelease{Key: key, Reason: reason, Released: released})
	return released, nil
}

// ForceOption changes one call of ForceRelease.
type ForceOption struct{ only driver.Force }

// OnlySlot restricts a ForceRelease to one slot of a pool.
func OnlySlot(n int) ForceOption {
	return ForceOption{driver.Force{BySlot: true, Slot: n}}
}

// OnlyFence restricts a ForceRelease to the holder that Inspect and List show
// with this fence, so that an operator who has looked at it does not end the
// lease of a successor. If the key has no such holder any more, ForceRelease
// returns 0. Other processes see the fence of the first lease while a process hands
// a grant on to its own waiters (L7): with that fence they end the present lease.
func OnlyFence(fence uint64) ForceOption {
	return ForceOption{driver.Force{ByFence: true, Fence: fence}}
}

// forced returns the parts of a ForceRelease that its options select: by default
// every lease of the key.
func (l *Locker) forced(opts []ForceOption) (driver.Force, error) {
	switch {
	case len(opts) == 0:
		return driver.Force{}, nil
	case len(opts) > 1:
		return driver.Force{}, invalidOption("%d options given to ForceRelease, want at most 1", len(opts))
	}
	only := opts[0].only
	if !only.BySlot {
		return only, nil
	}
	return only, cmp.Or(checkSlot(only.Slot), l.supportsPools())
}

// forceContext returns ctx with a bound, which the loss of a lease does not end:
// a holder that forces its own key loses its lease before the driver has
// answered (L16).
func forceContext(ctx context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.CallTimeout)
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), ErrLost) {
			cancel()
		}
	})
	return bounded, func() { stop(); cancel() }
}

func checkReason(reason string) error {
	if reason == "" || len(reason) > MaxReason {
		return invalidOption("the reason has %d bytes, want 1 to %d", len(reason), MaxReason)
	}
	return nil
}
