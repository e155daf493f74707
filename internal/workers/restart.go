package workers

import (
	"context"
	"errors"
	"fmt"
)

// ErrRestarting is the error of a restart while another restart is running.
var ErrRestarting = errors.New("a restart of the workers is in progress")

// Restart replaces all workers, one after the other, with workers of the next
// generation. Each new worker becomes ready before the old one is asked to end,
// and the old one has ended before the next replacement starts. If a new worker
// cannot become ready, the remaining old workers go on serving, and Restart
// returns the reason. When ctx ends, no further worker is restarted. During the first
// start Restart waits for its end.
func (s *runner) Restart(ctx context.Context) error {
	if err := s.awaitStart(ctx); err != nil {
		return err
	}
	return s.exclusively(func() error { return s.roll(ctx) })
}

// RestartNext waits until no other restart is running, and then does the same
// as Restart.
func (s *runner) RestartNext(ctx context.Context) error {
	if err := s.awaitStart(ctx); err != nil {
		return err
	}
	select {
	case s.rolling <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopping.Done():
		return s.stopping.Err()
	}
	defer func() { <-s.rolling }()
	return s.roll(ctx)
}

// awaitStart waits until all workers have been ready once. A worker of a new
// generation that cannot start would end the first start.
func (s *runner) awaitStart(ctx context.Context) error {
	select {
	case <-s.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopping.Done():
		return fmt.Errorf("restart: all workers are ending: %w", s.stopping.Err())
	}
}

func (s *runner) roll(ctx context.Context) error {
	s.mu.Lock()
	s.generation++
	generation := s.generation
	s.mu.Unlock()
	s.turns.forget(s.Oldest())
	s.config.Log.Info("worker restart started", "generation", generation)
	for _, w := range s.slots {
		if err := w.restart(ctx, generation); err != nil {
			return err
		}
	}
	s.config.Log.Info("worker restart finished", "generation", generation)
	return nil
}

// Oldest returns the oldest generation in which a worker may still be started.
func (s *runner) Oldest() int {
	oldest := s.slots[0].born()
	for _, w := range s.slots {
		oldest = min(oldest, w.born())
	}
	return oldest
}

// RestartOne replaces one worker. The replacement keeps the generation of the
// old one.
func (s *runner) RestartOne(ctx context.Context, id int) error {
	if id < 1 || id > len(s.slots) {
		return fmt.Errorf("no worker %d: the numbers are 1 to %d", id, len(s.slots))
	}
	return s.exclusively(func() error {
		w := s.slots[id-1]
		return w.restart(ctx, w.born())
	})
}

// exclusively calls do unless another restart is running.
func (s *runner) exclusively(do func() error) error {
	select {
	case s.rolling <- struct{}{}:
	default:
		return ErrRestarting
	}
	defer func() { <-s.rolling }()
	return do()
}

func (w *slot) restart(ctx context.Context, generation int) error {
	r := &replacement{generation: generation, done: make(chan error, 1)}
	select {
	case w.replace <- r:
	case <-ctx.Done():
		return fmt.Errorf("restart worker %d: %w", w.id, ctx.Err())
	case <-w.of.stopping.Done():
		return fmt.Errorf("restart worker %d: %w", w.id, w.of.stopping.Err())
	}
	err := <-r.done // a shutdown of the workers ends it, too
	switch {
	case err != nil && w.of.Stopping():
		return fmt.Errorf("restart worker %d: all workers are ending: %w", w.id, err)
	case err != nil && (r.old == nil || r.old.hasEnded()):
		return fmt.Errorf("restart worker %d: %w", w.id, err)
	case err != nil:
		return fmt.Errorf("restart worker %d: %w; the old process continues to serve", w.id, err)
	case r.old != nil:
		<-r.old.over
	}
	return nil
}
