package limittest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
)

var outageCases = []testCase{
	{rule: "W10", claim: "a step back delays by at most the window", run: stepBack, needs: []fault{"StepClock"}},
	{rule: "W10", claim: "a step forward grants at most one window early", run: stepForward, needs: []fault{"StepClock"}},
	{rule: "W11", claim: "Closed fails within a second", run: closedOutage},
	{rule: "W11", claim: "Open and Share allow, and say so", run: degraded},
	{rule: "W11", claim: "a backend that does not answer fails within a second", run: silentBackend, needs: []fault{"Stop", "Continue"}},
	{rule: "W11", claim: "calls that come together while the backend does not answer follow their policy, for any MaxWait", run: silentTogether, needs: []fault{"Stop", "Continue"}},
	{rule: "W11", claim: "an outage is reported once, and ends with the first answer", run: outageReported, remote: true},
	{rule: "W12", claim: "a process remembers a bounded number of refusals", run: boundedMemory},
	{rule: "W12", claim: "a refusal that arrives after a Reset, a Settle or a Cancel is not remembered", run: refusalOnItsWay},
	{rule: "W12", claim: "a refusal is repeated without a call", run: remembered},
	{rule: "W12", claim: "Reset, Settle and Cancel forget refusals", run: forgotten},
}

func stepBack(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(2, 1)
	p.granted(key, 1, rate)
	e.Pass(0.3)
	p.granted(key, 1, rate)
	undo, err := e.h.Faults.StepClock(-time.Hour)
	e.Must(err, "step the clock")
	defer func() { e.Must(undo(), "undo the step of the clock") }()
	start := time.Now()
	p.wait(key, limitOf(rate))
	e.Want(time.Since(start) <= 2*rate.Per, "waited for %v", time.Since(start))
	p.wait(key, limitOf(rate))
	e.Want(time.Since(start) <= 3*rate.Per, "waited for %v", time.Since(start))
	e.Want(!p.take(key, 2, rate).Granted, "the window is free")
}

func stepForward(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(2, 4)
	p.granted(key, 2, rate)
	undo, err := e.h.Faults.StepClock(time.Hour)
	e.Must(err, "step the clock")
	p.granted(key, 2, rate)
	p.refused(key, 0, 4, 1, rate)
	e.Must(undo(), "undo the step of the clock")
	p.refused(key, 0, 4, 1, rate)
}

func closedOutage(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(2, 1))
	p.under.breaks(errors.New("broken"))
	for range 3 {
		for name, call := range map[string]func() error{
			"Allow": func() error { return second(p.Allow(e.Ctx, key, m)) },
			"Wait":  func() error { return second(p.Wait(e.Ctx, key, m)) },
		} {
			start := time.Now()
			e.Is(call(), limit.ErrUnavailable, "%s", name)
			e.Want(time.Since(start) <= driver.CallTimeout+e.Unit, "%s failed after %v", name, time.Since(start))
		}
	}
	p.under.breaks(nil)
	e.Want(p.allow(key, m).Allowed, "refused although the backend answers again")
	p.under.mute(errors.New("broken")) // but it executes the calls
	failQueue(p, "a queue", e.key("queue"), m)
	p.under.breaks(errors.New("broken"))
	key = e.key("share")
	share := limit.Limit{Rates: []limit.Rate{e.per(1, 60)}, Outage: limit.Share(1)}
	e.Want(p.allow(key, share).Degraded, "the backend has answered")
	ctx, stop := context.WithCancel(e.Ctx)
	ahead := make(chan error, 1)
	go func() { ahead <- second(p.Wait(ctx, key, share)) }()
	e.Soon("a call waits for the share", func() bool { return p.Stats().Waiting == 1 })
	failQueue(p, "a queue behind a share", key, m)
	stop()
	e.Is(<-ahead, context.Canceled, "Wait for the share")
}

// failQueue makes calls that wait in a queue, and expects that they fail in time.
func failQueue(p *process, name, key string, m limit.Limit) {
	queue := make(chan error, 8)
	start := time.Now()
	for range 8 {
		go func() { queue <- second(p.Wait(p.env.Ctx, key, m)) }()
	}
	for range 8 {
		p.env.Is(<-queue, limit.ErrUnavailable, "Wait in %s", name)
		p.env.Want(time.Since(start) <= driver.CallTimeout+p.env.Unit, "Wait in %s failed after %v", name, time.Since(start))
	}
}

func degraded(e *env) {
	for i, policy := range []limit.Outage{limit.Open, limit.Share(0.5)} {
		p, key := e.process(), e.key(fmt.Sprint(i))
		m := limit.Limit{Rates: []limit.Rate{e.per(4, 30)}, Outage: policy}
		p.under.breaks(errors.New("broken"))
		allowed := 0
		for range 6 {
			r := p.allow(key, m)
			e.Want(r.Degraded, "%v: not marked: %+v", policy, r)
			if r.Allowed {
				allowed++
			}
		}
		e.Want(allowed == []int{6, 2}[i], "%v: %d of 6 allowed", policy, allowed)
		e.Want(p.Stats().Degraded == uint64(allowed), "%v: %d counted, want %d", policy, p.Stats().Degraded, allowed)
		p.under.breaks(nil)
		e.Soon("the end of the outage", func() bool { return !p.allow(key, m).Degraded })
	}
}

func silentBackend(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(100, 1))
	p.allow(key, m)
	e.Must(e.h.Faults.Stop(), "stop the backend")
	start := time.Now()
	_, err := p.Allow(e.Ctx, key, m)
	took := time.Since(start)
	e.Must(e.h.Faults.Continue(), "continue the backend")
	e.Is(err, limit.ErrUnavailable, "Allow")
	e.Want(took <= driver.CallTimeout+e.Unit, "failed after %v", took)
	e.Soon("an answer", func() bool { _, err := p.Allow(e.Ctx, key, m); return err == nil })
}

