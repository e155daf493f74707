package limit

import (
	"context"
	"fmt"
)

// Wait waits until m allows the call, and returns what was granted. A permit is
// never early. Calls of this process are served first come, first served;
// processes take turns, one call each.
//
// If the call cannot be allowed within MaxWait or before the deadline of ctx,
// Wait returns a *LimitedError: at once if the backend already knows it, else at
// that time. It also returns a *LimitedError, which wraps ctx's error, when ctx
// ends, and ctx's error alone if ctx had ended before the call. In no case is
// anything consumed. If the Outage of m is Closed, Wait returns ErrUnavailable when the
// backend does not answer for a second, or is lost at the deadline of ctx. It may return
// ErrInvalid, ErrUnsupported and ErrClosed, and lock.ErrDeadlock if Concurrent is 1 and
// ctx already carries the slot.
//
// With Concurrent, Wait takes a slot first, and keeps it until Settle or Cancel. If
// ctx ends before, the Locker takes the slot back soon after, as it does with a lease
// (see lock.Locker.Acquire). [Limiter.With] is simpler, and keeps the slot until its
// function returns.
func (l *Limiter) Wait(ctx context.Context, key string, m Limit, opts ...Option) (p *Permit, err error) {
	t, err := l.begin(ctx, key, &m, opts)
	if err == nil {
		defer t.end()
		if p, err = t.permit(ctx); err != nil {
			t.failed(err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("wait for %q: %w", shorten(key), err)
	}
	return p, nil
}

// With waits as Wait does, and runs fn with the permit. With Concurrent, the
// slot is given back when fn has returned, panicked or called runtime.Goexit,
// and the context given to fn ends when the slot is lost.
//
// With returns fn's error, and joins lock.ErrLost to it if the slot was lost.
// If the call was not allowed, fn is not called; see [Limiter.Wait] for the
// errors. The units stay consumed, whatever fn returns, unless fn settles or
// cancels the permit.
func (l *Limiter) With(ctx context.Context, key string, m Limit, fn func(context.Context, *Permit) error, opts ...Option) error {
	if fn == nil {
		return fmt.Errorf("with %q: %w", shorten(key), invalidOption("the function is nil"))
	}
	t, err := l.begin(ctx, key, &m, opts)
	if err != nil {
		return fmt.Errorf("with %q: %w", shorten(key), err)
	}
	defer t.end() // also where Identify or the context panics
	allowed, err := t.with(ctx, fn)
	if err != nil && !allowed {
		t.failed(err)
		return fmt.Errorf("with %q: %w", shorten(key), err)
	}
	return err
}

// begin begins a call of Wait or With. The caller ends the turn.
func (l *Limiter) begin(ctx context.Context, key string, m *Limit, opts []Option) (*turn, error) {
	c, err := newCall(key, m, opts)
	switch {
	case err != nil:
	case c.cost == 0:
		err = invalidOption("Cost is 0; use Peek")
	case m.Concurrent > 0 && l.config.Locker == nil:
		err = fmt.Errorf("%w: Concurrent without Config.Locker", ErrUnsupported) // W15
	default:
		err = l.ready(ctx)
	}
	if err != nil {
		return nil, err
	}
	t := l.newTurn(ctx, &c)
	if !l.group.Begin() {
		return nil, ErrClosed
	}
	l.counters.waiting.Add(1)
	return t, nil
}
