package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// runCases are the cases of Once and Every. A driver that lacks O1 lacks all
// rules of runs.
var runCases = []testCase{
	{rule: "O1", claim: "of many calls in all processes one runs in a tick", run: oneRunPerTick},
	{rule: "O1", claim: "Every runs in no tick twice, whatever fn returns", run: everyTick},
	{rule: "O1", claim: "the driver counts ticks from 1970 on the backend's clock", run: backendTicks},
	{rule: "O1", claim: "the driver starts a run again for a repeated request", run: repeatedBegin},
	{rule: "O1", claim: "a stored tick that is two ahead is replaced", run: tickAhead},
	{rule: "O1", claim: "a run of a shorter interval leaves a longer tick spent", run: shorterInterval},
	{rule: "O2", claim: "a run that is longer than a tick skips ticks", also: []string{"O1"}, run: longRun},
	{rule: "O2", claim: "a call behind a run waits for at most the interval and at most its Wait", also: []string{"O1"}, run: boundedSkip},
	{rule: "O3", claim: "a crash spends the tick, except under AtLeastOnce", also: []string{"O1"}, run: crashSpends},
	{rule: "O3", claim: "a lost lease spends the tick, except under AtLeastOnce", also: []string{"O1"}, run: lossSpends},
	{rule: "O3", claim: "a start whose reply was lost spends the tick, except under AtLeastOnce", also: []string{"O1"}, run: lostStartSpends},
	{rule: "O3", claim: "an error and a panic of fn spend the tick", also: []string{"O1"}, run: failureSpends},
	{rule: "O3", claim: "the end of its context during a run spends the tick, except under AtLeastOnce", also: []string{"O1"}, run: endSpends},
	{rule: "O4", claim: "Inspect shows the last run", also: []string{"O1"}, run: lastRun},
	{rule: "O1", claim: "a driver without runs refuses Once", lacks: "O1", run: refusesRuns},
}

// aTick is so long that no case sees its end.
const aTick = lock.MaxEvery

func succeed(context.Context) error { return nil }

// runs fails the case unless a call of Once runs, or does not.
func (p *process) runs(want bool, key string, opts ...lock.Option) {
	ran, err := p.Once(p.e.Ctx, key, aTick, succeed, append(opts, p.e.ttl(100))...)
	p.e.Must(err, "once %q", key)
	p.e.Want(ran == want, "once %q: ran is %v, want %v", key, ran, want)
}

// begins starts a run at the driver.
func (e *env) begins(d driver.Driver, g driver.Grant, spend bool) driver.Run {
	ctx, cancel := e.Bounded()
	defer cancel()
	r, err := beginRun(ctx, d, g, aTick, spend)
	e.Must(err, "the driver's BeginRun of %q", g.Key)
	return r
}

func oneRunPerTick(e *env) {
	const n = 12
	processes := e.processes(3)
	for _, opts := range [][]lock.Option{{e.ttl(100)}, {e.ttl(100), lock.AtLeastOnce()}} {
		key := e.key([]string{"", "at-most", "at-least"}[len(opts)])
		var calls, reports atomic.Int64
		e.All(n, func(i int) {
			ran, err := processes[i%3].Once(e.Ctx, key, aTick, func(context.Context) error { calls.Add(1); return nil }, opts...)
			e.Must(err, "once")
			if ran {
				reports.Add(1)
			}
		})
		e.Want(calls.Load() == 1 && reports.Load() == 1, "%d calls of Once ran fn %d times and reported %d runs, want one", n, calls.Load(), reports.Load())
	}
}

func everyTick(e *env) {
	processes := e.processes(2)
	ctx, stop := context.WithCancel(e.Ctx)
	defer stop()
	var ended []<-chan struct{}
	for _, p := range processes {
		ended = append(ended, e.Async(func() {
			err := p.Every(ctx, e.key("k"), e.Units(1), func(context.Context) error { return errors.New("failed") }, e.ttl(100))
			e.Is(err, context.Canceled, "every")
		}))
	}
	all := func() []lock.Ran {
		return append(eventsOf[lock.Ran](processes[0]), eventsOf[lock.Ran](processes[1])...)
	}
	e.Soon("four runs", func() bool { return len(all()) >= 4 })
	stop()
	for _, c := range ended {
		e.Await(c, "Every has returned")
	}
	seen := map[int64]bool{}
	for _, r := range all() {
		e.Want(!seen[r.Tick], "tick %d was run twice", r.Tick)
		seen[r.Tick] = true
	}
}

// backendTicks compares the clocks behind the answers to two processes, which
// are read in turn. They are the same clock.
func backendTicks(e *env) {
	var grants []driver.Grant
	drivers := []driver.Driver{e.driver(), e.driver()}
	for i, d := range drivers {
		grants = append(grants, e.grant(d, e.longRequest(e.key([]string{"first", "second"}[i]))))
	}
	var last time.Time
	for i := range 6 {
		r := e.begins(drivers[i%2], grants[i%2], true)
		e.Want(r.Due && r.Left > 0 && r.Left <= aTick, "the run is %+v", r)
		next := driver.Run{Tick: r.Tick + 1, Every: aTick}
		now := next.TickStart().Add(-r.Left)
		e.Want(time.Since(now).Abs() < time.Hour, "the clock of the ticks shows %v", now) // it may be another machine's
		e.Want(i == 0 || now.Sub(last) > -time.Second, "one process was told %v, and then the other one %v", last, now)
		last = now
	}
}

