package history

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/megaframework/mega/lock"
)

// BoxesOf returns the key of the pool that [Client.Use] takes slots of.
func BoxesOf(key string) string { return key + "-boxes" }

// Use takes the key n times, as users do: it waits, gives up, extends, and holds
// on for too long. Every other time it also takes a slot of the pool BoxesOf(key).
func (c *Client) Use(ctx context.Context, key string, ttl time.Duration, n int, also ...lock.Option) {
	for range n {
		impatient, cancel := context.WithTimeout(ctx, time.Duration(50+rand.IntN(3000))*time.Millisecond)
		opts := append(slices.Clip(also), lock.TTL(ttl), lock.Wait(time.Duration(rand.IntN(2000))*time.Millisecond))
		if rand.IntN(3) == 0 {
			opts = append(opts, lock.NoRenew())
		}
		if lease, err := c.Acquire(impatient, key, 1, opts...); err == nil {
			lease.use(impatient, ttl)
		}
		cancel()
		if rand.IntN(2) == 0 {
			_ = c.UseSlot(ctx, BoxesOf(key), 2, ttl)
		}
	}
}

func (l *Lease) use(ctx context.Context, ttl time.Duration) {
	hold := time.Duration(rand.IntN(30)) * time.Millisecond
	if rand.IntN(10) == 0 {
		hold = ttl
	}
	select {
	case <-time.After(hold):
	case <-l.Context().Done():
	}
	if rand.IntN(4) == 0 {
		_ = l.Extend(ctx, ttl)
	}
	_ = l.Release()
}

// Watch looks at the lease until it has ended or done is closed. It returns why
// the lease has ended, or nil, and how long the lease's context was alive after
// its deadline, which must be 0 even if this process was stopped in between.
func (l *Lease) Watch(done <-chan struct{}) (late time.Duration, ended error) {
	for {
		now := time.Now() // before the look, so that the look is not older
		if l.Context().Err() != nil {
			return 0, context.Cause(l.Context())
		}
		if late := now.Sub(l.Deadline()); late > 0 {
			return late, nil
		}
		select {
		case <-done:
			return 0, nil
		case <-time.After(time.Millisecond):
		}
	}
}
