package lock

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// cleaning is a Locker as the owner of its cleaner.
type cleaning Locker

func (c *cleaning) Now() time.Duration                   { return time.Duration(c.clock.now()) }
func (c *cleaning) Go(fn func(ctx context.Context)) bool { return c.group.Go(fn) }
func (c *cleaning) Failed(err error)                     { c.health.failed(err) }
func (c *cleaning) Dropped()                             { c.counters.unreleased.Add(1) }

func (c *cleaning) Retrying(g *driver.Grant, err error, left time.Duration) {
	(*Locker)(c).observe(ReleaseFailed{Key: g.Key, Fence: g.Fence, Err: err, Left: left})
}

// Release makes one attempt to release g. It returns nil if the backend no
// longer has g.
func (c *cleaning) Release(ctx context.Context, g driver.Grant) error {
	ctx, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	err := c.driver.Release(ctx, g)
	if err == nil {
		(*Locker)(c).observeWithdrawal(g.Key, g.Slot, g.Handback)
	}
	if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrClosed) {
		return nil
	}
	return (*Locker)(c).unavailable(err, driver.CallTimeout)
}
