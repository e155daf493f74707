package request

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// grace is the time that a cancelled task has to return.
const grace = 250 * time.Millisecond

// tasks are the running functions of Ctx.Go, and the handlers that run on after the end
// of their request.
type tasks struct {
	mu       sync.Mutex // guards the fields below
	running  map[*task]struct{}
	draining bool
	empty    chan struct{} // closed when a drain has no task left to wait for
}

// task is one running function. Drain waits for it.
type task struct {
	name  string
	began time.Time
	end   context.CancelCauseFunc
}

// Go runs fn in a goroutine, on a context that ends with ErrShuttingDown if fn is
// not done within the shutdown timeout. Once the shutdown waits for the tasks, Go
// does not call fn, and logs that.
func (h *Host) Go(ctx context.Context, name string, log *slog.Logger, fn func(context.Context) error) {
	ctx, end := context.WithCancelCause(ctx)
	t := &task{name: name, began: time.Now(), end: end}
	if !h.tasks.add(t) {
		end(ErrShuttingDown)
		log.Error("task not begun", "error", ErrShuttingDown)
		return
	}
	go func() {
		defer h.tasks.remove(t)
		defer end(ErrHandlerReturned)
		err := errExited
		defer func() { logTask(log, err, time.Since(t.began)) }()
		err = protectTask(ctx, fn)
	}()
}

var errExited = errors.New("the task ended its goroutine")

// protectTask calls fn and returns its panic as an error.
func protectTask(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return withoutPanic(fn(ctx))
}

// logTask logs how a task ended.
func logTask(log *slog.Logger, err error, took time.Duration) {
	if err == nil {
		log.Debug("task done", "took", took)
		return
	}
	attrs := []any{slog.String("error", err.Error()), slog.Duration("took", took)}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	log.Error("task failed", attrs...)
}

func (ts *tasks) add(t *task) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.draining {
		return false
	}
	if ts.running == nil {
		ts.running = map[*task]struct{}{}
	}
	ts.running[t] = struct{}{}
	return true
}

func (ts *tasks) remove(t *task) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.running, t)
	if ts.draining && len(ts.running) == 0 {
		close(ts.empty)
	}
}

// drain refuses new tasks and returns a channel that is closed when no task is
// left.
func (ts *tasks) drain() <-chan struct{} {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !ts.draining {
		ts.draining, ts.empty = true, make(chan struct{})
		if len(ts.running) == 0 {
			close(ts.empty)
		}
	}
	return ts.empty
}

// left returns the running tasks, the oldest first.
func (ts *tasks) left() []*task {
	ts.mu.Lock()
	all := slices.Collect(maps.Keys(ts.running))
	ts.mu.Unlock()
	slices.SortFunc(all, func(a, b *task) int { return a.began.Compare(b.began) })
	return all
}

// Drain starts no more tasks and waits for the running ones until ctx ends.
// Then it ends their contexts with ErrShuttingDown. The error names each of
// them and marks those that did not return even within grace.
func (h *Host) Drain(ctx context.Context) error {
	empty := h.tasks.drain()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	cut := h.tasks.left()
	for _, t := range cut {
		t.end(ErrShuttingDown)
	}
	moment := time.NewTimer(grace)
	defer moment.Stop()
	select {
	case <-empty:
	case <-moment.C:
	}
	if len(cut) == 0 {
		return nil
	}
	return fmt.Errorf("tasks cut off (%d): %s", len(cut), named(cut, h.tasks.left()))
}

func named(cut, left []*task) string {
	var names []string
	for _, t := range cut {
		text := fmt.Sprintf("%s (%v)", t.name, time.Since(t.began).Round(time.Millisecond))
		if slices.Contains(left, t) {
			text += ", which does not end"
		}
		names = append(names, text)
	}
	return strings.Join(names, "; ")
}
