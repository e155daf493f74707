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
// ends. In neither case is anything consumed. If the Outage of m is Closed, Wait
// returns ErrUnavailable when the backend does not answer for a second, or is lost at
// the deadline of ctx. It may return ErrInvalid, ErrUnsupported and ErrClosed.
//
// With Concurrent, Wait takes a slot first, and keeps it until Settle, Cancel or
// the end of ctx. [Limiter.With] is simpler.
func (l *Limiter) Wait(ctx context.Context, key string, m Limit, opts ...Option) (*Permit, error) {
	p, err := l.wait(ctx, key, &m, opts)
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
func (l *Limiter) With(ctx context.Context, key string, m Limit, fn func(context.Context, *Permit) error, opts ...Option) (err error) {
	if fn == nil {
		return fmt.Errorf("with %q: %w", shorten(key), invalidOption("the function is nil"))
	}
	p, err := l.wait(ctx, key, &m, opts)
	if err != nil {
		return fmt.Errorf("with %q: %w", shorten(key), err)
	}
	if p.slot.lease == nil {
		return fn(ctx, p)
	}
	defer func() { err = joinLoss(key, err, p.slot.release()) }()
	return fn(p.slot.lease.Context(), p)
}

// joinLoss joins the loss of the slot with the error of the work.
func joinLoss(key string, work, release error) error {
	switch {
	case release == nil:
		return work
	case work == nil:
		return fmt.Errorf("with %q: %w", key, release)
	}
	return fmt.Errorf("with %q: %w: %w", key, release, work)
}

func (l *Limiter) wait(ctx context.Context, key string, m *Limit, opts []Option) (*Permit, error) {
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
	if !l.group.Begin() {
		return nil, ErrClosed
	}
	defer l.group.Done()
	l.counters.waiting.Add(1)
	defer l.counters.waiting.Add(-1)
	t := l.newTurn(ctx, &c)
	p, err := t.permit(ctx)
	if err != nil {
		t.failed(err)
		return nil, err
	}
	waited := l.now().sub(t.began)
	l.counters.wait.Add(waited)
	l.granted(&c, waited, p.degraded)
	return p, nil
}
