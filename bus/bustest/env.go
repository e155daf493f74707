package bustest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// env is what a case runs in: it opens processes, counts time in units, and
// fails the case by panicking with a failure.
type env struct {
	ctx    context.Context // of all that the case asks for
	cancel context.CancelFunc
	h      Harness
	info   driver.Info
	unit   time.Duration

	work sync.WaitGroup // goroutines of the case

	mu     sync.Mutex // guards the fields below
	undo   []func()
	failed []error // in goroutines, in handlers and at the end
}

func newEnv(ctx context.Context, h Harness, info driver.Info) *env {
	ctx, cancel := context.WithCancel(ctx)
	return &env{ctx: ctx, cancel: cancel, h: h, info: info, unit: h.Unit}
}

// end undoes everything, cancels what is under way and waits for the
// goroutines of the case.
func (e *env) end() error {
	e.mu.Lock()
	undo := e.undo
	e.mu.Unlock()
	for _, fn := range slices.Backward(undo) {
		fn()
	}
	e.cancel() // after Close, which is what should end the handlers' contexts
	done := make(chan struct{})
	go func() { e.work.Wait(); close(done) }()
	var stuck error
	select {
	case <-done:
	case <-time.After(e.patience()):
		stuck = errors.New("a call has not returned although its context has ended")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(append(e.failed, stuck)...)
}

// atEnd undoes something when the case is over, last things first.
func (e *env) atEnd(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.undo = append(e.undo, f)
}

// fail ends the case.
func (e *env) fail(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

// report fails the case from a goroutine that must not end, such as a
// handler's. Of many reports the first few are kept.
func (e *env) report(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.failed) < 5 {
		e.failed = append(e.failed, fmt.Errorf(format, args...))
	}
}

// must ends the case unless err is nil.
func (e *env) must(err error, format string, args ...any) {
	if err != nil {
		e.fail("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// want ends the case unless the condition holds.
func (e *env) want(holds bool, format string, args ...any) {
	if !holds {
		e.fail(format, args...)
	}
}

// is ends the case unless err is target.
func (e *env) is(err, target error, format string, args ...any) {
	if !errors.Is(err, target) {
		e.fail("%s: got %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// async runs f in a goroutine that the case waits for at its end. A failure in
// it fails the case. The returned channel is closed when f is over.
func (e *env) async(f func()) <-chan struct{} {
	over := make(chan struct{})
	e.work.Go(func() {
		defer close(over)
		defer func() {
			switch r := recover().(type) {
			case nil:
			case failure:
				e.report("%w", r.err)
			default:
				panic(r)
			}
		}()
		f()
	})
	return over
}

// all runs f n times at once and waits.
func (e *env) all(n int, f func(i int)) {
	var over []<-chan struct{}
	for i := range n {
		over = append(over, e.async(func() { f(i) }))
	}
	for _, c := range over {
		<-c
	}
	e.mu.Lock()
	failed := errors.Join(e.failed...)
	e.failed = nil
	e.mu.Unlock()
	e.must(failed, "in one of %d goroutines", n)
}

// patience is how long a case waits for what should happen at once.
func (e *env) patience() time.Duration {
	if e.h.impatient {
		return time.Second + 5*e.unit
	}
	return 5*time.Second + 50*e.unit
}

// await waits for c to be closed, for as long as what should happen at once may
// take.
func (e *env) await(c <-chan struct{}, what string) {
	timer := time.NewTimer(e.patience())
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		e.fail("not within %v: %s", e.patience(), what)
	}
}

// receive returns what comes through c, which should happen at once.
func receive[T any](e *env, c <-chan T, what string) T {
	timer := time.NewTimer(e.patience())
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		e.fail("not within %v: %s", e.patience(), what)
	}
	panic("unreachable")
}

// listen keeps a handler until its context ends, at the latest when the case
// is over.
func (e *env) listen(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-e.ctx.Done():
	}
}

// units is so many units of time.
func (e *env) units(n float64) time.Duration { return time.Duration(n * float64(e.unit)) }

// pass lets n units go by. It is for what has to take time, such as an expiry;
// for what has to happen there is soon.
func (e *env) pass(n float64) { e.sleep(e.units(n)) }

func (e *env) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
		e.fail("interrupted: %w", e.ctx.Err())
	}
}

// breathe pauses a loop that goes on until something happens, so that others
// run. On fake time the pause is as long as in soon: a shorter one multiplies
// the rounds until a soon gives up, to half a million.
func (e *env) breathe() {
	if e.h.FakeTime {
		e.sleep(e.unit / 100)
		return
	}
	e.sleep(e.unit / 10_000)
}

// soon waits until holds, and fails if it does not within patience.
func (e *env) soon(what string, holds func() bool) {
	e.want(e.comes(holds), "not within %v: %s", e.patience(), what)
}

func (e *env) comes(holds func() bool) bool {
	for end := time.Now().Add(e.patience()); !holds(); e.sleep(e.unit / 100) {
		if !time.Now().Before(end) {
			return false
		}
	}
	return true
}

// bounded is the context of a call that should be short.
func (e *env) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.ctx, e.patience())
}

// within is a context that lasts n units.
func (e *env) within(n float64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.ctx, e.units(n))
}

// took fails the case if it is more than n units since then, and on fake time
// if it is anything at all beyond exactly.
func (e *env) took(since time.Time, exactly time.Duration, slack float64, what string) {
	d := time.Since(since)
	if e.h.FakeTime {
		slack = 0
	}
	e.want(d >= exactly && d <= exactly+e.units(slack), "%s took %v, want %v", what, d, exactly)
}

// remote reports whether there may be several processes.
func (e *env) remote() bool { return e.info.Scope > driver.Process }

// Scaled returns n times the environment variable MEGA_TEST_SCALE, and at
// least 1: the way in which every count of the module's tests is set.
func Scaled(n int) int {
	scale, err := strconv.ParseFloat(os.Getenv("MEGA_TEST_SCALE"), 64)
	if err != nil || scale <= 0 {
		return n
	}
	return max(1, int(float64(n)*scale))
}
