package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// How often a worker may die in a row before it is ready, and the pauses in
// between.
const (
	budget     = 5
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// SpentError says that a worker died so often before it was ready that it is
// not tried again.
type SpentError struct {
	Worker int
	Deaths int    // in a row
	Last   string // how the last one ended, in words
	Status int    // its exit status; -1 if there was none
	Cause  error  // why it could not even be started, if that is it
}

func (e *SpentError) Error() string {
	times := "once"
	if e.Deaths > 1 {
		times = fmt.Sprintf("%d times in a row", e.Deaths)
	}
	return fmt.Sprintf("worker %d ended %s before it was ready; the last time: %s", e.Worker, times, e.Last)
}

func (e *SpentError) Unwrap() error { return e.Cause }

// slot keeps one worker running. Its goroutine is that of run.
type slot struct {
	of      *Supervisor
	id      int
	replace chan *replacement

	mu         sync.Mutex // guards the fields below
	current    *Process   // the one that serves, or is going to
	generation int
	restarts   int
}

// replacement is a wish for a new process in the place of the one that serves.
type replacement struct {
	generation int
	done       chan error // gets nil when the old one was told to end
	old        *Process   // known then
}

func (w *slot) now() *Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

func (w *slot) replaced() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restarts
}

// born is the generation of the process that serves.
func (w *slot) born() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation
}

// put has p serve from now on.
func (w *slot) put(p *Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil {
		w.restarts++
	}
	w.current, w.generation = p, p.generation
}

// run keeps the slot's worker running until ctx ends, and ends it. It returns
// why there cannot be one.
func (w *slot) run(ctx context.Context) error {
	var short int // how many in a row were ready only for a moment
	for {
		p, err := w.raise(ctx, w.born(), w.put)
		if err != nil {
			return err
		}
		lived := time.Now()
		if p == nil || !w.keep(ctx, p) {
			return nil // it was told to end
		}
		if short++; time.Since(lived) > moment {
			short = 0
		}
		if short > 1 && !pause(ctx, w.of.backoff(short-1)) {
			return nil
		}
	}
}

// moment is how long a worker has to have been ready for its death not to be
// taken for the beginning of a row of them. The first is replaced at once.
const moment = time.Second

// keep watches over p, and over those that replace it, until one dies. It
// returns false when ctx has ended, and with it the worker.
func (w *slot) keep(ctx context.Context, p *Process) (died bool) {
	for {
		select {
		case <-ctx.Done():
			p.Stop()
			<-p.over
			return false
		case <-p.over:
			how, _ := p.ended()
			w.of.config.Log.Error("a worker has ended and is replaced", "worker", w.id, "pid", p.PID(), "ended", how)
			return true
		case r := <-w.replace:
			next, err := w.raise(ctx, r.generation, func(*Process) {})
			if next == nil {
				r.done <- cmp.Or(err, ctx.Err())
				continue
			}
			w.put(next)
			r.old = p
			p.Stop()
			p = next
			r.done <- nil
		}
	}
}

// raise starts a process and waits until it is ready. It tries again as long as
// it may. As soon as one has been started, started is told. There is neither a
// process nor an error if ctx has ended.
func (w *slot) raise(ctx context.Context, generation int, started func(*Process)) (*Process, error) {
	for deaths := 1; ctx.Err() == nil; deaths++ {
		p, err := w.of.start(w.id, generation)
		how, status := fmt.Sprint(err), -1
		if err == nil {
			started(p)
			if p.settles(ctx) {
				return w.unless(ctx, p), nil
			}
			how, status = p.ended()
		}
		hopeless := !w.of.settled.Load() && w.of.config.Hopeless != nil && w.of.config.Hopeless(status)
		w.of.config.Log.Error("a worker ended before it was ready", "worker", w.id, "ended", how, "attempt", deaths, "of", budget)
		if deaths == budget || hopeless {
			return nil, &SpentError{Worker: w.id, Deaths: deaths, Last: how, Status: status, Cause: err}
		}
		pause(ctx, w.of.backoff(deaths))
	}
	return nil, nil
}

// unless returns p, or ends it if ctx has ended.
func (w *slot) unless(ctx context.Context, p *Process) *Process {
	if ctx.Err() == nil {
		w.of.settled.Store(true)
		w.of.config.Log.Info("a worker is ready", "worker", w.id, "pid", p.PID(), "generation", p.generation, "took", time.Since(p.began))
		return p
	}
	p.Stop()
	<-p.over
	return nil
}

// settles waits until the process is ready, has ended, or ctx has, and returns
// false if it has ended by itself.
func (p *Process) settles(ctx context.Context) bool {
	select {
	case <-p.ready:
		return true
	case <-p.over:
		return ctx.Err() != nil
	case <-ctx.Done():
		return true
	}
}

// backoff is the pause after the nth death of a row.
func (s *Supervisor) backoff(n int) time.Duration { return min(s.pause<<min(n-1, 10), maxPause) }

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
