package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
)

// hookBudget is the default budget of a hook.
const hookBudget = plan.HookBudget

// hook is a named function that runs at start or at shutdown.
type hook struct {
	name   string
	budget time.Duration
	run    func(context.Context) error // may be nil: nothing to do
}

// step is the start and the shutdown of one part of the program.
type step struct {
	start hook
	end   hook
	phase phase // when it ends
	from  []failure.Fact
}

// placed adds the step's declaration to a failure of the step.
func (s step) placed(err error) error {
	if f, ok := errors.AsType[*Failure](err); ok && len(f.Facts) == 0 {
		f.Facts = s.from
	}
	return err
}

// phase is a phase of a shutdown. The phases run one after the other, and the
// parts of a phase stop in reverse order. Thus every part stops before the
// parts that it needs, and requests stop before everything else.
type phase int

const (
	serving  phase = iota // listeners, and the requests in flight
	working               // Run, and ctx.Go: work beside requests
	leaving               // OnStop; locks still work
	locking               // the locks: holders are notified while the values that they work on still exist
	owning                // provided values, and caches
	watching              // probes: they report to the very end
	phases
)

// longestReserve limits the time that a shutdown reserves for the phases after
// the work in flight. The reserve is a sixth of the shutdown's budget.
const longestReserve = 5 * time.Second

// until returns the deadline of a phase of a shutdown.
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

// lastWord is the time for each hook after the budget is used up. It is enough
// for a hook that only releases a resource.
const lastWord = 250 * time.Millisecond

// lifecycle starts steps in order, and stops the steps that have started.
//
// It belongs to the goroutine that boots, and later to the goroutine that shuts
// down.
type lifecycle struct {
	log   *slog.Logger
	took  func(name string, began time.Time) // records the duration of a start; may be nil
	steps []step
	ends  [phases][]hook
}

// endWith adds a hook to a phase of the shutdown, for a part that is already
// running.
func (l *lifecycle) endWith(p phase, h hook) { l.ends[p] = append(l.ends[p], h) }

// start runs the steps. If start returns an error, the caller must call stop.
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
	case ctx.Err() == nil && bounded.Err() != nil:
		return overrun(h, err)
	case ctx.Err() != nil && isInterrupted(err):
		l.log.Info("start interrupted", "hook", h.name, "error", err)
		return errors.Join(ctx.Err(), err)
	}
	f := &Failure{Code: "boot.hook_failed", Exit: failure.ExitInternal, Cause: err, Text: fmt.Sprintf("%q did not start.", h.name)}
	if errors.Is(err, bus.ErrRefused) {
		f.Actions = failure.Actions("Grant the permission, or raise the limit, at the server", "the cause names it")
		if selection.IsPermanent(err) { // a limit may have room at the next start
			f.Code, f.Exit = "bus.refused", failure.ExitConfig
		}
	}
	return f
}

// isInterrupted reports whether err, of a hook whose context has ended, is a consequence
// of that end. A hook may return the error of the work that it has given up, such as the
// one of a child process that was killed.
func isInterrupted(err error) bool {
	_, hasPanicked := errors.AsType[*panicError](err)
	return !hasPanicked && !errors.Is(err, errStuck) && !errors.Is(err, errGone)
}

func overrun(h hook, err error) error {
	return &Failure{
		Code: "boot.hook_overrun", Exit: failure.ExitOverrun, Cause: err,
		Text:    fmt.Sprintf("%q did not start within %v.", h.name, h.budget),
		Actions: failure.Actions("Let it take longer", "mega.Budget("+(2*h.budget).String()+") beside its function"),
	}
}

// stop stops everything that was started or opened. It returns an error for
// each part that was cut off, with its name.
//
// budget applies to the whole shutdown, and has run since began. After the
// budget is used up, the remaining hooks still run, one after the other, for
// lastWord each. A hook that does not return is then left behind: see maxOvertime.
func (l *lifecycle) stop(began time.Time, budget time.Duration) error {
	var cut []error
	end, overtime := began.Add(budget), maxOvertime
	for p := range phases {
		ends := l.ends[p]
		l.ends[p] = nil
		for _, h := range slices.Backward(ends) {
			if err := l.endOne(h, p.until(began, budget), end, &overtime); err != nil {
				cut = append(cut, fmt.Errorf("stop %q: %w", h.name, err))
			}
		}
	}
	return errors.Join(cut...)
}

