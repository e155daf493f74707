package megactx

import (
	"context"

	"github.com/megaframework/mega/lock"
)

// WithSlot runs fn with a slot of p, between p's Init and Cleanup. The Ctx of fn
// ends when the lease of the slot is lost; WithSlot then returns ErrLost, joined
// with fn's error. See [lock.Locker.WithSlot].
func (l Lock) WithSlot(p *lock.Pool, fn func(*Ctx, *lock.Slot) error, opts ...lock.Option) error {
	if l.locker == nil {
		return errNoLocks
	}
	if fn == nil {
		return l.locker.WithSlot(l.ctx, p, nil, opts...) // L14
	}
	var key string
	if p != nil {
		key = p.Key
	}
	wait := l.ctx.work.BeginWait(l.ctx, l.locker, key)
	err := l.locker.WithSlot(l.ctx, p, func(held context.Context, s *lock.Slot) error {
		wait.Granted(s.Lease)
		return fn(l.ctx.WithContext(held), s)
	}, forwarded(opts)...)
	wait.Refused(err)
	return err
}
