package locktest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// prepareCases are the cases of slots that are prepared and cleaned, at the
// front.
var prepareCases = []testCase{
	{rule: "P1", claim: "a slot is held until its Cleanup has returned, also after the end of the caller's context", run: heldUntilClean},
	{rule: "P1", claim: "Close waits until Cleanup has returned, within its own context", run: closeWaitsForCleanup},
	{rule: "P2", claim: "Init, fn and Cleanup run in this order, whatever the end of fn", run: cleanAfterAnyEnd},
	{rule: "P2", claim: "Cleanup runs after a failed Init, whose error is the call's", run: cleanAfterFailedInit},
	{rule: "P3", claim: "Cleanup has the caller's values, and neither its end nor its deadline", run: cleanupContext},
	{rule: "P3", claim: "a holder that has lost its slot does not clean it", run: loserDoesNotClean},
	{rule: "P3", claim: "a holder that has not looked at its context does not clean a lost slot", fake: true, run: carelessLoserDoesNotClean},
	{rule: "P3", claim: "a holder whose lease has run out does not clean its slot", run: lateHolderDoesNotClean},
	{rule: "P4", claim: "a dirty slot is cleaned before it is prepared", run: dirtyIsCleanedFirst},
	{rule: "P4", claim: "a slot that cannot be cleaned first is withdrawn, and the call takes another one", run: uncleanIsSkipped},
	{rule: "P7", claim: "a process gets the slot again that it had, at rest nine times in ten", run: stickySlots},
	{rule: "P7", claim: "after a failed Init a process gets another slot", run: failedInitAvoids},
	{rule: "P8", claim: "a Cleanup that fails withdraws its slot until Heal", run: failedCleanup},
	{rule: "P8", claim: "a Cleanup that panics or takes too long withdraws its slot", run: endlessCleanup},
	{rule: "P8", claim: "a Cleanup that is cut by the loss of its lease withdraws nothing", run: cutCleanup},
	{rule: "P8", claim: "Strikes failed Inits in a row withdraw the slot", run: strikesWithdraw},
}

// room is a pool of one slot that records the calls of its functions.
type room struct {
	lock.Pool

	mu    sync.Mutex
	steps []string // guarded by mu
}

func noWork(context.Context, *lock.Slot) error { return nil }

// is fails the case unless the slot has the status, for a reason that contains
// why.
func (r *room) is(p *process, slot int, status driver.SlotStatus, why string) {
	s, err := p.Inspect(p.e.Ctx, r.Key)
	p.e.Must(err, "inspect")
	p.e.Want(len(s.Slots) == r.Size, "the pool of %d has the slots %+v", r.Size, s.Slots)
	got := s.Slots[slot]
	p.e.Want(got.Status == status && strings.Contains(got.Reason, why), "slot %d is %+v, want %s, %q", slot, got, status, why)
}

// room returns a pool whose slot is clean.
func (e *env) room() *room {
	r := &room{Pool: lock.Pool{Key: e.key("room"), Size: 1}}
	r.Init = func(context.Context, *lock.Slot) error { r.add("init"); return nil }
	r.Cleanup = func(context.Context, *lock.Slot) error { r.add("cleanup"); return nil }
	p := e.process()
	e.Must(r.with(p, noWork), "the first use")
	r.want(p, "cleanup", "init", "fn", "cleanup") // P10: nothing was known of the slot
	return r
}

func (r *room) add(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, step)
}

// with runs fn in the room, and records it.
func (r *room) with(p *process, fn func(context.Context, *lock.Slot) error, opts ...lock.Option) error {
	return p.WithSlot(p.e.Ctx, &r.Pool, func(ctx context.Context, s *lock.Slot) error {
		r.add("fn")
		return fn(ctx, s)
	}, append(opts, p.e.ttl(100))...)
}