// endOne ends h. The budget of the shutdown ends at end. The time that h takes
// afterwards to notice the end of its context is subtracted from overtime.
func (l *lifecycle) endOne(h hook, until, end time.Time, overtime *time.Duration) error {
	if h.run == nil {
		return nil
	}
	began := time.Now()
	until = began.Add(max(min(until.Sub(began), h.budget), lastWord))
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	err := awaitNoticed(ctx, h.run, min(noticeTime, max(end.Sub(until), *overtime, lastNotice)))
	*overtime -= max(min(time.Since(until), time.Since(end)), 0)
	if err == nil && l.log != nil {
		l.log.Debug("ended", "hook", h.name, "took", time.Since(began))
	}
	return err
}

// errStuck is the error of a function that did not return and was left running.
var errStuck = errors.New("it does not end")

// noticeTime is the time that a function gets to notice the end of its context.
const noticeTime = time.Second

const (
	// maxOvertime bounds the notice times of all hooks together after the budget of
	// the shutdown is used up. Beyond it, each further hook gets lastNotice. The
	// supervisor kills a worker that takes 5 s more than its budget.
	maxOvertime = 2 * noticeTime
	lastNotice  = 50 * time.Millisecond
)

// await runs fn and waits for it until ctx has ended, and then for noticeTime.
// If fn has not returned by then, await leaves it running.
func await(ctx context.Context, fn func(context.Context) error) error {
	return awaitNoticed(ctx, fn, noticeTime)
}

func awaitNoticed(ctx context.Context, fn func(context.Context) error, notice time.Duration) error {
	done := make(chan error, 1)
	go concluded(ctx, fn, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(notice)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%w: %w", errStuck, ctx.Err())
	}
}

// errGone is the error of a function that called runtime.Goexit.
var errGone = errors.New("the function ended its goroutine (runtime.Goexit) and did not return")

// concluded runs fn and passes its error to over, also if fn panics or calls
// runtime.Goexit.
func concluded(ctx context.Context, fn func(context.Context) error, over func(error)) {
	err := errGone
	defer func() { over(err) }()
	err = contained(ctx, fn)
}

// contained runs fn and returns its panic as an error, also the panic of a method of
// fn's error, as of one that is a nil pointer.
func contained(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicked(value)
		}
	}()
	if err = fn(ctx); err != nil {
		_ = err.Error()
		_, _ = errors.AsType[*Failure](err)
	}
	return err
}

// closer returns a function that closes value, if value has a Close method.
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

// The shutdown: the process becomes unready, waits until its clients notice,
// and runs the phases of the lifecycle. All of it is within shutdown.timeout.

// unwindBudget is the timeout for ending a boot that failed before the
// configuration was loaded.
const unwindBudget = hookBudget

// longBudget is the budget of steps that only the timeout of the whole shutdown
// limits.
const longBudget = 24 * time.Hour

// shutdown ends the program, and returns an error that names the interrupted
// work.
func (b *booting) shutdown() error {
	began := time.Now()
	b.current.end()
	c := b.plan.Config.Shutdown
	delay := min(c.Delay, c.Timeout/2) // half: the rest is for the phases
	delayed := delay > 0 && !b.line.OthersServe()
	// Before the probes fail: the answer after that closes its connection.
	if delayed {
		for _, s := range b.apps.servers {
			s.CloseAfterResponse()
		}
	}
	b.probes.End()
	b.settleLosses()
	if delayed {
		b.log.Info("shutdown delayed", "delay", delay)
		time.Sleep(delay)
	}
	return b.life.stop(began, c.Timeout)
}

// settleLosses makes the final flush of the bus report only the messages that are
// lost from now on: an earlier loss was logged, and is no work of the shutdown (S28).
func (b *booting) settleLosses() {
	if b.bus == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWord)
	defer cancel()
	_ = b.bus.Flush(ctx) // the final flush reports the messages that this one does not confirm
}

// unwind ends everything that an incomplete boot has started.
func (b *booting) unwind() error {
	b.probes.End()
	budget := unwindBudget
	if b.plan != nil {
		budget = b.plan.Config.Shutdown.Timeout
	}
	return b.life.stop(time.Now(), budget)
}

// intake drains all servers of apps concurrently.
func (a *apps) intake(ctx context.Context) error {
	errs := make([]error, len(a.servers))
	var wg sync.WaitGroup
	for i, s := range a.servers {
		wg.Go(func() { errs[i] = s.Drain(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// background waits for the goroutines that ctx.Go has started.
func (a *apps) background(ctx context.Context) error {
	errs := make([]error, len(a.hosts))
	var wg sync.WaitGroup
	for i, h := range a.hosts {
		wg.Go(func() {
			if err := h.Drain(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", cmp.Or(h.App.Name, "shared"), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
