package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// The budgets of hooks that were not given one.
const (
	hookBudget    = 15 * time.Second
	primaryBudget = 2 * time.Minute // migrations take their time
)

// hook is something with a name that is done at the start or at the end.
type hook struct {
	name   string
	budget time.Duration
	run    func(context.Context) error // may be nil: nothing to do
}

// step is what a part of the program does at the start, and how it ends.
type step struct {
	start hook
	end   hook
	phase phase // when it ends
	from  []Fact
}

// placed adds to a failure of the step where the step is from.
func (s step) placed(err error) error {
	if f, ok := errors.AsType[*Failure](err); ok && len(f.Facts) == 0 {
		f.Facts = s.from
	}
	return err
}

// phase is when something ends. The phases end one after the other, and what
// is in one of them ends in reverse, so that everything ends before what it
// needs, and requests before everything else.
type phase int

const (
	serving  phase = iota // listeners, and the requests in flight
	working               // Run, and ctx.Go: what goes on beside requests
	leaving               // OnStop; locks still work
	locking               // the locks: holders hear of it while what they work on is still there
	owning                // the values that were provided, and caches
	watching              // probes: they tell what happens until the last
	phases
)

// longestReserve bounds what a shutdown keeps for what comes after the work in
// flight: a sixth of its budget.
const longestReserve = 5 * time.Second

// until is when a phase has to be over that is part of a shutdown.
func (p phase) until(began time.Time, budget time.Duration) time.Time {
	reserve := min(budget/6, longestReserve)
	switch p {
	case serving, working:
		return began.Add(budget - reserve)
	case leaving, locking:
		return began.Add(budget - reserve/2)
	}
	return began.Add(budget)
}

// lastWord is what each hook gets where the budget is used up already: what
// only has to let go can do so.
const lastWord = 250 * time.Millisecond

// lifecycle starts steps in their order, and ends what has started.
//
// It belongs to the goroutine that boots, and later to the one that ends.
type lifecycle struct {
	log   *slog.Logger
	took  func(name string, began time.Time) // notes what a start took; may be nil
	steps []step
	ends  [phases][]hook
}

// endWith has something that is there already end in its phase.
func (l *lifecycle) endWith(p phase, h hook) { l.ends[p] = append(l.ends[p], h) }

// start does the steps. On an error the caller has to call stop.
func (l *lifecycle) start(ctx context.Context) error {
	for _, s := range l.steps {
		if err := l.startOne(ctx, s.start); err != nil {
			return s.placed(err)
		}
		l.endWith(s.phase, s.end)
	}
	return nil
}

func (l *lifecycle) startOne(ctx context.Context, h hook) error {
	if err := ctx.Err(); err != nil || h.run == nil {
		return err
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, h.budget)
	defer cancel()
	err := await(bounded, h.run)
	known, isKnown := errors.AsType[*Failure](err)
	switch {
	case err == nil:
		l.log.Debug("started", "hook", h.name, "took", time.Since(began))
		if l.took != nil {
			l.took(h.name, began)
		}
		return nil
	case isKnown:
		return known
	case ctx.Err() == nil && bounded.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return overrun(h, err)
	}
	return &Failure{Code: "boot.hook_failed", Exit: ExitInternal, Cause: err, Text: fmt.Sprintf("%q did not start.", h.name)}
}

func overrun(h hook, err error) error {
	return &Failure{
		Code: "boot.hook_overrun", Exit: ExitOverrun, Cause: err,
		Text:    fmt.Sprintf("%q did not start within %v.", h.name, h.budget),
		Actions: []string{"let it take longer:  mega.Budget(" + (2 * h.budget).String() + ") beside its function"},
	}
}

// stop ends everything that was started or opened. It returns what had to be
// cut off, each with its name.
//
// budget is for all of it, and has run since began. Where it is used up, what
// is left is still told to end, one after the other, and has a last word each.
func (l *lifecycle) stop(began time.Time, budget time.Duration) error {
	var cut []error
	for p := range phases {
		ends := l.ends[p]
		l.ends[p] = nil
		for _, h := range slices.Backward(ends) {
			if err := l.endOne(h, p.until(began, budget)); err != nil {
				cut = append(cut, fmt.Errorf("stop %q: %w", h.name, err))
			}
		}
	}
	return errors.Join(cut...)
}

func (l *lifecycle) endOne(h hook, until time.Time) error {
	if h.run == nil {
		return nil
	}
	began := time.Now()
	until = later(earlier(until, began.Add(h.budget)), began.Add(lastWord))
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	err := await(ctx, h.run)
	if err == nil && l.log != nil {
		l.log.Debug("ended", "hook", h.name, "took", time.Since(began))
	}
	return err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// errStuck says that something was left behind, running.
var errStuck = errors.New("it does not end")

// noticeTime is what a function may take to notice that its context has ended.
const noticeTime = time.Second

// await runs fn and waits for it until ctx has ended, and then as long as it
// may take to notice. A fn that heeds nothing is left behind.
func await(ctx context.Context, fn func(context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		err := errGone
		defer func() { done <- err }()
		err = contained(ctx, fn)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(noticeTime)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%w: %w", errStuck, ctx.Err())
	}
}

// errGone is what a goroutine ends with that called runtime.Goexit.
var errGone = errors.New("its goroutine ended before it returned")

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