// want fails the case unless these were the calls since the last want.
func (r *room) want(p *process, steps ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.e.Want(slices.Equal(r.steps, steps), "the calls were %q, want %q", r.steps, steps)
	r.steps = nil
}

func heldUntilClean(e *env) {
	a, b, r := e.process(), e.process(), e.room()
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	clean, cleaning := make(chan struct{}), make(chan struct{})
	finish := sync.OnceFunc(func() { close(clean) })
	defer finish()
	r.CleanupTimeout = e.Units(1000)
	r.Cleanup = func(ctx context.Context, _ *lock.Slot) error {
		close(cleaning)
		select {
		case <-clean:
		case <-ctx.Done():
			e.Report("the context of Cleanup has ended: %v", context.Cause(ctx))
		}
		return nil
	}
	over := e.Async(func() {
		err := a.WithSlot(ctx, &r.Pool, func(ctx context.Context, _ *lock.Slot) error {
			cancel()
			e.Await(ctx.Done(), "the context of fn ends")
			return ctx.Err()
		}, e.ttl(100))
		e.Is(err, context.Canceled, "the call")
	})
	e.Await(cleaning, "Cleanup runs")
	if e.h.FakeTime {
		e.Pass(300) // three TTLs: the lease is renewed
	}
	other := lock.Pool{Key: r.Key, Size: 1}
	err := b.WithSlot(e.Ctx, &other, noWork, lock.Wait(0))
	e.Is(err, lock.ErrNotAcquired, "the slot during Cleanup")
	finish()
	e.Await(over, "the call ends")
}

// closeWaitsForCleanup closes the Locker of a holder whose context has ended, once
// with a context that outlasts Cleanup and once with one that ends before.
func closeWaitsForCleanup(e *env) {
	r := e.room()
	for _, patient := range []bool{true, false} {
		a := e.process()
		ctx, cancel := context.WithCancel(e.Ctx)
		closing, leave := context.WithCancel(e.Ctx)
		cleaning, clean := make(chan struct{}), make(chan struct{})
		var cut error
		r.Cleanup = func(ctx context.Context, _ *lock.Slot) error {
			close(cleaning)
			select {
			case <-clean:
			case <-ctx.Done():
				cut = context.Cause(ctx)
			}
			return nil
		}
		worked := e.Async(func() {
			err := a.WithSlot(ctx, &r.Pool, func(ctx context.Context, _ *lock.Slot) error {
				cancel()
				e.Await(ctx.Done(), "the context of fn ends")
				return nil
			}, e.ttl(100))
			e.Want(err == nil || !patient && errors.Is(err, lock.ErrLost), "the call: %v", err)
		})
		e.Await(cleaning, "Cleanup runs")
		var closed error
		over := e.Async(func() { closed = a.Close(closing) })
		e.Never(e.Units(0.5), "Close has returned during Cleanup", func() bool {
			select {
			case <-over:
				return true
			default:
				return false
			}
		})
		if patient {
			close(clean)
		} else {
			leave()
		}
		e.Await(worked, "the call ends")
		e.Await(over, "Close ends")
		if patient {
			e.Must(closed, "close")
			e.Want(cut == nil, "Cleanup was cut: %v", cut)
			r.is(e.process(), 0, lock.SlotFree, "")
		} else {
			e.Is(closed, context.Canceled, "close")
			var lost *lock.LostError
			e.Want(errors.As(cut, &lost) && lost.Cause == lock.Shutdown, "Cleanup was cut: %v", cut)
		}
		leave()
	}
}

func cleanAfterAnyEnd(e *env) {
	p, r, mine := e.process(), e.room(), errors.New("out of paper")
	e.Must(r.with(p, noWork), "the call")
	r.want(p, "init", "fn", "cleanup")
	e.Is(r.with(p, func(context.Context, *lock.Slot) error { return mine }), mine, "the call")
	r.want(p, "init", "fn", "cleanup")
	func() {
		defer func() { e.Want(recover() == "the work's panic", "the panic does not go on") }()
		_ = r.with(p, func(context.Context, *lock.Slot) error { panic("the work's panic") })
	}()
	r.want(p, "init", "fn", "cleanup")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = r.with(p, func(context.Context, *lock.Slot) error { runtime.Goexit(); return nil })
	}()
	e.Await(gone, "the goroutine ends")
	r.want(p, "init", "fn", "cleanup")
}

