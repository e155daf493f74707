package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// The maximum number of deaths in a row before a worker is ready, and the
// pauses between the attempts.
const (
	budget     = 5
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// lull is the pause before another attempt to start a worker that cannot become
// ready, while other workers serve.
const lull = 30 * time.Second

// SpentError is the error of a worker that died so often before it was ready
// that the supervisor does not try it again, or not soon.
type SpentError struct {
	Worker int
	Deaths int    // in a row
	Last   string // a description of the last death
	Status int    // the last exit status; -1 if there was none
	Cause  error  // why the process could not be started, or nil
}

func (e *SpentError) Error() string {
	times := "once"
	if e.Deaths > 1 {
		times = fmt.Sprintf("%d times in a row", e.Deaths)
	}
	return fmt.Sprintf("worker %d ended %s before it was ready; the last time: %s", e.Worker, times, e.Last)
}

func (e *SpentError) Unwrap() error { return e.Cause }

// slot keeps one worker running. Its goroutine executes run.
type slot struct {
	of      *runner
	id      int
	replace chan *replacement
	again   chan struct{} // has room for a request to try again now

	mu         sync.Mutex // guards the fields below
	current    *Process   // the process that serves, or is starting
	generation int
	restarts   int
	once       bool   // a process was ready before
	failing    string // how the processes end, while the slot retries slowly
	since      time.Time
}

// replacement is a request for a new process in place of the one that serves.
type replacement struct {
	generation int
	done       chan error // receives nil when the old process was asked to end
	old        *Process   // set before done receives; nil if no process was serving
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

// born returns the generation of the process that serves.
func (w *slot) born() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation
}

// put makes p the process that serves.
func (w *slot) put(p *Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil {
		w.restarts++
	}
	w.current, w.generation = p, p.generation
}

// fails records how the processes of the slot end. An empty text ends the slow
// retries.
func (w *slot) fails(how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if (w.failing == "") != (how == "") {
		w.since = time.Now()
	}
	w.failing = how
}

// worker returns the description of a failing slot, and reports whether the
// slot is failing.
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

// run keeps the slot's worker running until ctx ends, and then ends the worker.
// It returns the reason if there cannot be a worker.
func (w *slot) run(ctx context.Context) error {
	var short int // how many processes in a row were ready only for a moment
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
			return nil // the worker was asked to end
		}
		if short++; time.Since(lived) > moment {
			short = 0
		}
		if short > 1 && !pause(ctx, w.of.backoff(short-1)) {
			return nil
		}
	}
}

// moment is how long a worker must have been ready so that its death does not
// count as the start of a series. The first worker that dies sooner is replaced
// at once.
const moment = time.Second

// keep watches p and its replacements until one of them dies. It returns false
// when ctx has ended; the worker has then ended, too.
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
			if status == 0 { // somebody has asked the process to end
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

// raise starts a process and waits until it is ready. It retries as long as the
// limits allow. It calls started as soon as a process has been started. It
// returns neither a process nor an error if ctx has ended.
func (w *slot) raise(ctx context.Context, generation int, started func(*Process)) (*Process, error) {
	for deaths := 1; ctx.Err() == nil; deaths++ {
		p, died := w.attempt(ctx, generation, started)
		if died == nil {
			return p, nil
		}
		died.Deaths = deaths
		permanent := !w.of.settled.Load() && w.of.config.Permanent != nil && w.of.config.Permanent(died.Status)
		w.of.config.Log.Error("a worker ended before it was ready", "worker", w.id, "ended", died.Last, "attempt", deaths, "of", budget)
		if deaths == budget || permanent {
			return nil, died
		}
		pause(ctx, w.of.backoff(deaths))
	}
	return nil, nil
}

// attempt starts a process once. It returns how the process died before it was
// ready. It returns neither a process nor an error if ctx has ended.
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

// endure retries slowly as long as other workers serve: a worker that cannot
// become ready does not end them. It returns the error of the worker when no
// worker serves.
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
		last := *died // the error belongs to the request
		last.Deaths, spent = deaths, &last
	}
	return nil, spent
}

// rest waits until the next attempt is due or requested. It returns false if
// ctx has ended.
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

// oblige makes one attempt, with the settings of r if it is not nil.
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

// unless returns p, or ends p if ctx has ended.
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

// settles waits until the process is ready, the process has ended, or ctx has
// ended. It returns false if the process has ended by itself.
func (p *Process) settles(ctx context.Context) bool {
	select {
	case <-p.ready:
		return true
	case <-p.over:
		return ctx.Err() != nil || p.Told() != nil // the process may have been ready for a moment
	case <-ctx.Done():
		return true
	}
}

// backoff returns the pause after the nth death in a row.
func (s *runner) backoff(n int) time.Duration { return min(s.pause<<min(n-1, 10), maxPause) }

// pause waits for d, and reports whether ctx has not ended.
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
