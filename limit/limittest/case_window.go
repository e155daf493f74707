package limittest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/limit"
)

var windowCases = []testCase{
	{rule: "W1", claim: "a window slides with its grants", run: slidingWindow},
	{rule: "W1", claim: "processes that ask and wait never exceed a rate in any interval", run: crowdedWindow},
	{rule: "W1", claim: "a window of 10 ms holds", run: shortWindow},
	{rule: "W1", claim: "the units of a process that has gone count", run: goneProcess},
	{rule: "W1", claim: "a restarted backend keeps what it has acknowledged", run: restartedBackend, needs: []fault{"Restart"}},
	{rule: "W1", claim: "Slack lengthens the window, whose log belongs to the sum", run: slack},
	{rule: "W2", claim: "a rate above 128 loses at most 1/128", run: roundedWindow, fake: true},
	{rule: "W2", claim: "a rate of 128 is exact", run: exactWindow, fake: true},
	{rule: "W2", claim: "a large rate is never exceeded", run: largeWindow},
	{rule: "W3", claim: "a refusal consumes nothing", run: refusalConsumes},
	{rule: "W3", claim: "a waiter that is refused consumes nothing", run: refusedWaiter},
	{rule: "W4", claim: "a cost above the smallest N is refused without a call", run: largeCost},
	{rule: "W4", claim: "a cost of 0 consumes nothing", run: noCost},
	{rule: "W8", claim: "another N counts from the next call on", run: anotherN},
	{rule: "W8", claim: "an N across the bound of exact windows counts at once", run: anotherKindOfN},
	{rule: "W8", claim: "a smaller N with spaced grants counts at once and locks nobody out", run: smallerSmoothN},
	{rule: "W8", claim: "a small N behind a waiter with a large one is refused with its wait", run: smallN},
}

func slidingWindow(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(3, 1)
	// left is at most how much of the window of a grant is left, in units of
	// time. The rates of two clocks may differ a little.
	left := func(granted time.Time) float64 { return 1.001 - float64(time.Since(granted))/float64(rate.Per) }
	p.granted(key, 2, rate)
	first := time.Now()
	e.Pass(0.4)
	p.granted(key, 1, rate)
	second := time.Now()
	p.refused(key, 0, left(first), 1, rate)
	p.refused(key, 0.5, left(second), 3, rate)
	wait := p.refused(key, 0, left(first), 2, rate).Wait
	e.Sleep(wait)
	p.granted(key, 2, rate)
	p.refused(key, 0, left(second), 1, rate)
}

// crowd runs processes that use key for some time, by Wait and by the driver,
// and returns their grants and the duration.
func crowd(e *env, key string, units float64, cost int, rates ...limit.Rate) (*ledger, time.Duration) {
	const processes, callers = 3, 3
	l, m := new(ledger), limitOf(rates...)
	var all []*process
	for range processes {
		all = append(all, e.process())
	}
	start := time.Now()
	end := start.Add(e.Units(units))
	e.All(processes*callers, func(i int) {
		p, random := all[i%processes], rand.New(rand.NewPCG(1, uint64(i)))
		for time.Now().Before(end) {
			n, sent := 1+random.IntN(cost), time.Now()
			if i < processes { // the first callers only ask
				if a := p.take(key, n, rates...); a.Granted {
					l.add(i%processes, n, a.At, sent)
				}
				e.Sleep(rates[0].Per / time.Duration(rates[0].N))
				continue
			}
			permit, err := p.Wait(e.Ctx, key, m, limit.Cost(n), limit.MaxWait(max(time.Until(end), 0)))
			if err != nil {
				e.Is(err, limit.ErrLimited, "Wait")
				return
			}
			l.add(i%processes, n, permit.At(), sent)
		}
	})
	return l, time.Since(start)
}

func crowdedWindow(e *env) {
	rates := []limit.Rate{e.per(8, 0.5), e.per(30, 2)}
	l, took := crowd(e, e.key("k"), float64(suite.Scaled(8)), 3, rates...)
	l.check(e, rates...)
	allowed := 30 * float64(took) / float64(rates[1].Per)
	e.Want(float64(l.units()) >= 0.6*allowed, "%d units of %.0f were used", l.units(), allowed)
}

