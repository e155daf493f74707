package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Env is the environment of a case. It measures time in units and waits for the
// goroutines of the case. Its methods fail the case by a panic, so that the code
// of a case needs no error handling.
type Env struct {
	Ctx  context.Context // of all calls of the case
	Unit time.Duration

	patience time.Duration
	cancel   context.CancelFunc // of Ctx
	work     sync.WaitGroup     // goroutines of the case

	mu     sync.Mutex // guards the fields below
	undo   []func()
	failed []error // in goroutines of the case
}

// failure is the panic value of a failed case.
type failure struct{ err error }

// caught returns the error of a recovered failure, and panics with any other
// value.
func caught(recovered any) error {
	switch r := recovered.(type) {
	case nil:
		return nil
	case failure:
		return r.err
	default:
		panic(r)
	}
}

// maxPatience bounds a case, in units of its Patience. The longest case takes 40.
const maxPatience = 60

// newEnv returns the environment of a case that has begun. Ctx ends with the time of
// the case, so that a call that is repeated for as long as its context lives fails the
// case. Ctx has no deadline: it would shorten the timeouts of calls.
func newEnv(ctx context.Context, s Suite) *Env {
	ctx, cancel := context.WithCancel(ctx)
	e := &Env{Ctx: ctx, Unit: s.Unit, patience: s.Patience}
	bound := time.Duration(max(maxPatience, Scaled(maxPatience))) * s.Patience
	timer := time.AfterFunc(bound, func() {
		e.Report("the case has not ended within %v", bound)
		cancel()
	})
	e.cancel = func() { timer.Stop(); cancel() }
	return e
}

// Cancel ends Ctx. The end of the case does too, after the functions of AtEnd.
func (e *Env) Cancel() { e.cancel() }

// end runs the functions of AtEnd, cancels the calls in flight and waits for the
// goroutines of the case.
func (e *Env) end() error {
	e.mu.Lock()
	undo := e.undo
	e.mu.Unlock()
	for _, fn := range slices.Backward(undo) {
		fn()
	}
	e.cancel()
	done := make(chan struct{})
	go func() { e.work.Wait(); close(done) }()
	var stuck error
	select {
	case <-done:
	case <-time.After(e.Patience()):
		stuck = errors.New("a call has not returned although its context has ended")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(append(e.failed, stuck)...)
}

// AtEnd registers f for the end of the case. The functions run in reverse
// order.
func (e *Env) AtEnd(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.undo = append(e.undo, f)
}

// Fail ends the case.
func (e *Env) Fail(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

// Report fails the case without a panic, for a goroutine that must not end, such
// as a handler's. The first few reports are kept.
func (e *Env) Report(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.failed) < 5 {
		e.failed = append(e.failed, fmt.Errorf(format, args...))
	}
}

// Must ends the case unless err is nil.
func (e *Env) Must(err error, format string, args ...any) {
	if err != nil {
		e.Fail("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// Want ends the case unless holds is true.
func (e *Env) Want(holds bool, format string, args ...any) {
	if !holds {
		e.Fail(format, args...)
	}
}

// Is ends the case unless err is target.
func (e *Env) Is(err, target error, format string, args ...any) {
	if !errors.Is(err, target) {
		e.Fail("%s: got %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// Async runs f in a goroutine, and returns a channel that is closed when f has
// returned. The case waits for it at its end, and fails if f fails.
func (e *Env) Async(f func()) <-chan struct{} {
	over := make(chan struct{})
	e.work.Go(func() {
		defer close(over)
		defer func() {
			if err := caught(recover()); err != nil {
				e.Report("%w", err)
			}
		}()
		f()
	})
	return over
}

// All runs f n times concurrently and waits.
func (e *Env) All(n int, f func(i int)) {
	var over []<-chan struct{}
	for i := range n {
		over = append(over, e.Async(func() { f(i) }))
	}
	for _, c := range over {
		<-c
	}
	e.mu.Lock()
	failed := errors.Join(e.failed...)
	e.failed = nil
	e.mu.Unlock()
	e.Must(failed, "in one of %d goroutines", n)
}

// Patience returns the timeout for an event that should happen at once.
func (e *Env) Patience() time.Duration { return e.patience }

// Await waits until c is closed, and fails the case after Patience.
func (e *Env) Await(c <-chan struct{}, what string) {
	timer := time.NewTimer(e.Patience())
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		e.Fail("not within %v: %s", e.Patience(), what)
	}
}

// Bounded returns the context of a call that should be short.
func (e *Env) Bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.Ctx, e.Patience())
}

// Units returns n units.
func (e *Env) Units(n float64) time.Duration { return time.Duration(n * float64(e.Unit)) }

// Pass waits for n units. It is for things that take a known time, such as a
// TTL; Eventually waits for a condition.
func (e *Env) Pass(n float64) { e.Sleep(e.Units(n)) }

// Sleep waits for d, and fails the case if Ctx ends before.
func (e *Env) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.Ctx.Done():
		e.Fail("interrupted: %w", e.Ctx.Err())
	}
}

// Soon waits until holds returns true, and fails the case after Patience.
func (e *Env) Soon(what string, holds func() bool) { e.Eventually(e.Patience(), what, holds) }

// Eventually waits until holds returns true, and fails the case after bound. The
// last call of holds begins after bound: one that began earlier may have looked
// too early, however late it returned.
func (e *Env) Eventually(bound time.Duration, what string, holds func() bool) {
	e.Want(e.Comes(bound, holds) || holds(), "not within %v: %s", bound, what)
}

// Never fails the case if holds returns true within d.
func (e *Env) Never(d time.Duration, what string, holds func() bool) {
	e.Want(!e.Comes(d, holds), "%s", what)
}

// Comes reports whether holds returns true within bound.
func (e *Env) Comes(bound time.Duration, holds func() bool) bool {
	for end := time.Now().Add(bound); ; e.Sleep(e.Unit / 64) {
		if holds() {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

// Scaled returns n times the environment variable MEGA_TEST_SCALE, and at least
// 1.
func Scaled(n int) int {
	scale, err := strconv.ParseFloat(os.Getenv("MEGA_TEST_SCALE"), 64)
	if err != nil || scale <= 0 {
		return n
	}
	return max(1, int(float64(n)*scale))
}
