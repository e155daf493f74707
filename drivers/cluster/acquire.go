package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// Acquire implements [driver.Driver].
func (x *Lock) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, wait, err := x.Ask(ctx, r)
	if wait == nil {
		return g, err
	}
	return wait(ctx)
}

// Ask implements [driver.Asker].
func (x *Lock) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, nil, &driver.NotAcquiredError{Key: r.Key, Err: err}
	}
	since := time.Now()
	if err := x.bound(r.TTL); err != nil {
		return driver.Grant{}, nil, err
	}
	c, err := x.add(&r)
	if err != nil {
		return driver.Grant{}, nil, err
	}
	q := newQuestion(r.Key)
	defer q.free()
	q.claim = c
	q.until = since.Add(driver.CallTimeout)
	if err := x.ask(ctx, q, c.question); err != nil {
		x.end(c, err)
		return driver.Grant{}, nil, err
	}
	g, err, over := x.outcome(c)
	if over {
		if err == nil {
			err = x.checkFound(&c.request, g)
		}
		return g, nil, err
	}
	return driver.Grant{Resized: g.Resized}, func(ctx context.Context) (driver.Grant, error) {
		g, err := x.wait(ctx, c, since)
		if err == nil {
			err = x.checkFound(&c.request, g)
		}
		return g, err
	}, nil
}

// outcome returns the result of a claim, and reports whether it is final.
func (x *Lock) outcome(c *claim) (g driver.Grant, err error, over bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return c.grant, c.err, c.state == claimHeld || c.state == claimRefused
}

// wait waits until a claim is granted, its wait has passed or ctx has ended.
func (x *Lock) wait(ctx context.Context, c *claim, since time.Time) (driver.Grant, error) {
	x.mu.Lock()
	done := c.done
	x.mu.Unlock()
	if done != nil {
		await(ctx, done, c.waitLeft(since))
	}
	if g, err, over := x.outcome(c); over {
		return g, err
	}
	if err := ctx.Err(); err != nil {
		if driver.Paused(ctx) {
			return driver.Grant{}, driver.ErrPaused
		}
		x.abandon(c)
		return driver.Grant{}, err
	}
	return x.leave(ctx, c)
}

// waitLeft returns the rest of the claim's wait; negative means unlimited. A
// claim that does not wait is queued if the hub does not know yet which process
// holds the key.
func (c *claim) waitLeft(since time.Time) time.Duration {
	switch wait := c.request.Wait; {
	case wait < 0:
		return -1
	case wait == 0:
		return driver.CallTimeout
	default:
		return max(wait-time.Since(since), 0)
	}
}

// await waits for done, for at most the time d, or without a limit if d is negative,
// and until ctx ends.
func await(ctx context.Context, done <-chan struct{}, d time.Duration) {
	var over <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-done:
	case <-over:
	case <-ctx.Done():
	}
}

const (
	// leaveBound is how long a waiter that gives up waits for the hub to report
	// the holders.
	leaveBound = 500 * time.Millisecond
	// maxAge is the maximum age of the hub's confirmation that a claim is
	// queued, for the key to count as busy (L21).
	maxAge = 2 * time.Second
)

// leave gives up a claim whose wait has passed. It keeps a grant that arrives
// at the same moment. Without an answer, the key is busy only if the hub has
// confirmed it recently. Otherwise the error is the reason why the hub does not
// answer (L21).
func (x *Lock) leave(ctx context.Context, c *claim) (driver.Grant, error) {
	r := &c.request
	q := newQuestion(r.Key)
	defer q.free()
	q.claim = c
	q.wait(leaveBound)
	err := x.ask(ctx, q, func(number uint64) *protocol.Frame {
		return protocol.Begin(protocol.LockLeave).Uint(number).String(r.Key).String(r.Token)
	})
	if g, cause, over := x.outcome(c); over {
		return g, cause
	}
	x.end(c, err)
	if errors.Is(err, driver.ErrNotAcquired) || !errors.Is(err, driver.ErrLost) && (r.Wait == 0 || !x.confirmedLately(c)) {
		return driver.Grant{}, err
	}
	return driver.Grant{}, &driver.NotAcquiredError{Key: r.Key}
}

func (x *Lock) confirmedLately(c *claim) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return driver.Now().Sub(c.confirmed) < maxAge
}

// end ends a claim that the hub has refused, or for which the hub has not
// answered.
func (x *Lock) end(c *claim, err error) {
	if errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost) {
		x.mu.Lock()
		x.forget(c)
		x.mu.Unlock()
		return
	}
	x.abandon(c)
}

// abandon drops a claim here and at the hub. The hub reads this frame before
// any later one, or never has the claim.
func (x *Lock) abandon(c *claim) {
	x.mu.Lock()
	x.forget(c)
	line := x.line
	x.mu.Unlock()
	if line == nil {
		return
	}
	g := driver.Grant{Key: c.request.Key, Token: c.request.Token}
	if c.request.Pool != nil {
		g.Handback = &driver.Handback{Status: driver.SlotDirty} // the hub may have granted a slot, which nobody has used
	}
	_ = line.Send(x.releaseFrame(0, nil, &g))
}