func cleanAfterFailedInit(e *env) {
	p, r, mine := e.process(), e.room(), errors.New("no paper")
	r.Init = func(context.Context, *lock.Slot) error { r.add("init"); return mine }
	e.Is(r.with(p, noWork), mine, "the call")
	r.want(p, "init", "cleanup")
}

// cleanupContext looks at the context of the Cleanup before Init and of the one
// after a caller whose context has ended.
func cleanupContext(e *env) {
	p := e.process()
	type name struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(e.Ctx, name{}, "value"), e.Units(1000))
	defer cancel()
	cleaned := 0
	pool := lock.Pool{Key: e.key("pool"), Size: 1, CleanupTimeout: e.Units(100)} // P10: the slot is dirty
	pool.Cleanup = func(ctx context.Context, s *lock.Slot) error {
		cleaned++
		if ctx.Value(name{}) != "value" {
			e.Report("Cleanup %d has no value of the caller", cleaned)
		}
		if err := ctx.Err(); err != nil {
			e.Report("the context of Cleanup %d has ended: %w", cleaned, err)
		}
		at, ok := ctx.Deadline()
		if left := time.Until(at); !ok || left > pool.CleanupTimeout || left < pool.CleanupTimeout/2 {
			e.Report("Cleanup %d has %v left, want %v", cleaned, left, pool.CleanupTimeout)
		}
		if lease, ok := lock.LeaseFrom(ctx); !ok || lease.Fence() != s.Fence() {
			e.Report("the context of Cleanup %d has not the lease of its slot", cleaned)
		}
		return nil
	}
	err := p.WithSlot(ctx, &pool, func(ctx context.Context, _ *lock.Slot) error {
		cancel()
		e.Await(ctx.Done(), "the context of fn ends")
		return nil
	}, e.ttl(100))
	e.Must(err, "the call")
	e.Want(cleaned == 2, "Cleanup ran %d times, want before Init and after fn", cleaned)
}

func loserDoesNotClean(e *env) {
	a, b, r := e.process(), e.process(), e.room()
	err := r.with(a, func(ctx context.Context, _ *lock.Slot) error {
		_, err := b.ForceRelease(e.Ctx, r.Key, "it hangs")
		e.Must(err, "force")
		e.Await(ctx.Done(), "the context of fn ends")
		return nil
	})
	e.Is(err, lock.ErrLost, "the call")
	r.want(a, "init", "fn")
}

func carelessLoserDoesNotClean(e *env) {
	a, b, r := e.process(), e.process(), e.room()
	err := r.with(a, func(context.Context, *lock.Slot) error {
		_, err := b.ForceRelease(e.Ctx, r.Key, "it hangs")
		e.Must(err, "force")
		e.Pass(0.1) // the driver's report arrives
		return nil
	})
	e.Is(err, lock.ErrLost, "the call")
	r.want(a, "init", "fn")
}

// lateHolderDoesNotClean has a holder lose its slot by time, without a report of
// the driver.
func lateHolderDoesNotClean(e *env) {
	a, r := e.process(), e.room()
	defer a.plan.Add(Step{Op: Renew, Err: errUnreachable})()
	err := a.WithSlot(e.Ctx, &r.Pool, func(ctx context.Context, _ *lock.Slot) error {
		e.Await(ctx.Done(), "the context of fn ends")
		return nil
	}, e.ttl(2))
	e.Is(err, lock.ErrLost, "the call")
	r.want(a, "init")
}

