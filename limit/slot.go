package limit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/megaframework/mega/lock"
)

// slot is a slot of Concurrent. The zero slot is none.
type slot struct {
	lease *lock.Lease
	end   context.CancelFunc // of the context on which the lease lives
}

// slotKey returns the key of the pool with the slots of Concurrent. It has the
// hash of a key that would be too long for a lock (W15).
func slotKey(key string) string {
	const prefix = "limit:"
	if len(prefix)+len(key) <= lock.MaxKey {
		return prefix + key
	}
	sum := sha256.Sum256([]byte(key))
	return prefix + "sha256:" + hex.EncodeToString(sum[:])
}

// slot takes a slot of Concurrent, if the limit has that.
func (t *turn) slot(ctx context.Context) (slot, error) {
	if t.call.limit.Concurrent == 0 {
		return slot{}, nil
	}
	waiting, granted, end := t.slotContext(ctx)
	lease, err := t.limiter.config.Locker.Acquire(waiting, slotKey(t.call.key), t.slotOptions()...)
	if !granted() && err == nil {
		_ = lease.Release()
		err = ErrClosed
	}
	if err != nil {
		defer end()
		return slot{}, t.noSlot(waiting, err)
	}
	return slot{lease, end}, nil
}

// inSlot calls fn with a slot of Concurrent, if the limit has that. The slot is given
// back when fn has returned, also after the end of ctx (W16).
func (t *turn) inSlot(ctx context.Context, fn func(context.Context, slot) error) error {
	if t.call.limit.Concurrent == 0 {
		return fn(ctx, slot{})
	}
	waiting, granted, end := t.slotContext(ctx)
	defer end()
	defer granted() // also if fn is not called
	called := false
	err := t.limiter.config.Locker.With(waiting, slotKey(t.call.key), func(ctx context.Context) error {
		if !granted() {
			return ErrClosed
		}
		called = true
		lease, _ := lock.LeaseFrom(ctx)
		return fn(ctx, slot{lease, end})
	}, t.slotOptions()...)
	if err != nil && !called {
		err = t.noSlot(waiting, err)
	}
	return err
}

// slotContext returns the context of a slot: the end of the Limiter ends the wait, and
// not the lease. granted ends the wait first; it returns false if the Limiter ended
// before, and with it the context.
func (t *turn) slotContext(ctx context.Context) (waiting context.Context, granted func() bool, end context.CancelFunc) {
	waiting, end = context.WithCancel(ctx)
	return waiting, context.AfterFunc(t.limiter.group.Context(), end), end
}

func (t *turn) slotOptions() []lock.Option {
	wait := lock.Forever
	if t.deadline != 0 {
		wait = max(t.deadline.sub(t.limiter.now()), 0)
	}
	n := t.call.limit.Concurrent
	return []lock.Option{lock.Slots(n), lock.Wait(wait)}
}

// noSlot returns the error of a call that got the error err in place of a slot, where
// waiting is a context of slotContext.
func (t *turn) noSlot(waiting context.Context, err error) error {
	if errors.Is(err, lock.ErrNotAcquired) || waiting.Err() != nil {
		return t.endedBy(err)
	}
	return slotError(err)
}

// slotError adds to an error of the Locker the error of this package with the same
// meaning.
func slotError(err error) error {
	for from, to := range map[error]error{lock.ErrUnavailable: ErrUnavailable, lock.ErrUnsupported: ErrUnsupported, lock.ErrClosed: ErrClosed} {
		if errors.Is(err, from) {
			return fmt.Errorf("%w: %w", to, err)
		}
	}
	return err
}

// release gives the slot back, if there is one. It returns lock.ErrLost if the
// slot was lost; another failure is retried in the background.
func (s slot) release() error {
	if s.lease == nil {
		return nil
	}
	defer s.end()
	if err := s.lease.Release(); errors.Is(err, lock.ErrLost) {
		return err
	}
	return nil
}