func shortWindow(e *env) {
	rate := limit.Rate{N: 3, Per: limit.MinPer}
	l, _ := crowd(e, e.key("k"), 0.5, 1, rate)
	l.check(e, rate)
	e.Want(l.units() >= rate.N, "%d units were used", l.units())
}

func goneProcess(e *env) {
	key, rate := e.key("k"), e.per(5, 30) // longer than a driver takes to open
	gone := e.process()
	gone.granted(key, 5, rate)
	e.Must(gone.Close(e.Ctx), "close")
	if crash := e.h.Faults.Crash; crash != nil {
		e.Must(crash(gone.direct), "crash")
	}
	e.process().refused(key, 0, 30, 1, rate)
}

func restartedBackend(e *env) {
	key, rate := e.key("k"), e.per(5, 8)
	e.process().granted(key, 5, rate)
	e.Must(e.h.Faults.Restart(), "restart the backend")
	p := e.process()
	var wait time.Duration
	e.Soon("an answer of the backend", func() bool {
		ctx, cancel := e.Bounded()
		defer cancel()
		a, err := p.direct.Take(ctx, p.request(key, 1, false, rate))
		e.Want(err != nil || !a.Granted, "the restarted backend has forgotten the grants")
		wait = a.Wait
		return err == nil
	})
	e.Want(wait <= rate.Per, "the wait is %v", wait)
}

func roundedWindow(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(12_800, 1)
	const windows, cost, asks = 5, 50, 600 // asks for each Per, which fill a window in less than half of it
	l, start := new(ledger), time.Now()
	for l.units() < windows*rate.N && time.Since(start) < 2*windows*rate.Per {
		sent := time.Now()
		if a := p.take(key, cost, rate); a.Granted {
			l.add(0, cost, a.At, sent)
		}
		e.Sleep(rate.Per / asks)
	}
	l.check(e, rate)
	filled := rate.Per * time.Duration(rate.N/cost) / asks
	bound := rate.Per*(windows-1)*129/128 + filled + rate.Per/100
	e.Want(time.Since(start) <= bound, "%d windows took %v, want at most %v", windows, time.Since(start), bound)
}

func exactWindow(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(128, 1)
	for range 128 {
		p.granted(key, 1, rate)
		e.Sleep(rate.Per / 1000)
	}
	for range 128 {
		a := p.refused(key, 0, 1, 1, rate)
		e.Sleep(a.Wait)
		p.granted(key, 1, rate)
	}
}

func largeWindow(e *env) {
	rate := e.per(2000, 1)
	l, _ := crowd(e, e.key("k"), 3, 100, rate)
	l.check(e, rate)
	e.Want(l.units() >= rate.N, "%d units were used", l.units())
}

func refusalConsumes(e *env) {
	p, key := e.process(), e.key("k")
	tight, wide := e.per(1, 60), e.per(30, 30)
	p.granted(key, 1, tight, wide)
	for range 40 {
		p.refused(key, 0, 60, 1, tight, wide)
	}
	used := p.used(key, tight, wide)
	e.Want(used[0] == 1 && used[1] == 1, "%v units are used, want 1 of each rate", used)
	p.granted(key, 29, wide)
}

func refusedWaiter(e *env) {
	p, key := e.process(), e.key("k")
	tight, wide := e.per(1, 60), e.per(30, 30)
	p.wait(key, limitOf(tight, wide))
	for range 5 {
		_, err := p.Wait(e.Ctx, key, limitOf(tight, wide), limit.MaxWait(e.Units(0.01)))
		e.Is(err, limit.ErrLimited, "Wait")
	}
	used := p.used(key, tight, wide)
	e.Want(used[0] == 1 && used[1] == 1, "%v units are used, want 1 of each rate", used)
}

func largeCost(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(10, 1), e.per(4, 2))
	for _, cost := range []int{5, 10, -1} {
		_, err := p.Allow(e.Ctx, key, m, limit.Cost(cost))
		e.Is(err, limit.ErrInvalid, "Allow of %d", cost)
		_, err = p.Wait(e.Ctx, key, m, limit.Cost(cost))
		e.Is(err, limit.ErrInvalid, "Wait for %d", cost)
	}
	e.Want(p.under.count() == 0, "the driver was called")
	e.Want(p.allow(key, m, limit.Cost(4)).Allowed, "the smallest N was refused")
}