func dirtyIsCleanedFirst(e *env) {
	a, b, r := e.process(), e.process(), e.room()
	_ = r.with(a, func(ctx context.Context, s *lock.Slot) error {
		e.Want(s.Left() == nil, "a clean slot was left by %+v", s.Left())
		_, err := b.ForceRelease(e.Ctx, r.Key, "it hangs")
		e.Must(err, "force")
		e.Await(ctx.Done(), "the context of fn ends")
		return nil
	}, lock.Label("the first"))
	r.want(a, "init", "fn")
	e.Must(r.with(b, func(_ context.Context, s *lock.Slot) error {
		left := s.Left()
		e.Want(left != nil && left.Why == lock.LeftForced && left.By.Label == "the first", "the slot was left by %+v", left)
		return nil
	}), "the next call")
	r.want(b, "cleanup", "init", "fn", "cleanup")
}

func uncleanIsSkipped(e *env) {
	p, mine := e.process(), errors.New("the door is stuck")
	r := &room{Pool: lock.Pool{Key: e.key("room"), Size: 2}} // P10: both slots are dirty
	r.Init = func(_ context.Context, s *lock.Slot) error { r.add(fmt.Sprint("init ", s.Number())); return nil }
	r.Cleanup = func(_ context.Context, s *lock.Slot) error {
		r.add(fmt.Sprint("cleanup ", s.Number()))
		if s.Number() == 0 {
			return mine
		}
		return nil
	}
	e.Must(r.with(p, noWork, lock.Wait(e.Units(10))), "the call")
	r.want(p, "cleanup 0", "cleanup 1", "init 1", "fn", "cleanup 1")
	r.is(p, 0, lock.SlotWithdrawn, mine.Error())
	r.is(p, 1, lock.SlotFree, "")
}

// stickySlots has several processes take all slots and hand them back, each time
// in another order.
func stickySlots(e *env) {
	const size, rounds = 4, 10
	var processes [size]*process
	var last [size]int
	for i := range processes {
		processes[i] = e.process()
	}
	pool, again := lock.Pool{Key: e.key("pool"), Size: size}, 0
	for round := range rounds {
		var held [size]*lock.Slot
		for i := range size {
			who := (i + round) % size
			s, err := processes[who].AcquireSlot(e.Ctx, &pool, e.ttl(1000))
			e.Must(err, "a slot")
			held[who] = s
			if round > 0 && s.Number() == last[who] {
				again++
			}
			last[who] = s.Number()
		}
		for _, s := range held {
			e.Must(s.Release(), "the release")
		}
	}
	const all = size * (rounds - 1)
	e.Want(10*again >= 9*all, "%d of %d times a process got the slot that it had", again, all)
}

// failedInitAvoids has Init fail for one slot of a clean pool, once. The slot is the
// one that the process had last.
func failedInitAvoids(e *env) {
	p, mine := e.process(), errors.New("no paper")
	pool := lock.Pool{Key: e.key("pool"), Size: 3}
	slots := func(n int) (got []int) {
		for range n {
			e.Must(p.WithSlot(e.Ctx, &pool, func(_ context.Context, s *lock.Slot) error {
				got = append(got, s.Number())
				return nil
			}), "the call")
		}
		return got
	}
	var all []*lock.Slot
	for range pool.Size {
		s, err := p.AcquireSlot(e.Ctx, &pool)
		e.Must(err, "a slot")
		all = append(all, s)
	}
	for _, s := range all {
		e.Must(s.Release(), "release")
	}
	last := slots(2)[1]
	pool.Init = func(_ context.Context, s *lock.Slot) error {
		e.Want(s.Number() == last, "slot %d was granted, want %d again", s.Number(), last)
		return mine
	}
	e.Is(p.WithSlot(e.Ctx, &pool, noWork), mine, "the call")
	pool.Init = nil
	next := slots(2)
	e.Want(next[0] != last && next[1] == next[0], "after a failed Init of slot %d the slots %d were granted", last, next)
}

