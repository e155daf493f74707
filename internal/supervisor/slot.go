package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// lull is how long a worker that cannot be made ready is left alone while others
// serve.
const lull = 30 * time.Second

// SpentError says that a worker died so often before it was ready that it is
// not tried again, or not soon.
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
	again   chan struct{} // has room for a wish that it be tried again now

	mu         sync.Mutex // guards the fields below
	current    *Process   // the one that serves, or is going to
	generation int
	restarts   int
	once       bool   // it was ready
	failing    string // how its processes end, where it is tried at a slow pace
	since      time.Time
}

// replacement is a wish for a new process in the place of the one that serves.
type replacement struct {
	generation int
	done       chan error // gets nil when the old one was told to end
	old        *Process   // known then; nil if none was serving
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

// fails notes how its processes end, or with nothing that it is tried no longer
// at a slow pace.
func (w *slot) fails(how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if (w.failing == "") != (how == "") {
		w.since = time.Now()
	}
	w.failing = how
}

// worker is what there is to know of a slot that fails, and whether it does.
func (w *slot) worker() (Worker, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Worker{ID: w.id, Generation: w.generation, State: Failing, Since: w.since, Restarts: w.restarts, Ended: w.failing}, w.failing != ""
}

func (w *slot) wasReady() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.once
}

// run keeps the slot's worker running until ctx ends, and ends it. It returns
// why there cannot be one.
func (w *slot) run(ctx context.Context) error {
	var short int // how many in a row were ready only for a moment
	for {
		p, err := w.raise(ctx, w.born(), w.put)
		if spent, ok := errors.AsType[*SpentError](err); ok {
			p, err = w.endure(ctx, spent)
		}
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
			how, status := p.ended()
			level := slog.LevelError
			if status == 0 { // somebody told it to end
				level = slog.LevelInfo
			}
			w.of.config.Log.Log(ctx, level, "a worker has ended and is replaced", "worker", w.id, "pid", p.PID(), "ended", how)
			return true
		case r := <-w.replace:
			r.old = p
			next, err := w.raise(ctx, r.generation, func(*Process) {})
			if next == nil {
				r.done <- cmp.Or(err, ctx.Err())
				continue
			}
			w.put(next)
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
		p, died := w.attempt(ctx, generation, started)
		if died == nil {
			return p, nil
		}
		died.Deaths = deaths
		hopeless := !w.of.settled.Load() && w.of.config.Hopeless != nil && w.of.config.Hopeless(died.Status)
		w.of.config.Log.Error("a worker ended before it was ready", "worker", w.id, "ended", died.Last, "attempt", deaths, "of", budget)
		if deaths == budget || hopeless {
			return nil, died
		}
		pause(ctx, w.of.backoff(deaths))
	}
	return nil, nil
}

// attempt starts a process once. It returns how it died before it was ready, and
// neither that nor a process if ctx has ended.
func (w *slot) attempt(ctx context.Context, generation int, started func(*Process)) (*Process, *SpentError) {
	p, err := w.of.start(w.id, generation)
	if err != nil {
		return nil, &SpentError{Worker: w.id, Deaths: 1, Last: err.Error(), Status: -1, Cause: err}
	}
	started(p)
	if p.settles(ctx) {
		return w.unless(ctx, p), nil
	}
	how, status := p.ended()
	return nil, &SpentError{Worker: w.id, Deaths: 1, Last: how, Status: status}
}

// endure goes on trying at a slow pace as long as other workers serve: they are
// not ended for the sake of one that cannot be made ready. It returns its error
// when nobody serves.
func (w *slot) endure(ctx context.Context, spent *SpentError) (*Process, error) {
	defer w.fails("")
	for deaths := spent.Deaths; w.of.serves(); {
		w.fails(spent.Last)
		w.of.config.Log.Error("a worker cannot be made ready; the others serve", "worker", w.id, "ended", spent.Last, "deaths", deaths, "again_in", w.of.lull)
		r, ok := w.rest(ctx)
		if !ok {
			return nil, nil
		}
		p, died := w.oblige(ctx, r)
		if died == nil {
			return p, nil
		}
		deaths++
		last := *died // whose it is: the wish's
		last.Deaths, spent = deaths, &last
	}
	return nil, spent
}

// rest waits until it is time to try again, or somebody wishes so, and returns
// false if ctx has ended.
func (w *slot) rest(ctx context.Context) (r *replacement, ok bool) {
	timer := time.NewTimer(w.of.lull)
	defer timer.Stop()
	select {
	case r = <-w.replace:
	case <-w.again:
	case <-timer.C:
	case <-ctx.Done():
		return nil, false
	}
	return r, true
}

// oblige tries once, as a wish has it if there is one.
func (w *slot) oblige(ctx context.Context, r *replacement) (*Process, *SpentError) {
	if r == nil {
		return w.attempt(ctx, w.born(), w.put)
	}
	p, died := w.attempt(ctx, r.generation, w.put)
	switch {
	case died != nil:
		r.done <- died
	case p == nil:
		r.done <- ctx.Err()
	default:
		r.done <- nil
	}
	return p, died
}

// unless returns p, or ends it if ctx has ended.
func (w *slot) unless(ctx context.Context, p *Process) *Process {
	if ctx.Err() == nil {
		w.of.settled.Store(true)
		w.mu.Lock()
		w.once = true
		w.mu.Unlock()
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
		return ctx.Err() != nil || p.Told() != nil // it may have been ready for a moment
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