func noCost(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(2, 60))
	for range 5 {
		r := p.allow(key, m, limit.Cost(0))
		e.Want(r.Allowed && r.Remaining == 2, "got %+v", r)
	}
	p.allow(key, m, limit.Cost(2))
	r := p.allow(key, m, limit.Cost(0))
	e.Want(!r.Allowed && r.Remaining == 0 && r.RetryAfter > 0, "got %+v", r)
	e.Want(p.used(key, m.Rates...)[0] == 2, "looking has consumed units")
}

func anotherN(e *env) {
	a, b, key := e.process(), e.process(), e.key("k")
	a.granted(key, 10, e.per(10, 60))
	b.refused(key, 0, 60, 1, e.per(5, 60))
	b.refused(key, 0, 60, 1, e.per(10, 60))
	b.granted(key, 5, e.per(15, 60))
	a.refused(key, 0, 60, 1, e.per(15, 60))
	a.granted(key, 1, e.per(16, 60))
}

func smallerSmoothN(e *env) {
	p, key := e.process(), e.key("k")
	smooth := func(n, cost int) limit.Result {
		return p.allow(key, limit.Limit{Rates: []limit.Rate{e.per(n, 2)}, Smooth: true}, limit.Cost(cost))
	}
	e.Want(smooth(100, 100).Allowed, "the first units were refused")
	r := smooth(1, 1)
	e.Want(!r.Allowed && r.RetryAfter <= e.Units(2), "got %+v, want a wait for one window", r)
	e.Sleep(r.RetryAfter + e.Units(0.05))
	r = smooth(1, 1)
	e.Want(r.Allowed, "refused after the window: %+v", r)
}

func smallN(e *env) {
	for _, smooth := range []bool{false, true} {
		a, b, key := e.process(), e.process(), e.key(fmt.Sprint(smooth))
		large, small := limit.Rate{N: limit.MaxN, Per: limit.MaxPer}, limit.Rate{N: 1, Per: limit.MaxPer}
		a.granted(key, large.N, large)
		a.queue(key, large.N, false, large)
		r := b.request(key, 1, false, small)
		r.Smooth, r.MaxWait = smooth, time.Hour
		got := b.ask(r)
		e.Want(!got.Granted && got.Again == 0 && got.Wait > 100*limit.MaxPer, "smooth %v: got %+v", smooth, got)
	}
}

func anotherKindOfN(e *env) {
	for i, n := range [][2]int{{100, 1000}, {1000, 100}} {
		p, key := e.process(), e.key(fmt.Sprint(i))
		least := min(n[0], n[1])
		p.granted(key, least, e.per(n[0], 2))
		p.refused(key, 0, 2.1, n[1]-least+1, e.per(n[1], 2))
		wait := p.refused(key, 0, 2.1, 1, e.per(least, 2)).Wait
		if n[1] > least {
			p.granted(key, n[1]-least, e.per(n[1], 2))
		}
		e.Sleep(wait + e.Units(0.05)) // not locked out
		p.granted(key, 1, e.per(n[1], 2))
	}
}

func slack(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(2, 60)
	m := limit.Limit{Rates: []limit.Rate{rate}, Slack: e.Units(30)}
	e.Want(p.allow(key, m, limit.Cost(2)).Allowed, "refused")
	r := p.allow(key, m)
	e.Want(!r.Allowed && r.RetryAfter > e.Units(60) && r.RetryAfter <= e.Units(90), "got %+v, want a refusal for more than %v", r, rate.Per)
	e.Want(!p.allow(key, limitOf(e.per(2, 90))).Allowed, "a rate as long as both together has a window of its own")
	e.Want(p.allow(key, limitOf(rate)).Allowed, "a rate without the Slack shares the window")
	s, err := p.Peek(e.Ctx, key, m)
	e.Must(err, "Peek")
	e.Want(len(s.Rates) == 1 && s.Rates[0].Per == rate.Per && s.Rates[0].Used == 2, "got %+v, want the rate as it was given", s.Rates)
}
