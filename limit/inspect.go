package limit

import (
	"context"
	"fmt"

	"github.com/megaframework/mega/limit/driver"
)

// Peek returns the state of key under m: used and remaining units and the next
// free one for each rate of m, the waiting processes, and a pause. The next free unit
// is spaced if the last grant of the key was (Limit.Smooth). Peek consumes nothing. It
// returns ErrInvalid, ErrUnavailable when the backend does not answer within a second,
// ErrClosed, or ctx's error.
func (l *Limiter) Peek(ctx context.Context, key string, m Limit) (State, error) {
	c, err := newCall(key, &m, nil)
	if err != nil {
		return State{}, fmt.Errorf("peek %q: %w", shorten(key), err)
	}
	s, err := l.inspect(ctx, "peek", key, c.rates)
	if err != nil {
		return s, err
	}
	if got, want := len(s.Rates), len(c.rates); got != want {
		return State{}, fmt.Errorf("peek %q: %w: the driver %s returned %d rates, want %d", key, ErrUnavailable, l.info.Name, got, want)
	}
	for i := range s.Rates {
		s.Rates[i].Per = m.Rates[i].Per // without the slack
	}
	return s, nil
}

// Inspect is Peek for all rates of which the backend has grants: each with the N
// of its last grant, and with the slack in its Per. It returns the errors
// of [Limiter.Peek].
func (l *Limiter) Inspect(ctx context.Context, key string) (State, error) {
	return l.inspect(ctx, "inspect", key, nil)
}

func (l *Limiter) inspect(ctx context.Context, does, key string, rates []Rate) (s State, err error) {
	err = l.change(ctx, does, key, nil, func(ctx context.Context) error {
		s, err = l.driver.Inspect(ctx, key, rates)
		return err
	})
	return complete(s), err
}

// List returns the state of every key in use that begins with prefix, sorted by
// key. It is made for operators: it may be slow, and the states are not of one
// instant. Data of another program has a State with Skipped. List returns
// ErrUnavailable when the backend does not answer within 10 s, ErrClosed, or ctx's
// error.
func (l *Limiter) List(ctx context.Context, prefix string) ([]State, error) {
	if err := l.ready(ctx); err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	const bound = 10 * driver.CallTimeout
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	states, err := l.driver.List(bounded, prefix)
	if err != nil {
		err = l.classify(ctx, err, bound)
		l.health.failed(ctx, err)
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	all := make([]State, 0, len(states))
	for _, s := range states {
		all = append(all, complete(s))
	}
	return all, nil
}

// complete replaces nil lists: empty lists are encoded in JSON as [].
func complete(s State) State {
	if s.Rates == nil {
		s.Rates = []RateState{}
	}
	if s.Waiters == nil {
		s.Waiters = []Waiter{}
	}
	return s
}
