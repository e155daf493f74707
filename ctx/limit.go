package megactx

import (
	"context"
	"time"

	"github.com/megaframework/mega/limit"
)

// Limit is a view of the process's limits that is bound to a Ctx: its waits end
// with that Ctx.
//
// A method returns the errors of the same method of [limit.Limiter]; on the zero Limit it
// returns ErrNotConfigured.
type Limit struct {
	limiter *limit.Limiter
	ctx     *Ctx
}

// Allow asks for units of key, at once. A refusal is a Result, not an error: see
// [limit.Limiter.Allow].
func (l Limit) Allow(key string, m limit.Limit, opts ...limit.Option) (limit.Result, error) {
	if l.limiter == nil {
		return limit.Result{}, errNoLimits
	}
	return l.limiter.Allow(l.ctx, key, m, opts...)
}

// Wait waits for units of key, in the order of the calls. The error is a
// *limit.LimitedError if they cannot be had in time: see [limit.Limiter.Wait].
func (l Limit) Wait(key string, m limit.Limit, opts ...limit.Option) (*limit.Permit, error) {
	if l.limiter == nil {
		return nil, errNoLimits
	}
	return l.limiter.Wait(l.ctx, key, m, opts...)
}

// With is Wait followed by fn. If the limit has Concurrent and its slot is lost,
// the Ctx of fn ends, and With returns lock.ErrLost, joined with fn's error.
func (l Limit) With(key string, m limit.Limit, fn func(*Ctx, *limit.Permit) error, opts ...limit.Option) error {
	if l.limiter == nil {
		return errNoLimits
	}
	if fn == nil {
		return l.limiter.With(l.ctx, key, m, nil, opts...) // W15
	}
	return l.limiter.With(l.ctx, key, m, func(ctx context.Context, p *limit.Permit) error {
		return fn(l.ctx.WithContext(ctx), p)
	}, opts...)
}

// Pause refuses all calls for key for the time d, for an operator's reason. The
// longest pause of a key counts; Reset ends it.
func (l Limit) Pause(key string, d time.Duration, reason string) error {
	if l.limiter == nil {
		return errNoLimits
	}
	return l.limiter.Pause(l.ctx, key, d, reason)
}

// Reset makes all units of key free and ends its pause.
func (l Limit) Reset(key string) error {
	if l.limiter == nil {
		return errNoLimits
	}
	return l.limiter.Reset(l.ctx, key)
}

// Peek returns the state of key under m, and consumes nothing.
func (l Limit) Peek(key string, m limit.Limit) (limit.State, error) {
	if l.limiter == nil {
		return limit.State{}, errNoLimits
	}
	return l.limiter.Peek(l.ctx, key, m)
}

// Inspect returns the state of key, with each rate that is in use.
func (l Limit) Inspect(key string) (limit.State, error) {
	if l.limiter == nil {
		return limit.State{}, errNoLimits
	}
	return l.limiter.Inspect(l.ctx, key)
}

// List returns the state of every key in use that begins with prefix.
func (l Limit) List(prefix string) ([]limit.State, error) {
	if l.limiter == nil {
		return nil, errNoLimits
	}
	return l.limiter.List(l.ctx, prefix)
}

// Stats returns the counters of this process's limits, or zero without
// configured limits.
func (l Limit) Stats() limit.Stats {
	if l.limiter == nil {
		return limit.Stats{}
	}
	return l.limiter.Stats()
}

// Info returns the driver of the limits, or zero without configured limits.
func (l Limit) Info() limit.Info {
	if l.limiter == nil {
		return limit.Info{}
	}
	return l.limiter.Info()
}
