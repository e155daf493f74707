package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// budget is what a start or stop hook may take.
const budget = 15 * time.Second

// hook is something that is started and stopped under a name.
type namedHook struct {
	name        string
	start, stop func(context.Context) error // either may be nil
	budget      time.Duration               // of stop; start has the common one
}

// lifecycle starts hooks in order and ends everything in the order that keeps
// promises: first what serves, in reverse, then the locks, so that holders
// hear of it while what they work on is still there, then the values that the
// program provided, in reverse.
//
// It belongs to the goroutine that boots and later to the one that ends.
type lifecycle struct {
	log     *slog.Logger
	hooks   []namedHook
	started int
	locks   []namedHook
	values  []namedHook
}

// start starts the hooks. On an error the caller has to call stop.
func (l *lifecycle) start(ctx context.Context) error {
	for _, h := range l.hooks {
		if h.start != nil {
			if err := l.startOne(ctx, h); err != nil {
				return err
			}
		}
		l.started++
	}
	return nil
}

func (l *lifecycle) startOne(ctx context.Context, h namedHook) error {
	began := time.Now()
	err := within(ctx, budget, h.start)
	var known *Failure
	switch {
	case err == nil:
		l.log.Debug("started", "hook", h.name, "took", time.Since(began))
		return nil
	case errors.As(err, &known):
		return err
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return &Failure{
			Code: "boot.hook_overrun", Exit: ExitOverrun, Cause: err,
			Text: fmt.Sprintf("%q did not start within %v.", h.name, budget),
		}
	}
	return &Failure{Code: "boot.hook_failed", Exit: ExitInternal, Cause: err, Text: fmt.Sprintf("%q did not start.", h.name)}
}

// stop ends everything that was started, and what was opened. It returns what
// had to be cut off, each with its name.
func (l *lifecycle) stop(ctx context.Context) error {
	var errs []error
	end := func(hooks []namedHook) {
		for _, h := range slices.Backward(hooks) {
			if h.stop == nil {
				continue
			}
			if err := within(ctx, h.budget, h.stop); err != nil {
				errs = append(errs, fmt.Errorf("stop %q: %w", h.name, err))
			}
		}
	}
	end(l.hooks[:l.started])
	end(l.locks)
	end(l.values)
	l.started, l.locks, l.values = 0, nil, nil
	return errors.Join(errs...)
}

// within runs fn and gives up on it, not on waiting politely: a fn that does
// not heed its context is left behind a second after its budget.
func within(ctx context.Context, budget time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- contained(ctx, fn) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(time.Second)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
		return fmt.Errorf("it does not end: %w", ctx.Err())
	}
}

// contained runs fn and returns its panic as an error.
func contained(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicked(value)
		}
	}()
	return fn(ctx)
}

// closer returns how to close a value that has a Close method.
func closer(value any) (func(context.Context) error, bool) {
	switch v := value.(type) {
	case interface{ Close(context.Context) error }:
		return v.Close, true
	case interface{ Close() error }:
		return func(context.Context) error { return v.Close() }, true
	case interface{ Close() }:
		return func(context.Context) error { v.Close(); return nil }, true
	}
	return nil, false
}