func silentTogether(e *env) {
	p := e.process()
	e.AtEnd(func() { _ = e.h.Faults.Continue() })
	for i, policy := range []limit.Outage{limit.Closed, limit.Open, limit.Share(1)} {
		key, m := e.key(fmt.Sprint(i)), limit.Limit{Rates: []limit.Rate{e.per(100, 30)}, Outage: policy}
		e.Soon("an answer", func() bool { r, err := p.Allow(e.Ctx, key, m); return err == nil && !r.Degraded })
		e.Must(e.h.Faults.Stop(), "stop the backend")
		start := time.Now()
		e.All(6, func(i int) {
			permit, err := p.Wait(e.Ctx, key, m, limit.MaxWait(time.Duration(i)*driver.CallTimeout/10))
			if policy == limit.Closed {
				e.Is(err, limit.ErrUnavailable, "%v: call %d", policy, i)
			} else {
				e.Want(err == nil && permit.Degraded(), "%v: call %d: %v", policy, i, err)
			}
		})
		took := time.Since(start)
		e.Must(e.h.Faults.Continue(), "continue the backend")
		e.Want(took <= 2*driver.CallTimeout+e.Unit, "%v: it took %v", policy, took)
	}
}

func remembered(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(3, 60))
	e.Want(p.allow(key, m, limit.Cost(2)).Allowed, "refused")
	p.under.count()
	start := time.Now()
	for range 10 {
		e.Want(!p.allow(key, m, limit.Cost(2)).Allowed, "allowed")
		e.Want(!p.allow(key, m, limit.Cost(3)).Allowed, "allowed")
	}
	n := p.under.count()
	e.Want(n == 1 || time.Since(start) > time.Second, "%d calls for the same refusal", n)
	e.Want(p.allow(key, m, limit.Cost(1)).Allowed, "a smaller cost was refused")
	e.Want(p.allow(key, limitOf(e.per(9, 60)), limit.Cost(2)).Allowed, "another limit was refused")
	e.Want(!p.allow(key, m, limit.Cost(3)).Allowed, "allowed")
	e.Must(e.process().Reset(e.Ctx, key), "Reset by another process")
	e.Soon("the process asks again", func() bool { return p.allow(key, m, limit.Cost(3)).Allowed })
}

func forgotten(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(2, 60))
	permit := p.wait(key, m, limit.Cost(2))
	e.Want(!p.allow(key, m).Allowed, "allowed")
	e.Must(permit.Settle(e.Ctx, 1), "Settle")
	e.Want(p.allow(key, m).Allowed, "refused after Settle")
	e.Want(!p.allow(key, m).Allowed, "allowed")
	e.Must(p.Reset(e.Ctx, key), "Reset")
	e.Want(p.allow(key, m).Allowed, "refused after Reset")
}

func outageReported(e *env) {
	p, key := e.process(), e.key("k")
	m := limit.Limit{Rates: []limit.Rate{e.per(100, 30)}, Outage: limit.Open}
	p.allow(key, m)
	for i := range 2 {
		p.under.breaks(errors.New("broken"))
		const calls = 6
		for range calls {
			e.Want(p.allow(key, m).Degraded, "a call in an outage is not marked")
		}
		e.Soon("the outage is reported", func() bool { return len(eventsOf[limit.Unavailable](p)) == i+1 })
		e.Never(e.Units(2), "the outage is reported twice, or its end during it", func() bool {
			return len(eventsOf[limit.Unavailable](p)) != i+1 || len(eventsOf[limit.Available](p)) != i
		})
		p.under.breaks(nil)
		e.Soon("the end of the outage is reported", func() bool { return len(eventsOf[limit.Available](p)) == i+1 })
		end := eventsOf[limit.Available](p)[i]
		e.Want(end.Degraded == calls && end.After > 0, "the end of the outage is reported as %+v, want %d degraded calls", end, calls)
		e.Want(!p.allow(key, m).Degraded, "a call after the outage is marked")
	}
	e.Want(len(eventsOf[limit.Unavailable](p)) == 2, "two outages are reported %d times", len(eventsOf[limit.Unavailable](p)))
}

func boundedMemory(e *env) {
	const most, keys = 2, 6
	p, m := e.process(func(c *limit.Config) { c.Cache = most }), limitOf(e.per(1, 60))
	ask := func(allowed bool) {
		for i := range keys {
			e.Want(p.allow(e.key(fmt.Sprint(i)), m).Allowed == allowed, "key %d: want allowed %t", i, allowed)
		}
	}
	ask(true)
	ask(false)
	p.under.count()
	ask(false)
	n := p.under.count()
	e.Want(n >= keys-most, "%d of %d refusals were repeated without a call, want at most %d", keys-n, keys, most)
}

func refusalOnItsWay(e *env) {
	for i, free := range []func(p *process, key string, permit *limit.Permit) error{
		func(p *process, key string, _ *limit.Permit) error { return p.Reset(e.Ctx, key) },
		func(_ *process, _ string, permit *limit.Permit) error { return permit.Settle(e.Ctx, 1) },
		func(_ *process, _ string, permit *limit.Permit) error { return permit.Cancel(e.Ctx) },
	} {
		p, key, m := e.process(), e.key(fmt.Sprint(i)), limitOf(e.per(2, 60))
		permit := p.wait(key, m, limit.Cost(2))
		p.under.beforeAnswer(func() { e.Must(free(p, key, permit), "give units back") })
		e.Want(!p.allow(key, m).Allowed, "allowed")
		e.Want(p.allow(key, m).Allowed, "a refusal of before is repeated")
	}
}