func repeatedBegin(e *env) {
	d := e.driver()
	g := e.grant(d, e.longRequest(e.key("k")))
	first, again := e.begins(d, g, true), e.begins(d, g, true)
	e.Want(first.Due && again.Due && again.Tick == first.Tick && again.Start.Equal(first.Start), "got %+v, and then %+v", first, again)
	e.Must(e.release(d, g), "release")
	next := e.grant(d, e.longRequest(e.key("k")))
	e.Want(!e.begins(d, next, true).Due, "the tick is due again after a repeated request")
}

func tickAhead(e *env) {
	d, p := e.driver(), e.process()
	for ahead, due := range []bool{false, false, true} {
		key := e.key([]string{"present", "next", "later"}[ahead])
		g := e.grant(d, e.longRequest(key))
		r := e.begins(d, g, true)
		r.Tick += int64(ahead)
		r.Outcome = driver.Done
		ctx, cancel := e.Bounded()
		e.Must(endRun(ctx, d, g, r), "the driver's EndRun")
		cancel()
		e.Must(e.release(d, g), "release")
		p.runs(due, key)
		p.runs(false, key)
	}
}

// shorterInterval has two versions of a program, with different intervals of one
// key.
func shorterInterval(e *env) {
	a, b := e.process(), e.process()
	short := e.Units(1)
	a.runs(true, e.key("k"))
	e.Soon("a tick of the shorter interval is run", func() bool {
		ran, err := b.Once(e.Ctx, e.key("k"), short, succeed, e.ttl(100))
		e.Must(err, "once with the shorter interval")
		return ran
	})
	e.Sleep(3 * short) // the shorter interval needs no record any more
	b.runs(false, e.key("k"))
	a.runs(false, e.key("k"))
}

func longRun(e *env) {
	a, b := e.process(), e.process()
	inside, finish := make(chan struct{}), make(chan struct{})
	var live atomic.Bool
	over := e.Async(func() {
		ran, err := a.Once(e.Ctx, e.key("k"), e.Units(1), func(ctx context.Context) error {
			live.Store(true)
			defer live.Store(false)
			close(inside)
			select {
			case <-finish:
			case <-ctx.Done():
			}
			return ctx.Err()
		}, e.ttl(100))
		e.Must(err, "the long run")
		e.Want(ran, "the first call did not run")
	})
	e.Await(inside, "fn runs")
	next := func() bool {
		ctx, cancel := e.Bounded()
		defer cancel()
		ran, err := b.Once(ctx, e.key("k"), e.Units(1), func(context.Context) error {
			e.Want(!live.Load(), "two runs at the same time")
			return nil
		}, e.ttl(100))
		e.Must(err, "once during or after a long run")
		return ran
	}
	for range 3 {
		start := time.Now()
		e.Want(!next(), "a tick was run during a longer run")
		waited := time.Since(start)
		e.Want(!e.h.FakeTime || waited <= e.Units(1), "the call has waited %v for a tick of %v", waited, e.Units(1))
		e.Sleep(e.Units(1) - waited) // to the next tick
	}
	close(finish)
	e.Await(over, "the long run is over")
	e.Soon("a tick after the long run is run", next)
}

// boundedSkip calls Once while a lease that outlasts all calls holds the key.
func boundedSkip(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"), e.ttl(100))
	bound := e.Units(0.5)
	calls := []struct{ every, wait time.Duration }{{bound, lock.Forever}, {bound, time.Hour}, {aTick, bound}}
	e.All(len(calls), func(i int) {
		c := calls[i]
		ctx, cancel := e.Bounded()
		defer cancel()
		start := time.Now()
		ran, err := b.Once(ctx, e.key("k"), c.every, succeed, lock.Wait(c.wait), e.ttl(100))
		waited := time.Since(start)
		e.Must(err, "once every %v with a Wait of %v", c.every, c.wait)
		e.Want(!ran, "fn ran while another process held the key")
		e.Want(!e.h.FakeTime || waited <= bound, "the call every %v with a Wait of %v has waited %v", c.every, c.wait, waited)
	})
	e.releases(holder)
}

// crashSpends has a process vanish between the start and the end of its run. A
// force stands for the end of its TTL.
func crashSpends(e *env) {
	d, a, b := e.driver(), e.process(), e.process()
	for i, spend := range []bool{true, false} {
		key := e.key([]string{"at-most", "at-least"}[i])
		r := e.begins(d, e.grant(d, e.longRequest(key)), spend)
		e.Want(r.Due, "the first run is %+v", r)
		_, err := a.ForceRelease(e.Ctx, key, "the process has crashed")
		e.Must(err, "force")
		b.runs(!spend, key)
		a.runs(false, key)
	}
}

