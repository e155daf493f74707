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
	n := t.call.limit.Concurrent
	if n == 0 {
		return slot{}, nil
	}
	wait := lock.Forever
	if t.deadline != 0 {
		wait = max(t.deadline.sub(t.limiter.now()), 0)
	}
	ctx, end := context.WithCancel(ctx)
	stop := context.AfterFunc(t.limiter.group.Context(), end)
	lease, err := t.limiter.config.Locker.Acquire(ctx, slotKey(t.call.key), lock.Slots(n), lock.Wait(wait))
	stop() // the end of the Limiter ends the wait, and not the lease
	if err == nil {
		return slot{lease, end}, nil
	}
	defer end()
	if errors.Is(err, lock.ErrNotAcquired) || ctx.Err() != nil {
		return slot{}, t.endedBy(err)
	}
	return slot{}, slotError(err)
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
