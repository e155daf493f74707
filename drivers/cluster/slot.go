package cluster

import (
	"context"
	"fmt"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

var (
	_ driver.PoolDriver = (*Lock)(nil)
	_ driver.PoolDriver = (*namespaced)(nil)
)

// releaseFrame returns the frame that releases g, the grant of c, with what becomes
// of its key or slot.
func (x *Lock) releaseFrame(number uint64, c *claim, g *driver.Grant) *protocol.Frame {
	if g.Rest > 0 {
		return restFrame(number, g)
	}
	h := g.Handback
	if x.leaves(c) && h != nil && h.Status == driver.SlotFree {
		// An earlier hub may have executed the release and granted the slot to a
		// process that has died with it (P4).
		h = &driver.Handback{Status: driver.SlotDirty}
	}
	if h == nil {
		return protocol.Begin(protocol.LockRelease).Uint(number).String(g.Key).String(g.Token)
	}
	return protocol.AddHandback(protocol.Begin(protocol.LockHandback).Uint(number).String(g.Key).String(g.Token), h) // P5
}

// leaves notes that the release of c, which may be nil, is sent, and reports
// whether it was sent to an earlier hub.
func (x *Lock) leaves(c *claim) (before bool) {
	if c == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	c.leaves = true
	return c.doubtful
}

// Heal implements [driver.PoolDriver].
func (x *Lock) Heal(ctx context.Context, key string, slot int, _ string, by driver.Holder) error {
	q := newQuestion(key)
	defer q.free()
	return x.inquire(ctx, q, func(number uint64) *protocol.Frame {
		f := protocol.Begin(protocol.LockHeal).Uint(number).String(key).Uint(uint64(slot))
		protocol.AddHolder(f, &by)
		return f
	})
}

// Heal implements [driver.PoolDriver].
func (x *namespaced) Heal(ctx context.Context, key string, slot int, reason string, by driver.Holder) error {
	return x.Lock.Heal(ctx, x.prefix+key, slot, reason, by)
}

// checkFound returns an error, and releases the slot, if the hub is of an earlier
// build, which does not store the states of slots.
func (x *Lock) checkFound(r *driver.Request, g driver.Grant) error {
	if r.Pool == nil || g.Found != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	_ = x.Release(ctx, g) // after a failure, the TTL ends the grant
	return fmt.Errorf("%w: the hub runs an earlier build, which does not store the states of slots", driver.ErrUnavailable)
}