func lossSpends(e *env) {
	a, b := e.process(), e.process()
	for i, opts := range [][]lock.Option{nil, {lock.AtLeastOnce()}} {
		key := e.key([]string{"at-most", "at-least"}[i])
		ran, err := a.Once(e.Ctx, key, aTick, func(ctx context.Context) error {
			_, err := b.ForceRelease(e.Ctx, key, "it hangs")
			e.Must(err, "force")
			e.Await(ctx.Done(), "the lease ends")
			return nil
		}, opts...)
		e.Is(err, lock.ErrLost, "a run that was forced")
		e.Want(ran, "the first call did not run")
		b.runs(opts != nil, key, opts...)
		a.runs(false, key, opts...)
	}
}

func lostStartSpends(e *env) {
	a, b := e.process(), e.process()
	for i, opts := range [][]lock.Option{nil, {lock.AtLeastOnce()}} {
		key := e.key([]string{"at-most", "at-least"}[i])
		a.plan.Add(Step{Op: BeginRun, Key: key, Executed: true, Times: 1, Err: driver.ErrUnavailable})
		called := false
		ran, err := a.Once(e.Ctx, key, aTick, func(context.Context) error { called = true; return nil }, opts...)
		e.Is(err, lock.ErrUnavailable, "a start whose reply was lost")
		e.Want(!ran && !called, "fn ran although nobody knows whether the run was started")
		b.runs(opts != nil, key, opts...)
		a.runs(false, key, opts...)
	}
}

func failureSpends(e *env) {
	a, b := e.process(), e.process()
	failed := errors.New("failed")
	for i, opts := range [][]lock.Option{{e.ttl(100)}, {e.ttl(100), lock.AtLeastOnce()}} {
		key := e.key([]string{"error-at-most", "error-at-least"}[i])
		ran, err := a.Once(e.Ctx, key, aTick, func(context.Context) error { return failed }, opts...)
		e.Is(err, failed, "once")
		e.Want(ran, "the first call did not run")
		b.runs(false, key, opts...)

		key = e.key([]string{"panic-at-most", "panic-at-least"}[i])
		func() {
			defer func() { e.Want(recover() == "failed", "the panic of fn did not continue") }()
			_, _ = a.Once(e.Ctx, key, aTick, func(context.Context) error { panic("failed") }, opts...)
		}()
		b.runs(false, key, opts...)
	}
}

// endSpends ends the context of a run, as a shutdown does. A run that returns nil in
// spite of that is done.
func endSpends(e *env) {
	a, b := e.process(), e.process()
	for i, opts := range [][]lock.Option{nil, {lock.AtLeastOnce()}} {
		for _, done := range []bool{false, true} {
			key := e.key(fmt.Sprintf("%s-%v", []string{"at-most", "at-least"}[i], done))
			ctx, cancel := context.WithCancel(e.Ctx)
			defer cancel()
			ran, err := a.Once(ctx, key, aTick, func(ctx context.Context) error {
				cancel()
				e.Await(ctx.Done(), "the context of fn ends")
				if done {
					return nil
				}
				return ctx.Err()
			}, opts...)
			e.Want(ran && (err == nil) == done, "a run whose context has ended: ran is %v, %v", ran, err)
			b.runs(opts != nil && !done, key, opts...)
			a.runs(false, key, opts...)
		}
	}
}

func lastRun(e *env) {
	a, b := e.process(), e.process()
	failed := errors.New("failed")
	for i, want := range []driver.Outcome{driver.Done, driver.Failed} {
		key := e.key(string(want))
		var fence uint64
		shown := func(p *process, outcome driver.Outcome) func() bool {
			return func() bool {
				s, err := p.Inspect(e.Ctx, key)
				e.Must(err, "inspect")
				r := s.LastRun
				return r != nil && r.Fence == fence && r.Outcome == outcome && r.Every == aTick && r.By.Label == "nightly" &&
					!r.Start.IsZero() && r.End.IsZero() == (outcome == "") && (outcome == "" || !r.End.Before(r.Start))
			}
		}
		ran, err := a.Once(e.Ctx, key, aTick, func(ctx context.Context) error {
			lease, _ := lock.LeaseFrom(ctx)
			fence = lease.Fence()
			e.Soon("the run that is in progress is shown", shown(b, ""))
			return []error{nil, failed}[i]
		}, lock.Label("nightly"), e.ttl(100))
		e.Want(ran && (err == nil) == (want == driver.Done), "once: %v, %v", ran, err)
		e.Soon("the outcome "+string(want)+" is shown", shown(b, want))
		e.Soon("the outcome "+string(want)+" is shown", shown(a, want))
	}
}

func refusesRuns(e *env) {
	p := e.process()
	ran, err := p.Once(e.Ctx, e.key("k"), aTick, succeed)
	e.Is(err, lock.ErrUnsupported, "once")
	e.Want(!ran, "fn ran")
	e.Is(p.Every(e.Ctx, e.key("k"), aTick, succeed), lock.ErrUnsupported, "every")
	p.free(e.key("k"))
}
