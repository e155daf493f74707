package workers

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// maxDeaths is the number of deaths in a row before a worker was ready after which
// the worker is failing: see slot.run.
const maxDeaths = 5

// The pauses between the attempts to start a worker.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 30 * time.Second
)

// backoff returns the pause after that many failures in a row.
func backoff(failures int) time.Duration {
	return min(firstPause<<min(failures-1, 10), maxPause) // the limit of the shift prevents an overflow
}

// SpentError is the error of a worker that died before it was ready, and that
// the supervisor has given up on.
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
	return fmt.Sprintf("worker %d exited %s before it was ready; the last time: %s", e.Worker, times, e.Last)
}

func (e *SpentError) Unwrap() error { return e.Cause }

// slot keeps one worker running. Its goroutine executes run.
type slot struct {
	of      *runner
	id      int
	replace chan *replacement
	again   chan struct{} // has room for a request to start the next attempt now

	mu         sync.Mutex // guards the fields below
	current    *Process   // the process that serves, or is starting
	generation int
	restarts   int
	once       bool   // a process was ready before
	failing    string // how the last process ended, while the worker is failing
	since      time.Time
	next       time.Time // the end of the pause before the next attempt; zero without a pause
}

// replacement is a request for a new process in place of the one that serves.
type replacement struct {
	generation int
	done       chan error // receives nil when the old process was asked to end
	old        *Process   // set before done receives; nil if no process was serving
}

func (w *slot) replaced() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restarts
}

// born returns the generation of the last process that was ready.
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
	w.current = p
}

// fails marks the worker as failing, and records how its last process ended. An
// empty text ends that state.
func (w *slot) fails(how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if (w.failing == "") != (how == "") {
		w.since = time.Now()
	}
	w.failing = how
}

// rests records the end of the pause before the next attempt. The zero time is the
// end of that state.
func (w *slot) rests(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = until
}

// absent returns the state of the worker while it has no process.
func (w *slot) absent() Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing == "" {
		return Worker{ID: w.id, Generation: w.generation, State: Down, Restarts: w.restarts, Next: w.next}
	}
	return Worker{ID: w.id, Generation: w.generation, State: Failing, Since: w.since, Restarts: w.restarts, Ended: w.failing, Next: w.next}
}

func (w *slot) wasReady() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.once
}

// run keeps the slot's worker running until ctx ends, and then ends the worker.
// A worker that dies is started again: at once if it has served for
// stableTime, otherwise after a pause that doubles with each failure in a row. After
// maxDeaths deaths before it was ready the worker is failing: run continues to try as
// long as other workers serve, and returns a *SpentError if none does.
func (w *slot) run(ctx context.Context) error {
	var request *replacement // the request that the next attempt serves, or nil
	for failures, deaths := 0, 0; ; {
		p, died := w.serveRequest(ctx, request)
		switch {
		case ctx.Err() != nil && p == nil:
			return nil
		case died != nil:
			failures, deaths = failures+1, deaths+1
			if died.Deaths = deaths; w.givesUp(died) {
				return died
			}
		default:
			deaths = 0
			ready := time.Now()
			if !w.keep(ctx, p) {
				return nil // the worker was asked to end
			}
			if failures++; time.Since(ready) > stableTime {
				failures = 0
			}
		}
		var ok bool
		if request, ok = w.awaitRetry(ctx, failures); !ok {
			return nil
		}
	}
}

// stableTime is how long a worker must have been ready so that its death does not
// count as a failure.
const stableTime = time.Second

// givesUp records a death before the worker was ready, and reports whether it
// ends the program.
func (w *slot) givesUp(died *SpentError) bool {
	w.logDeath(died)
	if w.permanent(died.Status) && !w.of.settled.Load() { // a program that has started can start
		return true
	}
	if died.Deaths < maxDeaths {
		return false
	}
	if !w.of.serves() {
		return true
	}
	w.fails(died.Last)
	w.of.config.Log.Error("worker failing", "worker", w.id, "ended", died.Last, "deaths", died.Deaths)
	return false
}