func failedCleanup(e *env) {
	a, b, r := e.process(), e.process(), e.room()
	cleanup, mine := r.Cleanup, errors.New("the door is stuck")
	r.Cleanup = func(context.Context, *lock.Slot) error { return mine }
	e.Must(r.with(a, noWork), "the call") // the failure is the slot's
	r.Cleanup = cleanup
	var refused *lock.NotAcquiredError
	err := r.with(b, noWork)
	e.Want(errors.As(err, &refused) && refused.Withdrawn, "the next call: %v", err)
	e.Must(b.Heal(e.Ctx, r.Key, 0, "the door was repaired"), "heal")
	r.want(b, "init", "fn")
	e.Must(r.with(b, noWork), "the call after Heal")
	r.want(b, "cleanup", "init", "fn", "cleanup")
}

func endlessCleanup(e *env) {
	p, r := e.process(), e.room()
	r.CleanupTimeout = e.Units(0.25)
	sound := r.Cleanup
	for why, cleanup := range map[string]func(context.Context, *lock.Slot) error{
		"panicked": func(context.Context, *lock.Slot) error { panic("the door is stuck") },
		context.DeadlineExceeded.Error(): func(ctx context.Context, _ *lock.Slot) error {
			select {
			case <-ctx.Done():
			case <-time.After(e.Patience()):
				e.Report("the context of Cleanup goes on after its time")
			}
			return ctx.Err()
		},
	} {
		e.Must(r.with(p, func(context.Context, *lock.Slot) error {
			r.Cleanup = cleanup
			return nil
		}), "the call") // the failure is the slot's
		r.is(p, 0, lock.SlotWithdrawn, why)
		r.Cleanup = sound
		e.Must(p.Heal(e.Ctx, r.Key, 0, "the door was repaired"), "heal")
	}
}

func cutCleanup(e *env) {
	a, b, r := e.process(), e.process(), e.room()
	err := r.with(a, func(context.Context, *lock.Slot) error {
		r.Cleanup = func(ctx context.Context, _ *lock.Slot) error {
			if _, err := b.ForceRelease(e.Ctx, r.Key, "it hangs"); err != nil {
				e.Report("force: %w", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(e.Patience()):
				e.Report("the context of Cleanup goes on after the loss")
			}
			return ctx.Err()
		}
		return nil
	})
	e.Is(err, lock.ErrLost, "the call")
	r.is(b, 0, lock.SlotDirty, lock.LeftForced)
}

// strikesWithdraw has Inits fail in two processes: the strikes are the slot's. A
// successful Init clears them, and an Init that was cancelled is none.
func strikesWithdraw(e *env) {
	a, b, r := e.process(), e.process(), e.room()
	r.Strikes = 2
	sound, mine := r.Init, errors.New("no paper")
	fails := func(p *process) {
		r.Init = func(context.Context, *lock.Slot) error { return mine }
		e.Is(r.with(p, noWork), mine, "a call whose Init fails")
	}
	works := func(p *process) {
		r.Init = sound
		e.Must(r.with(p, noWork), "a call whose Init succeeds")
	}
	fails(a)
	works(b)
	fails(b)
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	r.Init = func(ctx context.Context, _ *lock.Slot) error {
		cancel()
		e.Await(ctx.Done(), "the context of Init ends")
		return ctx.Err()
	}
	e.Is(a.WithSlot(ctx, &r.Pool, noWork, e.ttl(100)), context.Canceled, "a call that is cancelled during Init")
	works(a)
	fails(a)
	fails(b)
	r.is(a, 0, lock.SlotWithdrawn, "2 Inits")
	r.is(a, 0, lock.SlotWithdrawn, mine.Error()) // an operator repairs this
	var refused *lock.NotAcquiredError
	err := r.with(a, noWork)
	e.Want(errors.As(err, &refused) && refused.Withdrawn, "the next call: %v", err)
}
