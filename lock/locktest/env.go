package locktest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// env is the environment of a case: it opens processes, measures time in units,
// and fails the case by a panic with a failure.
type env struct {
	ctx    context.Context // of all calls of the case
	cancel context.CancelFunc
	h      Harness
	info   driver.Info
	unit   time.Duration
	prefix string // of the case's keys, so that cases on one backend do not share keys

	looker *process // see outsider

	work sync.WaitGroup // goroutines of the case

	mu     sync.Mutex // guards the fields below
	undo   []func()
	failed []error // in goroutines of the case
}

func newEnv(ctx context.Context, h Harness, info driver.Info) *env {
	ctx, cancel := context.WithCancel(ctx)
	return &env{ctx: ctx, cancel: cancel, h: h, info: info, unit: h.Unit, prefix: "case-" + token()[:10]}
}

// end cancels the calls in flight, runs the undo functions and waits for the
// goroutines of the case.
func (e *env) end() error {
	e.cancel()
	e.mu.Lock()
	undo := e.undo
	e.mu.Unlock()
	for _, fn := range slices.Backward(undo) {
		fn()
	}
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

// atEnd registers f for the end of the case. The functions run in reverse
// order.
func (e *env) atEnd(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.undo = append(e.undo, f)
}

// fail ends the case.
func (e *env) fail(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

// must ends the case unless err is nil.
func (e *env) must(err error, format string, args ...any) {
	if err != nil {
		e.fail("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// want ends the case unless holds is true.
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

// async runs f in a goroutine. The case waits for it at its end, and fails if f
// fails.
func (e *env) async(f func()) {
	e.work.Go(func() {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case failure:
				e.mu.Lock()
				e.failed = append(e.failed, r.err)
				e.mu.Unlock()
			default:
				panic(r)
			}
		}()
		f()
	})
}

// all runs f n times concurrently and waits.
func (e *env) all(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		e.async(func() {
			defer wg.Done()
			f(i)
		})
	}
	wg.Wait()
	e.mu.Lock()
	failed := errors.Join(e.failed...)
	e.failed = nil
	e.mu.Unlock()
	e.must(failed, "in one of %d goroutines", n)
}

// patience returns the timeout for an event that should happen at once.
func (e *env) patience() time.Duration { return 5*time.Second + 10*e.unit }

// await waits until c is closed, and fails the case after patience.
func (e *env) await(c <-chan struct{}, what string) {
	timer := time.NewTimer(e.patience())
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		e.fail("not within %v: %s", e.patience(), what)
	}
}

// pass waits for n units. It is for things that take a known time, such as a
// TTL; eventually waits for a condition.
func (e *env) pass(n float64) { e.sleep(e.units(n)) }

func (e *env) units(n float64) time.Duration { return time.Duration(n * float64(e.unit)) }

func (e *env) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
		e.fail("interrupted: %w", e.ctx.Err())
	}
}

// eventually waits until holds returns true, and fails the case after bound.
func (e *env) eventually(bound time.Duration, what string, holds func() bool) {
	e.want(e.comes(bound, holds), "not within %v: %s", bound, what)
}

// soon is eventually for a condition that should hold at once.
func (e *env) soon(what string, holds func() bool) { e.eventually(e.patience(), what, holds) }

// never fails the case if holds returns true within d.
func (e *env) never(d time.Duration, what string, holds func() bool) {
	e.want(!e.comes(d, holds), "%s", what)
}

func (e *env) comes(bound time.Duration, holds func() bool) bool {
	for end := time.Now().Add(bound); ; e.sleep(e.unit / 64) {
		if holds() {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

// key returns a key that no other case uses.
func (e *env) key(name string) string { return e.prefix + ":" + name }

// token returns a token in the format of the front.
func token() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// request returns a request of a plain lease of two units.
func (e *env) request(key string) driver.Request {
	return driver.Request{
		Key: key, Token: token(), TTL: e.units(2), Slots: 1, Fences: 1,
		Holder: driver.Holder{Host: "host", PID: os.Getpid(), Since: time.Now()},
	}
}

// driver opens another process, without a front.
func (e *env) driver() driver.Driver {
	d, err := e.h.Open()
	e.must(err, "open the driver")
	e.atEnd(func() { _ = closeBounded(d) })
	return d
}

func closeBounded(d driver.Driver) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return d.Close(ctx)
}

// bounded returns the context of a call that should be short.
func (e *env) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.ctx, e.patience())
}

// grant acquires a key from the driver without a wait.
func (e *env) grant(d driver.Driver, r driver.Request) driver.Grant {
	ctx, cancel := e.bounded()
	defer cancel()
	g, err := d.Acquire(ctx, r)
	e.must(err, "the driver's Acquire of %q", r.Key)
	return g
}

// renew renews one grant.
func (e *env) renew(d driver.Driver, g driver.Grant) driver.Renewal {
	ctx, cancel := e.bounded()
	defer cancel()
	return d.Renew(ctx, []driver.Grant{g})[0]
}

// release releases a grant.
func (e *env) release(d driver.Driver, g driver.Grant) error {
	ctx, cancel := e.bounded()
	defer cancel()
	return d.Release(ctx, g)
}

// inspect returns the driver's state of key.
func (e *env) inspect(d driver.Driver, key string) driver.State {
	ctx, cancel := e.bounded()
	defer cancel()
	s, err := d.Inspect(ctx, key)
	e.must(err, "the driver's Inspect of %q", key)
	return s
}

// keeps reports whether the driver keeps the rule.
func (e *env) keeps(rule string) bool { return !lacks(e.info, rule) }

// remote reports whether there may be other processes, and so a local queue.
func (e *env) remote() bool { return e.info.Scope > driver.Process }

// ttl returns the TTL option of n units.
func (e *env) ttl(n float64) lock.Option { return lock.TTL(e.units(n)) }

// long returns a Wait option without limit.
func (e *env) long() lock.Option { return lock.Wait(lock.Forever) }

// Scaled returns n times the environment variable MEGA_TEST_SCALE, and at least
// 1. Every count in the module's tests uses it.
func Scaled(n int) int {
	scale, err := strconv.ParseFloat(os.Getenv("MEGA_TEST_SCALE"), 64)
	if err != nil || scale <= 0 {
		return n
	}
	return max(1, int(float64(n)*scale))
}