// permanent reports whether every attempt with the same files would end with this
// exit status.
func (w *slot) permanent(status int) bool {
	return w.of.config.Permanent != nil && w.of.config.Permanent(status)
}

func (w *slot) logDeath(died *SpentError) {
	w.of.config.Log.Error("worker exited before it was ready", "worker", w.id, "ended", died.Last, "deaths", died.Deaths)
}

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
			return true
		case r := <-w.replace:
			r.old = p
			next, err := w.startBeside(ctx, p, r.generation)
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

// startBeside starts a process beside old, the one that serves, and waits until
// it is ready. It tries maxDeaths times, but not again after the death of old: a
// process of old's generation has to take its place. It returns neither a process
// nor an error if ctx has ended.
func (w *slot) startBeside(ctx context.Context, old *Process, generation int) (*Process, error) {
	for deaths := 1; ; deaths++ {
		p, died := w.attempt(ctx, generation, func(*Process) {})
		if died == nil {
			return p, nil
		}
		died.Deaths = deaths
		w.logDeath(died)
		if deaths == maxDeaths || w.permanent(died.Status) || !old.pause(ctx, w.of.backoff(deaths)) {
			return nil, died
		}
	}
}

// attempt starts a process once. It returns how the process died before it was
// ready. It returns neither a process nor an error if ctx has ended.
func (w *slot) attempt(ctx context.Context, generation int, started func(*Process)) (*Process, *SpentError) {
	p, err := w.of.start(w.id, generation)
	if err != nil {
		return nil, &SpentError{Worker: w.id, Deaths: 1, Last: err.Error(), Status: -1, Cause: err}
	}
	if p == nil {
		return nil, nil
	}
	started(p)
	if p.awaitReady(ctx) {
		return w.markReady(ctx, p), nil
	}
	how, status := p.ended()
	if (status == 0 || terminated(p.cmd.ProcessState)) && w.of.ends() { // by a signal to the process group
		return nil, nil
	}
	return nil, &SpentError{Worker: w.id, Deaths: 1, Last: how, Status: status}
}

// awaitRetry waits until the next attempt is due after that many failures, or is
// requested. It returns false if ctx has ended.
func (w *slot) awaitRetry(ctx context.Context, failures int) (r *replacement, ok bool) {
	if failures == 0 {
		return nil, true
	}
	pause := w.of.backoff(failures)
	w.rests(time.Now().Add(pause))
	defer w.rests(time.Time{})
	timer := time.NewTimer(pause)
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

// serveRequest makes one attempt, with the generation of r if it is not nil.
func (w *slot) serveRequest(ctx context.Context, r *replacement) (*Process, *SpentError) {
	if r == nil {
		return w.attempt(ctx, w.born(), w.put)
	}
	p, died := w.attempt(ctx, r.generation, w.put)
	switch {
	case died != nil:
		failed := *died // run changes died
		r.done <- &failed
	case p == nil:
		r.done <- ctx.Err()
	default:
		r.done <- nil
	}
	return p, died
}

// markReady records that the worker is ready, and returns p. If ctx has ended, it asks
// p to end and returns nil. It does not wait: an older process beside p has to end,
// too, and Run waits for both.
func (w *slot) markReady(ctx context.Context, p *Process) *Process {
	if ctx.Err() == nil {
		w.of.settled.Store(true)
		w.fails("")
		w.mu.Lock()
		w.once, w.generation = true, p.generation // not before: a process that dies in a new generation leaves the old one
		w.mu.Unlock()
		if w.of.complete() {
			w.of.all.Do(func() { close(w.of.started) })
		}
		return p
	}
	p.Stop()
	return nil
}

// awaitReady waits until the process is ready, the process has ended, or ctx has
// ended. It returns false if the process has ended.
func (p *Process) awaitReady(ctx context.Context) bool {
	select {
	case <-p.ready:
		return true
	case <-p.over:
		return ctx.Err() != nil || p.wasReady() // the process may have been ready for a moment
	case <-ctx.Done():
		return true
	}
}

// pause waits for d, and reports whether neither ctx nor the process has ended.
func (p *Process) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.over:
		return false
	case <-ctx.Done():
		return false
	}
}
